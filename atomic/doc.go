// Package atomic carries out the two atomic operations of the specification on
// a word of registered memory, atomically against the processor's own atomics
// on the same word. Values are in host order here and big-endian on the wire.
//
// Source: IBA Specification Volume 1, clause 9.4.5. Sans-IO.
package atomic
