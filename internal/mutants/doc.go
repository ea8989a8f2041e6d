// Mutants asks whether the tests would notice: it breaks the protocol engines,
// one small change at a time, and runs their fast tests against each.
//
//	go run ./internal/mutants -seed 1 -n 300
//
// A mutant is a change of one place of the syntax tree: a negated condition, a
// number or a comparison off by one, a dropped assignment or call, a constant or
// an operator exchanged for its neighbour. Mutants are drawn by seed: packages in
// the proportion of their code, operators in turn. Each is compiled by an overlay
// (go help build), so the tree is not touched; one that does not compile is drawn
// again. A test that fails, crashes or hangs kills it.
//
// What survives lacks a test, or is equivalent: no caller can tell it from the
// code as it is. Those are listed in equivalent.txt with the reason, by file,
// function and lines rather than by number; an entry that fits the code no
// more is an error. The approach is that of DeMillo, Lipton and Sayward, "Hints
// on Test Data Selection", Computer 11(4), 1978.
//
// The judges are a package's own tests, those of the engines that use it, the
// duels and corpora among them (package rc), the packet scripts on the engines and
// on a whole device, and last the simulation with one seed for each network. Test
// binaries run with -short: what runs tshark does not judge. A mutant that is
// killed costs about 3 s of one core, one that survives 15. What hangs is killed:
// on a busy machine more -timeout keeps slow tests from passing for that. An
// interrupt ends the draw and reports what was tried.
package main
