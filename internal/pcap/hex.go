package pcap

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
)

// openHex accepts a file whose first lines are comments, blank or hexadecimal.
func (r *Reader) openHex(b *bufio.Reader) error {
	head, _ := b.Peek(512)
	if !hexLike(head) {
		return fmt.Errorf("%w: it begins with % x", ErrFormat, head[:min(len(head), 8)])
	}
	s := bufio.NewScanner(b)
	s.Buffer(make([]byte, 0, 64<<10), 2*maxFrame+2)
	link, line := hexLink(r.name), 0
	r.next = func() (Frame, error) {
		for s.Scan() {
			line++
			t := bytes.TrimSpace(s.Bytes())
			if len(t) == 0 || t[0] == '#' {
				continue
			}
			data := make([]byte, hex.DecodedLen(len(t)))
			if _, err := hex.Decode(data, t); err != nil {
				return Frame{}, fmt.Errorf("line %d: %w", line, err)
			}
			return Frame{Link: link, Data: data, Len: len(data)}, nil
		}
		if err := s.Err(); err != nil {
			return Frame{}, fmt.Errorf("line %d: %w", line+1, err)
		}
		return Frame{}, io.EOF
	}
	return nil
}

// hexLike reports whether the octets look like the beginning of a .hex file:
// up to their last whole line, or all of them when there is one line, nothing
// but comments and hexadecimal digits.
func hexLike(head []byte) bool {
	comment := false
	for line := range bytes.Lines(head) {
		t := bytes.TrimSpace(line)
		if len(t) == 0 {
			continue
		}
		if t[0] == '#' {
			comment = true
			continue
		}
		for _, c := range t {
			if !bytes.ContainsRune([]byte("0123456789abcdefABCDEF"), rune(c)) {
				return false
			}
		}
		return true
	}
	return comment
}
