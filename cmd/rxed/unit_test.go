package main

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnitExposure: what systemd itself reckons of the unit.
func TestUnitExposure(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is needed (Debian: systemd)")
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", "../../dist/rxed.service").CombinedOutput()
	if strings.Contains(string(out), "unrecognized option") {
		t.Skip("systemd-analyze has no --offline (systemd 250)")
	}
	require.NoError(t, err, "%s", out)
	m := regexp.MustCompile(`Overall exposure level for rxed.service: ([0-9.]+)`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	level, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(t, err)
	require.LessOrEqual(t, level, 3.0)
	t.Logf("exposure %.1f", level)
}
