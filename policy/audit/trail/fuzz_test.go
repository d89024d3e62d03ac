package trail

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A line is the text between line feeds, wherever the bytes come from.
func FuzzReader(f *testing.F) {
	lines := chain(1, 3)
	f.Add(bytes.Join(lines, nil), uint8(1))
	f.Add([]byte("a\n\nb"), uint8(3))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, split uint8) {
		var want []string
		for line := range strings.Lines(string(text)) {
			if cut, whole := strings.CutSuffix(line, "\n"); whole {
				want = append(want, cut)
			} else {
				want = append(want, fmt.Sprintf("stream:%d: %v", len(want)+1, ErrTorn))
			}
		}
		equal(t, texts(t, NewReader("stream", bytes.NewReader(text))), want...)

		// In two files and compressed.
		cut := 0
		for range split {
			if i := bytes.IndexByte(text[cut:], '\n'); i >= 0 {
				cut += i + 1
			}
		}
		if n := len(text); n > 0 && text[n-1] != '\n' {
			return // what that is, other tests say
		}
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		put(t, SegmentPath(path, 1)+gzipExt, string(zip(text[:cut])))
		put(t, path, string(text[cut:]))
		equal(t, texts(t, open(t, path)), want...)
	})
}

// What verifies is what Seal would write.
func FuzzVerify(f *testing.F) {
	for _, c := range faults {
		if c.name != "a line too long" {
			f.Add(bytes.Join(c.change(chain(1, 10)), nil))
		}
	}
	f.Add(bytes.Join(chain(7, 9), nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		res, err := Verify(NewReader("stream", bytes.NewReader(text)), VerifyOptions{})
		if err != nil {
			if f, ok := errors.AsType[*Fault](err); !ok || f.Kind == "" || f.Line == 0 {
				t.Fatalf("%v", err)
			}
			return
		}
		var again []byte
		var hash Hash
		n := uint64(0)
		for line := range bytes.Lines(text) {
			l, err := ReadLink(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 1 {
				hash = l.Prev
			}
			start := len(again)
			again = append(again, line[:bytes.LastIndex(line, []byte(seqName))]...)
			again, hash = AppendLink(again, start, res.First+n-1, hash)
		}
		if !bytes.Equal(again, text) || n != uint64(res.Lines) {
			t.Errorf("%q is taken for whole, %q would be", text, again)
		}
	})
}
