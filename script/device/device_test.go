package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorxe/gorxe/script"
)

// Every script that is not about an engine alone, on a device.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.pkt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := script.Parse(f, string(text))
		if err != nil {
			t.Fatal(err)
		}
		plain := Run(s, script.Options{})
		if errors.Is(plain, script.ErrOther) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(f), ".pkt"), func(t *testing.T) {
			if plain != nil {
				t.Fatal(plain)
			}
			const shift = 0xfffffe - 100
			if err := Run(s, script.Options{Shift: shift}); err != nil {
				t.Fatalf("shifted by %#x: %v", shift, err)
			}
		})
	}
}
