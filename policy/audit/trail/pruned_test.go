package trail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// versioned makes lines from number first on whose writer says which files it removes.
// Some of them are other lines than a request's.
func versioned(first, last uint64, others map[uint64]string) (lines [][]byte) {
	prev := Hash{}
	if first > 1 {
		prev = Hash{1}
	}
	for seq := first; seq <= last; seq++ {
		members := fmt.Sprintf(`"client":"c%d"`, seq)
		if other, ok := others[seq]; ok {
			members = other
		}
		var line []byte
		line, prev = seal(seq, prev, members+VersionMember)
		lines = append(lines, line)
	}
	return lines
}

func pruned(first, last uint64) string {
	return fmt.Sprintf(`"kind":"event","event":"pruned","first_seq":%d,"last_seq":%d`, first, last)
}

// TestVerifyMissingBeginning: what is not there of the beginning has to be known, or
// said to be removed, unless an earlier version wrote the trail.
func TestVerifyMissingBeginning(t *testing.T) {
	const missing = "seq 50: missing: seq %s before it, and no line says that the proxy removed them"
	none := fmt.Sprintf(missing, "1 to 49 (49 lines)")
	for _, c := range []struct {
		name   string
		lines  [][]byte
		from   uint64
		want   string // "": it is intact
		pruned bool
	}{
		{"all is there", versioned(1, 9, nil), 0, "", false},
		{"nothing is said", versioned(50, 59, nil), 0, none, false},
		{"all is said", versioned(50, 59, map[uint64]string{59: pruned(1, 49)}), 0, "", true},
		{"the last is said, as of those before the lines are gone too", versioned(50, 59, map[uint64]string{51: pruned(41, 49)}), 0, "", true},
		{"more is said than is gone, as after a crash", versioned(50, 59, map[uint64]string{55: pruned(1, 52)}), 0, "", true},
		{"only the first are said", versioned(50, 59, map[uint64]string{55: pruned(1, 48)}), 0, none, false},
		{"others are said", versioned(50, 59, map[uint64]string{55: pruned(50, 52)}), 0, none, false},
		{"no number is said", versioned(50, 59, map[uint64]string{55: `"kind":"event","event":"pruned"`}), 0, none, false},
		{"a stranger says it", versioned(50, 59, map[uint64]string{55: `"user_agent":"\"event\":\"pruned\",\"first_seq\":1,\"last_seq\":49"`}), 0, none, false},
		{"an earlier version", chain(50, 59), 0, "", false},
		{"an earlier version, and what it is to begin with is not there", chain(50, 59), 49, fmt.Sprintf(missing, "49 (1 line)"), false},
		{"it begins as is known", versioned(50, 59, nil), 50, "", false},
		{"it begins before that", versioned(50, 59, nil), 51, "", false},
		{"it is known to begin before", versioned(50, 59, nil), 40, fmt.Sprintf(missing, "40 to 49 (10 lines)"), false},
		{"earlier lines are not judged", slices.Concat(versioned(3, 4, nil), versioned(50, 59, nil)), 50, "", false},
		{"what is no line is not judged either", slices.Concat([][]byte{[]byte("hello\n")}, versioned(50, 59, nil)), 50, "", false},
		{"no later line is there", versioned(50, 59, nil), 60, "seq 60: missing: the audit has no line with this seq or a later one", false},
		{"it is known to begin before, and was removed", versioned(50, 59, map[uint64]string{59: pruned(1, 49)}), 40, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := bytes.Join(c.lines, nil)
			res, err := Verify(NewReader("x", bytes.NewReader(text)), VerifyOptions{From: c.from})
			if c.want == "" && err != nil || c.want != "" && (err == nil || strings.TrimPrefix(strings.TrimPrefix(err.Error(), "x:1: "), "x: ") != c.want) || res.Pruned != c.pruned {
				t.Errorf("%v, pruned %v; want %s", err, res.Pruned, c.want)
			}
			if c.from > 0 {
				return
			}
			n := 0
			_, fault, err := VerifyEach(NewReader("x", bytes.NewReader(text)), func(Line, error) { n++ })
			if (fault != nil) != (c.want != "") || err != nil || n != len(c.lines) {
				t.Errorf("%d lines are handed on; %v, %v", n, fault, err)
			}
		})
	}
}

// TestVerifyFilesTakenAway: somebody has removed files, or emptied them.
func TestVerifyFilesTakenAway(t *testing.T) {
	lines := versioned(1, 12, nil)
	path := trailOf(t, lines, -4, 4, 4)
	if err := os.Remove(SegmentPath(path, 1) + gzipExt); err != nil {
		t.Fatal(err)
	}
	check(t, path, SegmentPath(path, 5), 1, "seq 5: missing: seq 1 to 4 (4 lines) before it, and no line says")

	path = trailOf(t, lines, 4, 4, 4)
	if err := os.Truncate(SegmentPath(path, 1), 0); err != nil {
		t.Fatal(err)
	}
	check(t, path, SegmentPath(path, 5), 1, "seq 5: missing: seq 1 to 4 (4 lines) before it, and no line says")

	path = trailOf(t, lines[5:], 7)
	check(t, path, path, 1, "seq 6: missing: seq 1 to 5 (5 lines) before it, and no line says")
}

// TestVerifyFilesRemovedMeanwhile: the line about the removal may come after the lines
// that are read.
func TestVerifyFilesRemovedMeanwhile(t *testing.T) {
	for _, counts := range [][]int{{4, 4, 4}, {12}} {
		path := trailOf(t, versioned(1, 12, nil), counts...)
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.bound(); err != nil {
			t.Fatal(err)
		}
		if len(counts) > 1 {
			err = os.Remove(SegmentPath(path, 1))
		} else {
			err = errors.Join(os.WriteFile(SegmentPath(path, 5), bytes.Join(versioned(5, 12, nil), nil), 0o600), os.Remove(path))
		}
		if err != nil {
			t.Fatal(err)
		}
		v := verifier{r: r}
		res, err := v.lines()
		if err != nil || res.First != 5 || !res.Removed {
			t.Errorf("%v: %+v, %v", counts, res, err)
		}
	}
}

// TestVerifyPrunedTrail: a trail as a proxy leaves it, in which each event is in a later
// file than the lines it is about.
func TestVerifyPrunedTrail(t *testing.T) {
	lines := versioned(1, 16, map[uint64]string{13: pruned(1, 4), 14: pruned(5, 8)})
	path := trailOf(t, lines, -4, -4, 4, 4)
	for _, first := range []uint64{1, 5} {
		if err := os.Remove(SegmentPath(path, first) + gzipExt); err != nil {
			t.Fatal(err)
		}
		res, err := verify(t, path, Anchor{})
		if err != nil || !res.Pruned || res.First != first+4 || res.Events != 2 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if err := os.Remove(SegmentPath(path, 9)); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(t, path, Anchor{}); err == nil || !strings.Contains(err.Error(), "seq 13: missing: seq 1 to 12 (12 lines) before it") {
		t.Errorf("the next taken away by somebody: %v", err)
	}
}
