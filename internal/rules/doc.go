// Package rules is the list of the protocol's rules that gorxe keeps: for each
// an id, one sentence, where the code is, and what proves it. Packet scripts name
// the ids (package script), the simulator's coverage counts the same ones, and
// docs/rules.md is the list as a document.
//
// A test holds the list together: code and tests exist, every rule has a proof
// or says what is missing, and every script names rules that there are. `make
// rules` writes the document.
//
// Rules are from IBA Specification Volume 1 and its annexes A16 and A17, as far
// as their clauses are known here, and from how peers behave that everybody has
// to live with. The package imports nothing.
package rules
