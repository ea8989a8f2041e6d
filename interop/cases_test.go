package main

import "testing"

func TestCasesAreDistinctAndPossible(t *testing.T) {
	for _, reference := range []bool{false, true} {
		seen := map[string]bool{}
		smoke := map[string]bool{}
		for _, c := range allCases(reference) {
			name := c.Name()
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
			if c.Group != groupPingpong && procedures[c.What] == nil {
				t.Errorf("%s: no such procedure", name)
			}
			if (c.Group == groupFaults) != (c.Where != "") {
				t.Errorf("%s: faults are %q", name, c.Where)
			}
			if c.Smoke {
				smoke[c.Group+" "+string(c.Role)+" "+c.Link] = true
			}
		}
		if !reference && len(smoke) < 2*2*2+2 { // pingpong and verbs each way, faults one way of each link
			t.Errorf("the smoke form covers only %v", smoke)
		}
	}
}

// Every size, path MTU, family, role and link that was asked for is there.
func TestMatrixIsComplete(t *testing.T) {
	have := map[string]bool{}
	for _, c := range allCases(false) {
		have[c.Name()] = true
	}
	for _, size := range []string{"1", "2", "1023", "4096", "65536", "1048576"} {
		for _, mtu := range []string{"256", "1024", "4096"} {
			for _, rest := range []string{"client/packet", "client/udp", "server/packet", "server/udp"} {
				for _, v := range []string{"v4", "v6"} {
					if name := "pingpong/size" + size + "/" + v + "/mtu" + mtu + "/" + rest; !have[name] {
						t.Errorf("%s is missing", name)
					}
				}
			}
		}
	}
}

func TestCleanNamesTheCounters(t *testing.T) {
	if err := clean(map[string]uint64{"sent_pkts": 7, "rcvd_rnr_err": 1, "duplicate_request": 2}); err != nil {
		t.Errorf("counters that may move: %v", err)
	}
	for _, k := range quiet {
		if clean(map[string]uint64{k: 1}) == nil {
			t.Errorf("%s moved and nobody minds", k)
		}
	}
}
