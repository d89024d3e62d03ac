package trail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestReadAhead: a fault is found at its line, wherever that is in a batch of lines that are read ahead, and each line is given out
// once and in its order.
func TestReadAhead(t *testing.T) {
	const lines = 5*batchLines + 3
	path, _ := longTrail(t, lines)
	whole, err := os.ReadFile(path)
	testkit.Must(t, err)
	for _, at := range []int{2, batchLines, batchLines + 1, batchLines + 2, 3*batchLines + 1, lines} {
		for kind, change := range map[string]func(all [][]byte) [][]byte{
			"changed": func(all [][]byte) [][]byte {
				all[at-1] = bytes.Replace(all[at-1], []byte("x"), []byte("y"), 1)
				return all
			},
			"missing": func(all [][]byte) [][]byte { return append(all[:at-2], all[at-1:]...) },
			"foreign": func(all [][]byte) [][]byte {
				all[at-1] = []byte("{}\n")
				return all
			},
		} {
			if kind == "missing" && at == 2 {
				continue
			}
			all := bytes.SplitAfter(whole, []byte("\n"))
			testkit.Must(t, os.WriteFile(path, bytes.Join(change(all), nil), 0o600))
			r, err := Open(path)
			testkit.Must(t, err)
			n := 0
			_, err = Verify(r, VerifyOptions{Each: func(_ []byte, l Link) {
				if n++; l.Seq != uint64(n) {
					t.Errorf("%s at %d: seq %d as line %d", kind, at, l.Seq, n)
				}
			}})
			r.Close()
			fault, _ := errors.AsType[*Fault](err)
			line, before := at, at-1
			if kind == "missing" {
				line, before = at-1, at-2
			}
			if fault == nil || fault.Kind != kind || fault.Line != line || n != before {
				t.Errorf("%s at %d: %v, after %d lines", kind, at, err, n)
			}
			// After the fault, all lines are given out, too.
			r, err = Open(path)
			testkit.Must(t, err)
			var given strings.Builder
			_, _, err = VerifyEach(r, func(l Line, _ error) { fmt.Fprintf(&given, "%s\n", l.Text) })
			r.Close()
			if changed, _ := os.ReadFile(path); err != nil || given.String() != string(changed) {
				t.Errorf("%s at %d: %d bytes of %d, %v", kind, at, given.Len(), len(changed), err)
			}
		}
	}
}
