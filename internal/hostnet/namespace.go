package hostnet

import "errors"

// Errors of network namespaces.
var (
	// ErrNoNamespace is wrapped by the error for a namespace that does not
	// exist.
	ErrNoNamespace = errors.New("no such network namespace")
	// ErrNamespacePrivilege is wrapped by the error for a process that may not
	// enter one.
	ErrNamespacePrivilege = errors.New("missing capability CAP_SYS_ADMIN")
	// ErrNamespaceClosed is returned by Do after Close.
	ErrNamespaceClosed = errors.New("hostnet: the network namespace is closed")
)
