package trail

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// lengths of tails, and of lines: whatever may fall on the edge of what is read at once.
var lengths = []int{0, 1, 100, MaxLine - 1, MaxLine, MaxLine + 1, 2*MaxLine - 1, 2 * MaxLine, 2*MaxLine + 1, 3*MaxLine + 2}

func TestLastLinkBeforeAnyTail(t *testing.T) {
	lengths := lengths
	if testing.Short() {
		lengths = lengths[:6]
	}
	const padded = MaxLine - 240 // with what a line has besides
	for _, pad := range []int{1, padded} {
		one, prev := seal(1, Hash{}, `"client":"x"`)
		two, hash := seal(2, prev, `"client":"`+strings.Repeat("x", pad-1)+`"`)
		if pad == padded && (len(two) > MaxLine+1 || len(two) < MaxLine-100) {
			t.Fatalf("a line of %d bytes tests nothing", len(two))
		}
		text := append(one, two...)
		for _, tail := range lengths {
			for what, filler := range map[string]string{"noughts": "\x00", "lines": "{\"a\":\"quite another log\"}\n"} {
				file := append(bytes.Clone(text), strings.Repeat(filler, tail/len(filler))...)
				l, end, err := LastLink(bytes.NewReader(file), int64(len(file)))
				if err != nil || l.Seq != 2 || l.Hash != hash || end != int64(len(text)) {
					t.Errorf("%d bytes of %s behind a line of %d: %v, %d, %v", tail, what, len(two), l.Seq, end, err)
				}
			}
		}
	}
	for _, size := range lengths[1:] {
		for _, filler := range []string{"\x00", "\n"} {
			if _, _, err := LastLink(strings.NewReader(strings.Repeat(filler, size)), int64(size)); !errors.Is(err, ErrNoChain) {
				t.Errorf("%d bytes without a line: %v", size, err)
			}
		}
	}
}

func TestLastSegmentLink(t *testing.T) {
	one, prev := seal(1, Hash{}, `"client":"x"`)
	two, _ := seal(2, prev, `"client":"x"`)
	whole := string(one) + string(two)
	for name, c := range map[string]struct {
		files map[uint64]string // by their first line
		want  uint64
	}{
		"none":                      {nil, 0},
		"whole":                     {map[uint64]string{1: whole}, 2},
		"the newest counts":         {map[uint64]string{1: string(one), 2: string(two)}, 2},
		"noughts, as power is lost": {map[uint64]string{1: whole + strings.Repeat("\x00", 3<<20)}, 2},
		"noughts for the last line": {map[uint64]string{1: string(one) + strings.Repeat("\x00", len(two))}, 1},
		"nothing in the newest":     {map[uint64]string{1: whole, 3: ""}, 2},
		"no line in the newest":     {map[uint64]string{1: whole, 3: "hello\n{}"}, 2},
	} {
		synctest.Test(t, func(t *testing.T) { // the reader waits for the rest of a torn line
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			for first, text := range c.files {
				if err := os.WriteFile(SegmentPath(path, first), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := LastSegmentLink(path); err != nil || got.Seq != c.want {
				t.Errorf("%s: %d, %v; want %d", name, got.Seq, err, c.want)
			}
		})
	}
}
