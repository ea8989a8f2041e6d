package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme checks that the README shows this program as it is.
func TestReadme(t *testing.T) {
	src, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(src), "package main\n")
	if !strings.Contains(string(readme), "package main\n"+body) {
		t.Error("README.md does not show examples/embed/main.go as it is")
	}
}
