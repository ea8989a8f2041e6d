package script

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shifts put the scripts' PSN 100 where nothing wraps, where the PSN wraps
// within the first message, at its first packet, and where its highest bit
// turns. B33.
var shifts = []uint32{0, 0xfffffe - 100, 0xffffff - 100, 0x7fffff - 100}

func load(t testing.TB) (out []*Script) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.pkt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(f, string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Every script, on this module's engines; package device runs those about a
// device alone.
func TestScripts(t *testing.T) {
	for _, s := range load(t) {
		plain := s.Run(Options{})
		if errors.Is(plain, ErrOther) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(s.File), ".pkt"), func(t *testing.T) {
			if len(s.Rules) == 0 || s.Title == "" {
				t.Errorf("%s says no rule, or has no title", s.File)
			}
			if plain != nil {
				t.Fatal(plain)
			}
			for _, shift := range shifts {
				if err := s.Run(Options{Shift: shift}); err != nil {
					t.Fatalf("shifted by %#x: %v", shift, err)
				}
			}
		})
	}
}

// short is a queue pair whose link takes one packet at a time, and gives the
// rest back.
type short struct{ Subject }

func (s short) Transmit(now int64, limit int) (out []Out) {
	for limit < 0 || len(out) < limit {
		one := s.Subject.Transmit(now, 1)
		if len(one) == 0 {
			return out
		}
		out = append(out, one...)
	}
	return append(out, s.Subject.Transmit(now, 0)...)
}

// Every script on a link that takes one packet at a time: what is given back is
// sent again, and nothing else changes.
func TestShortLink(t *testing.T) {
	for _, s := range load(t) {
		make := func(s *Setup) (Subject, error) {
			e, err := Engine(s)
			return short{e}, err
		}
		if err := s.Run(Options{Make: make}); err != nil && !errors.Is(err, ErrOther) {
			t.Error(err)
		}
	}
}
