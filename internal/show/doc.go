// Package show writes what a daemon tells of its devices (control/admin) as text
// for a terminal.
package show
