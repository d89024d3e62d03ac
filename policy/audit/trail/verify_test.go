package trail

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// chain makes lines of a trail, with their line feeds, from number first on.
func chain(first, last uint64) (lines [][]byte) {
	prev := Hash{}
	if first > 1 {
		prev = Hash{1}
	}
	for seq := first; seq <= last; seq++ {
		var line []byte
		line, prev = seal(seq, prev, fmt.Sprintf(`"client":"c%d"`, seq))
		lines = append(lines, line)
	}
	return lines
}

func seal(seq uint64, prev Hash, members string) ([]byte, Hash) {
	return AppendLink(fmt.Appendf(nil, `{"time":"2026-11-21T05:08:%02d.000000000Z",%s`, seq%60, members), 0, seq, prev)
}

// trailOf puts lines into the files of a trail: so many into each, the last into the
// newest. A negative number is of a file that is compressed.
func trailOf(t testing.TB, lines [][]byte, counts ...int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit.jsonl")
	first := 1
	for i, n := range counts {
		name, text := path, bytes.Join(lines[:max(n, -n)], nil)
		if i < len(counts)-1 {
			name = SegmentPath(path, uint64(first))
		}
		if n < 0 {
			name += gzipExt
			n, text = -n, zip(text)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		first, lines = first+n, lines[n:]
	}
	return path
}

func zip(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

func verify(t testing.TB, path string, since Anchor) (Result, error) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return Verify(r, VerifyOptions{Since: since})
}

func anchorOf(t testing.TB, line []byte) Anchor {
	t.Helper()
	l, err := ReadLink(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	return (&Result{Lines: 1, Last: l}).Anchor()
}

func TestVerifyWholeTrail(t *testing.T) {
	lines := chain(1, 9)
	lines = append(lines[:8], lines[9:]...)
	l, _ := ReadLink(bytes.TrimSpace(lines[7]))
	event, hash := seal(9, l.Hash, `"event":"torn","detail":"a tail","octets":12`)
	lines = append(lines, event)
	for _, counts := range [][]int{{9}, {3, 6}, {-3, 3, 3}, {-1, -2, 6}, {-4, 5, 0}} {
		res, err := verify(t, trailOf(t, lines, counts...), Anchor{})
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, n := range counts {
			if n != 0 {
				files++
			}
		}
		if res.Files != files || res.Lines != 9 || res.First != 1 || res.Last.Seq != 9 || res.Last.Hash != hash || res.Removed {
			t.Errorf("%v: %+v", counts, res)
		}
		if res.From.Second() != 1 || res.To.Second() != 9 {
			t.Errorf("%v: from %v to %v", counts, res.From, res.To)
		}
		if res.Events != 1 || len(res.ListedEvents) != 1 || res.ListedEvents[0].Event != "torn" || res.ListedEvents[0].FileBytes != 12 {
			t.Errorf("%v: events %+v", counts, res.ListedEvents)
		}
		if got, want := res.Anchor().String(), "9:"+hash.String()[:32]; got != want {
			t.Errorf("anchor %s, want %s", got, want)
		}
	}
}

func TestVerifyListsTheFirstEvents(t *testing.T) {
	var lines [][]byte
	var prev Hash
	for seq := uint64(1); seq <= maxListed+5; seq++ {
		line, hash := seal(seq, prev, `"event":"lost","count":1`)
		lines, prev = append(lines, line), hash
	}
	res, err := verify(t, trailOf(t, lines, len(lines)), Anchor{})
	if err != nil || res.Events != maxListed+5 || len(res.ListedEvents) != maxListed {
		t.Errorf("%v, %d events, %d listed", err, res.Events, len(res.ListedEvents))
	}
}

// Lines that count refusals may be many, and are summed up.
func TestVerifySumsUpWhatWasCounted(t *testing.T) {
	var lines [][]byte
	var prev Hash
	for seq, count := range []string{"3", "4", "-1", "9223372036854775807", "1"} {
		line, hash := seal(uint64(seq+1), prev, `"kind":"event","event":"counted","count":`+count)
		lines, prev = append(lines, line), hash
	}
	for n, want := range []int64{0, 3, 7, 7, math.MaxInt64, math.MaxInt64} {
		res, err := verify(t, trailOf(t, lines[:n], n), Anchor{})
		if err != nil || res.Events != 0 || len(res.ListedEvents) > 0 || res.Counted != want {
			t.Errorf("%d lines: %v, %d events, %d counted", n, err, res.Events, res.Counted)
		}
	}
}

// What a stranger says is no event, however it is put.
func TestVerifyKnowsEventsFromStrings(t *testing.T) {
	line, _ := seal(1, Hash{}, `"user_agent":"\"event\":\"torn\""`)
	res, err := verify(t, trailOf(t, [][]byte{line}, 1), Anchor{})
	if err != nil || res.Events != 0 {
		t.Errorf("%v, %d events", err, res.Events)
	}
}

func TestVerifyBeginsBehindRemovedFiles(t *testing.T) {
	res, err := verify(t, trailOf(t, chain(50, 59), 10), Anchor{})
	if err != nil || res.First != 50 || res.Last.Seq != 59 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestVerifyEmptyTrail(t *testing.T) {
	path := trailOf(t, nil, 0)
	if res, err := verify(t, path, Anchor{}); err != nil || res.Lines != 0 || res.Anchor() != (Anchor{}) {
		t.Errorf("%+v, %v", res, err)
	}
	_, err := verify(t, path, anchorOf(t, chain(1, 1)[0]))
	if f, ok := errors.AsType[*Fault](err); !ok || f.Kind != "anchor" {
		t.Errorf("with an anchor: %v", err)
	}
}

// reseal changes a line and gives it a matching hash.
func reseal(lines [][]byte, i int) [][]byte {
	l, _ := ReadLink(bytes.TrimSpace(lines[i]))
	lines[i], _ = seal(l.Seq, l.Prev, `"client":"forged"`)
	return lines
}

func remove(lines [][]byte, from, to int) [][]byte { return append(lines[:from:from], lines[to:]...) }

func insert(lines [][]byte, at int, more ...[]byte) [][]byte {
	return append(append(append([][]byte{}, lines[:at]...), more...), lines[at:]...)
}

var faults = []struct {
	name   string
	change func(l [][]byte) [][]byte
	line   int // in the whole, from 1
	want   string
}{
	{"a member changed", func(l [][]byte) [][]byte { l[3] = bytes.Replace(l[3], []byte("c4"), []byte("c5"), 1); return l }, 4, "seq 4: changed: "},
	{"the hash changed", func(l [][]byte) [][]byte { l[3][len(l[3])-5] ^= 1; return l }, 4, "seq 4: changed: "},
	{"the last line changed", func(l [][]byte) [][]byte { l[9][2] ^= 1; return l }, 10, "seq 10: changed: "},
	{"the hash in capitals", func(l [][]byte) [][]byte {
		copy(l[3][len(l[3])-67:], bytes.ToUpper(l[3][len(l[3])-67:len(l[3])-3]))
		return l
	}, 4, "seq 4: foreign: not a line of the audit"},
	{"changed and sealed again", func(l [][]byte) [][]byte { return reseal(l, 3) }, 5, "seq 5: unlinked: prev is not the hash of seq 4, the line before it"},
	{"one taken out", func(l [][]byte) [][]byte { return remove(l, 3, 4) }, 4, "seq 5: missing: seq 4 (1 line) before it"},
	{"many taken out", func(l [][]byte) [][]byte { return remove(l, 2, 8) }, 3, "seq 9: missing: seq 3 to 8 (6 lines) before it"},
	{"the first taken out", func(l [][]byte) [][]byte { return remove(l, 0, 1) }, 1, "seq 2: missing: seq 1 (1 line) before it"},
	{"two exchanged", func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }, 4, "seq 5: reordered: seq 4 belongs here, but is at "},
	{"one moved to the end", func(l [][]byte) [][]byte { return append(remove(l, 3, 4), l[3]) }, 4, "seq 5: reordered: seq 4 belongs here, but is at "},
	{"one moved to the front", func(l [][]byte) [][]byte { return insert(remove(l, 8, 9), 0, l[8]) }, 1, "seq 9: missing: seq 1 to 8 (8 lines) before it"},
	{"one repeated at once", func(l [][]byte) [][]byte { return insert(l, 4, l[3]) }, 5, "seq 4: repeated: the line follows seq 4, but occurred before"},
	{"one repeated later", func(l [][]byte) [][]byte { return insert(l, 7, l[3]) }, 8, "seq 4: repeated: the line follows seq 7, but occurred before"},
	{"the first repeated", func(l [][]byte) [][]byte { return insert(l, 7, l[0]) }, 8, "seq 1: repeated: the line follows seq 7, but occurred before"},
	{"the whole repeated", func(l [][]byte) [][]byte { return append(l, l...) }, 11, "seq 1: anew: another chain begins after seq 10"},
	{"a chain that begins anew", func(l [][]byte) [][]byte { return append(l[:5], reseal(chain(1, 5), 0)...) }, 6, "seq 1: anew: another chain begins after seq 5"},
	{"a first line with one before it", func(l [][]byte) [][]byte {
		l[0], _ = seal(1, Hash{7}, `"client":"c1"`)
		return l
	}, 1, "seq 1: unlinked: the first line has the hash of a previous line"},
	{"another's line", func(l [][]byte) [][]byte { return insert(l, 5, []byte("hello\n")) }, 6, "seq 6: foreign: not a line of the audit"},
	{"another's first line", func(l [][]byte) [][]byte { return insert(l, 0, []byte("{}\n")) }, 1, "foreign: not a line of the audit"},
	{"an empty line", func(l [][]byte) [][]byte { return insert(l, 5, []byte("\n")) }, 6, "seq 6: foreign: not a line of the audit"},
	{"a line feed taken out", func(l [][]byte) [][]byte { l[3] = bytes.TrimSpace(l[3]); return l }, 4, "seq 5: changed: "},
	{"a line feed put in", func(l [][]byte) [][]byte { return insert(remove(l, 3, 4), 3, l[3][:20], []byte("\n"), l[3][20:]) }, 4, "seq 4: foreign: "},
	{"a line too long", func(l [][]byte) [][]byte { return insert(l, 5, bytes.Repeat([]byte("x"), 3*MaxLine), []byte("\n")) }, 6, "seq 6: foreign: not a line of the audit: longer than 1048576 bytes"},
	{"a last line without an end", func(l [][]byte) [][]byte { l[9] = l[9][:30]; return l }, 10, "seq 10: torn: "},
}

func TestVerifyFindsTheFirstFault(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			path := trailOf(t, nil, 0)
			if err := os.WriteFile(path, bytes.Join(c.change(chain(1, 10)), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.name == "the first taken out" || c.name == "one moved to the front" {
				// What begins later is allowed, unless a name says where it began.
				if err := os.Rename(path, SegmentPath(path, 1)); err != nil {
					t.Fatal(err)
				}
				path2 := SegmentPath(path, 1)
				check(t, path, path2, c.line, c.want)
				return
			}
			check(t, path, path, c.line, c.want)
		})
	}
}

func check(t *testing.T, path, file string, line int, want string) {
	t.Helper()
	var err error
	synctest.Test(t, func(t *testing.T) { _, err = verify(t, path, Anchor{}) }) // it waits for the rest of a torn line
	if want = fmt.Sprintf("%s:%d: %s", file, line, want); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, ok := errors.AsType[*Fault](err); !ok {
		t.Errorf("%T", err)
	}
}

// The files are one chain, compressed or not.
func TestVerifyAcrossFiles(t *testing.T) {
	for _, zipped := range []bool{false, true} {
		sign := 1
		if zipped {
			sign = -1
		}
		name := func(path string, first uint64) string {
			if path = SegmentPath(path, first); zipped {
				path += gzipExt
			}
			return path
		}
		lines := chain(1, 12)
		path := trailOf(t, lines, 4*sign, 4*sign, 4)
		if err := os.Remove(name(path, 5)); err != nil {
			t.Fatal(err)
		}
		check(t, path, path, 1, "seq 9: missing: seq 5 to 8 (4 lines) before it")

		path = trailOf(t, reseal(chain(1, 12), 7), 4*sign, 4*sign, 4)
		check(t, path, path, 1, "seq 9: unlinked: prev is not the hash of seq 8")

		path = trailOf(t, remove(lines, 4, 5), 4*sign, 4*sign, 3)
		check(t, path, name(path, 5), 1, "seq 6: missing: seq 5 (1 line) before it")

		path = trailOf(t, insert(remove(lines, 3, 4), 10, lines[3]), 4*sign, 4*sign, 4)
		check(t, path, name(path, 1), 4, "seq 5: reordered: seq 4 belongs here, but is at "+path+":3")

		path = trailOf(t, append(lines[:7:7], append([][]byte{lines[7][:40]}, lines[8:]...)...), 4*sign, 4*sign, 4)
		check(t, path, name(path, 5), 4, "seq 8: torn: ")
	}
}

// A last line is torn wherever it ends, and nothing but a shorter trail when all of
// it is gone, which only an anchor shows.
func TestVerifyLastLineCut(t *testing.T) {
	lines := chain(1, 3)
	last, since := lines[2], anchorOf(t, lines[2])
	for n := range last {
		lines[2] = last[:n]
		r := NewReader("x", bytes.NewReader(bytes.Join(lines, nil)))
		res, err := Verify(r, VerifyOptions{Since: since})
		want := "x:3: seq 3: torn: "
		if n == 0 {
			want = "x:2: seq 2: anchor: this is the last line, but the anchor is seq 3: the end was cut off, or another audit is in its place"
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || res.Last.Seq != 2 {
			t.Errorf("cut at %d: %v, want %s", n, err, want)
		}
	}
	res, err := Verify(NewReader("x", bytes.NewReader(bytes.Join(lines[:2], nil))), VerifyOptions{})
	if err != nil || res.Last.Seq != 2 {
		t.Errorf("the last line gone: %v", err)
	}
}

// No byte of any line can be changed.
func TestVerifyFindsEveryChange(t *testing.T) {
	text := bytes.Join(chain(1, 3), nil)
	r := NewReader("x", nil)
	for i, was := range text {
		for _, c := range []byte{was ^ 1, was ^ 2, was ^ 4, was ^ 8, was ^ 16, was ^ 32, was ^ 64, was ^ 128, '\n', '0', '"', ' '} {
			if text[i] = c; c == was {
				continue
			}
			r.in.Reset(bytes.NewReader(text))
			r.lastSeq, r.started, r.src.number, r.src.offset, r.src.skipping = 0, false, 0, 0, false
			if _, err := Verify(r, VerifyOptions{}); err == nil {
				t.Errorf("byte %d: %q for %q is not found", i, c, was)
			}
		}
		text[i] = was
	}
	r.in.Reset(bytes.NewReader(text))
	if _, err := Verify(r, VerifyOptions{}); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

func TestVerifyDamagedGzip(t *testing.T) {
	lines := chain(1, 200)
	whole := zip(bytes.Join(lines[:100], nil))
	for name, text := range map[string][]byte{
		"empty":          {},
		"no gzip":        []byte("hello, this is text\n"),
		"cut":            whole[:len(whole)/2],
		"without an end": whole[:len(whole)-4],
		"checksum":       append(append([]byte{}, whole[:len(whole)-8]...), make([]byte, 8)...),
		"tail":           append(append([]byte{}, whole...), "tail"...),
	} {
		path := trailOf(t, lines, -100, 100)
		file := SegmentPath(path, 1) + gzipExt
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := verify(t, path, Anchor{})
		if err == nil || !strings.HasPrefix(err.Error(), file+": decompress: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifySinceAnchor(t *testing.T) {
	lines := chain(1, 12)
	since := anchorOf(t, lines[4])
	other := Anchor{Seq: 5, Hash: strings.Repeat("ab", 16)}
	late := trailOf(t, lines, 5, 7)
	if err := os.Remove(SegmentPath(late, 1)); err != nil {
		t.Fatal(err)
	}
	gone := trailOf(t, lines, 6, 6)
	if err := os.Remove(SegmentPath(gone, 1)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		since      Anchor
		want       string // "": it is intact
	}{
		{"the line is there", trailOf(t, lines, -3, 9), since, ""},
		{"it is the last", trailOf(t, lines, 5), since, ""},
		{"the whole hash", trailOf(t, lines, 12), Anchor{Seq: 12, Hash: hashOf(lines[11])}, ""},
		{"removed, and the one behind it follows it", late, since, ""},
		{"removed, and the one behind it follows another", late, other, ":1: seq 6: anchor: the line does not follow the anchor's line: "},
		{"the one behind it removed too", gone, since, ":1: seq 7: anchor: the audit now begins with this line: between the anchor and this line, seq 6 (1 line) are missing"},
		{"another line", trailOf(t, lines, 12), other, ":5: seq 5: anchor: the line is not the anchor's line: "},
		{"the whole written anew", trailOf(t, chain(2, 12), 11), since, ":4: seq 5: anchor: the line is not the anchor's line"},
		{"the end cut off", trailOf(t, lines, 4), since, ":4: seq 4: anchor: this is the last line, but the anchor is seq 5: the end was cut off, or another audit is in its place"},
		{"broken behind it", trailOf(t, reseal(chain(1, 12), 8), 12), since, ":10: seq 10: unlinked: "},
		{"an anchor that names no hash", trailOf(t, lines, 12), Anchor{Seq: 5}, ":5: seq 5: anchor: "},
	} {
		_, err := verify(t, c.path, c.since)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.path+c.want)) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func hashOf(line []byte) string {
	l, _ := ReadLink(bytes.TrimSpace(line))
	return l.Hash.String()
}

func TestParseAnchor(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 4)
	for _, good := range []string{"1:" + digits[:32], "18446744073709551615:" + digits, "7:" + digits[:33]} {
		if a, err := ParseAnchor(good); err != nil || a.String() != good {
			t.Errorf("%s: %v, %v", good, a, err)
		}
	}
	if a, err := ParseAnchor("7:" + strings.ToUpper(digits)); err != nil || a.Hash != digits {
		t.Errorf("capitals: %v, %v", a, err)
	}
	for _, bad := range []string{
		"", ":", "1", "1:", "1:" + digits[:31], "1:" + digits + "0", "0:" + digits, "-1:" + digits, "x:" + digits, ":" + digits,
		"18446744073709551616:" + digits, "1:" + digits[:31] + "g", "1:" + digits[:31] + "K", "1: " + digits[:32], " 1:" + digits, "1:2:" + digits[:32],
	} {
		if a, err := ParseAnchor(bad); err == nil || a != (Anchor{}) {
			t.Errorf("%q is read as %v", bad, a)
		}
	}
}

// Each line is handed on once, whatever is found of the chain.
func TestVerifyEach(t *testing.T) {
	lines := chain(1, 9)
	for _, c := range []struct {
		name string
		take []int // the lines that are there; -1: no line of a trail
		want string
	}{
		{"whole", []int{1, 2, 3, 4, 5}, ""},
		{"missing", []int{1, 2, 4, 5}, "missing"},
		{"reordered", []int{1, 2, 4, 3, 5}, "reordered"},
		{"repeated", []int{1, 2, 2, 3}, "repeated"},
		{"foreign, and missing", []int{1, -1, 2, 4}, "foreign"},
	} {
		var text bytes.Buffer
		for _, n := range c.take {
			if n < 0 {
				text.WriteString("{}\n")
				continue
			}
			text.Write(lines[n-1])
		}
		text.WriteString("torn")
		want := text.String()
		var got strings.Builder
		r := NewReader("audit.jsonl", &text)
		_, fault, err := VerifyEach(r, func(l Line, err error) {
			got.Write(l.Text)
			if err == nil {
				got.WriteString("\n")
			} else if !errors.Is(err, ErrTorn) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		if got.String() != want || err != nil {
			t.Errorf("%s: %q was handed on, want %q (%v)", c.name, got.String(), want, err)
		}
		if c.want == "" {
			c.want = "torn"
		}
		if fault == nil || fault.Kind != c.want {
			t.Errorf("%s: %v, want one of the kind %s", c.name, fault, c.want)
		}
	}
}

// Verify ends even if a trail is written faster than it is read.
func TestVerifyEnds(t *testing.T) {
	lines := chain(1, 60)
	path := trailOf(t, lines[:4], 2, 2)
	written := 4
	write := func(Line, error) { // a file is full at each line that is read
		if written > 50 {
			return
		}
		if err := os.Rename(path, SegmentPath(path, uint64(written-1))); err != nil {
			t.Fatal(err)
		}
		written += 2
		if err := os.WriteFile(path, bytes.Join(lines[written-2:written], nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	res, fault, err := VerifyEach(r, write)
	if fault != nil || err != nil || res.Lines != 4 || res.Last.Seq != 4 {
		t.Errorf("%+v, %v, %v; want what was there at first", res, fault, err)
	}
}
