package replay

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorxe/gorxe/internal/pcap"
)

func TestTmp(t *testing.T) {
	for _, pat := range []string{"*.pcap", "*.hex", "rxe/*.pcap"} {
		files, _ := filepath.Glob("../../../shared/captures/" + pat)
		for _, f := range files {
			r, err := pcap.Open(f)
			if err != nil {
				t.Fatal(err)
			}
			cs, left, err := Read(r)
			if len(left) > 0 || err != nil {
				t.Log(filepath.Base(f), left, err)
			}
			for i, c := range cs {
				for _, s := range []Side{A, B} {
					start := time.Now()
					res, err := Run(c, Options{Side: s})
					if err != nil {
						t.Error(filepath.Base(f), i+1, s, err)
						continue
					}
					t.Log(time.Since(start).Milliseconds(), filepath.Base(f), i+1, c.Ends[A], c.Ends[B], s, c.cm != nil, res.Summary())
					if res.Differences > 0 {
						o, _ := os.Create("/tmp/h/replay-out-" + filepath.Base(f) + "-" + s.String())
						res.Write(o, false)
						o.Close()
					}
				}
			}
		}
	}
}
