package warc

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots/testkit"
)

// text returns a record with this type, ID and block, and further lines of its head.
func text(kind, id, block string, lines ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "WARC/1.1\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:%s>\r\nWARC-Date: 2026-11-25T10:00:00.5Z\r\n", kind, id)
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s\r\n\r\n", len(block), block)
	return b.String()
}

// zip returns a gzip member.
func zip(content string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, content)
	z.Close()
	return b.String()
}

// A read is a record as tests see it.
type read struct {
	ID           string
	Block        string
	Offset, Size int64
}

// readAll reads a file to its end, or to the first error but io.EOF.
func readAll(t testing.TB, in io.Reader) (all []read, whole int64, err error) {
	t.Helper()
	r, err := NewReader(in)
	testkit.Must(t, err)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, r.Whole(), nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(rec.Block)
		}
		if err != nil {
			return all, r.Whole(), err
		}
		all = append(all, read{rec.ID(), string(content), rec.Offset, rec.Size})
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	one, two, three := text("warcinfo", "1", "software: x\r\n"), text("resource", "2", strings.Repeat("long ", 50_000)), text("metadata", "3", "")
	want := func(parts ...string) (all []read) {
		at := int64(0)
		for i, part := range parts {
			content := []string{"software: x\r\n", strings.Repeat("long ", 50_000), ""}[i]
			all = append(all, read{fmt.Sprintf("<urn:uuid:%d>", i+1), content, at, int64(len(part))})
			at += int64(len(part))
		}
		return all
	}
	shared := want(one, two, three)
	for i := range shared {
		shared[i].Offset, shared[i].Size = 0, 0
	}
	for _, c := range []struct {
		name, file string
		want       []read
	}{
		{"an empty file", "", nil},
		{"plain", one + two + three, want(one, two, three)},
		{"a gzip member for each record (annex D)", zip(one) + zip(two) + zip(three), want(zip(one), zip(two), zip(three))},
		{"records that share a gzip member", zip(one + two + three), shared},
		{"a gzip member without content", zip("") + zip(one), []read{{"<urn:uuid:1>", "software: x\r\n", int64(len(zip(""))), int64(len(zip(one)))}}},
	} {
		for name, in := range map[string]io.Reader{"": strings.NewReader(c.file), ", byte by byte": iotest.OneByteReader(strings.NewReader(c.file))} {
			got, whole, err := readAll(t, in)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%s%s: %v\n%s", c.name, name, err, diff)
			}
			if whole != int64(len(c.file)) {
				t.Errorf("%s%s: whole up to %d of %d bytes", c.name, name, whole, len(c.file))
			}
		}
	}
}

// TestReaderTorn: wherever a file is cut, the records before the cut are read, and the error
// says that the file is torn unless it was cut between two records.
func TestReaderTorn(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(string) string{"plain": func(s string) string { return s }, "gzip": zip} {
		first, second := form(text("warcinfo", "1", "a: b\r\n")), form(text("response", "2", strings.Repeat("0123456789", 20)))
		for cut := range len(first) + len(second) {
			records := 0
			if cut >= len(first) {
				records = 1
			}
			got, whole, err := readAll(t, strings.NewReader((first + second)[:cut]))
			if len(got) != records || whole != int64(records*len(first)) {
				t.Errorf("%s, cut at %d: %d records, whole up to %d; want %d, %d", name, cut, len(got), whole, records, records*len(first))
			}
			if between := cut == 0 || cut == len(first); between != (err == nil) || !between && !errors.Is(err, ErrTorn) {
				t.Errorf("%s, cut at %d of %d: %v", name, cut, len(first), err)
			}
		}
	}
}

func TestReaderMalformed(t *testing.T) {
	t.Parallel()
	good := text("warcinfo", "1", "")
	for _, c := range []struct{ name, file, want string }{
		{"another format", "HTTP/1.1 200 OK\r\n\r\n", "no record of WARC 1.0 or 1.1"},
		{"an unknown version", "WARC/2.0\r\n\r\n", "no record of WARC 1.0 or 1.1"},
		{"a line without CR", "WARC/1.1\nContent-Length: 0\n\n", "does not end with CR LF"},
		{"a control character", "WARC/1.1\r\nX: \x1b[2J\r\nContent-Length: 0\r\n\r\n\r\n\r\n", "has a control character"},
		{"a line without a colon", "WARC/1.1\r\nContent-Length\r\n\r\n", "invalid field"},
		{"a name that is no token", "WARC/1.1\r\nContent Length: 0\r\n\r\n", "invalid field"},
		{"a continuation of nothing", "WARC/1.1\r\n x\r\n\r\n", "the first field has no name"},
		{"no Content-Length", "WARC/1.1\r\nWARC-Type: x\r\n\r\n\r\n\r\n", "one Content-Length, got 0"},
		{"two of them", "WARC/1.1\r\nContent-Length: 0\r\ncontent-length: 0\r\n\r\n\r\n\r\n", "one Content-Length, got 2"},
		{"a negative one", "WARC/1.1\r\nContent-Length: -1\r\n\r\n\r\n\r\n", `invalid Content-Length: "-1"`},
		{"one beyond 63 bits", "WARC/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n", "invalid Content-Length"},
		{"one that is too small", "WARC/1.1\r\nContent-Length: 1\r\n\r\nxy\r\n\r\n", "Content-Length is wrong"},
		{"a head without end", "WARC/1.1\r\nX: " + strings.Repeat("x", maxHead), "the head is longer than"},
		{"many fields", "WARC/1.1\r\n" + strings.Repeat("x:\r\n", maxFields+1), "more than 512 fields"},
		{"a member that ends inside the head", zip(good[:20]) + zip(good[20:]), "the gzip member ends inside a record"},
		{"a member that ends inside the block", zip("WARC/1.1\r\nContent-Length: 9\r\n\r\nxy"), "the gzip member ends inside a record"},
		{"a member that ends inside the empty lines", zip(good[:len(good)-1]), "the gzip member ends inside a record"},
		{"a member whose checksum is wrong", zip(good)[:len(zip(good))-8] + "\x00\x00\x00\x00\x00\x00\x00\x00", "checksum"},
		{"two bytes after a member", zip(good) + "\r\n", "torn"},
		{"text after a member", zip(good) + good, "invalid header"},
	} {
		_, _, err := readAll(t, strings.NewReader(c.file))
		if c.want == "torn" {
			if !errors.Is(err, ErrTorn) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrTorn) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestReaderAfterError: a Reader that has failed does not go on.
func TestReaderAfterError(t *testing.T) {
	t.Parallel()
	r, err := NewReader(strings.NewReader("WARC/1.1\r\nContent-Length: 1\r\n\r\nxy" + text("warcinfo", "1", "")))
	testkit.Must(t, err)
	_, err = r.Next()
	testkit.Must(t, err)
	_, first := r.Next()
	_, second := r.Next()
	if first == nil || first != second {
		t.Errorf("%v, then %v", first, second)
	}
}

// TestReaderSkips: Next leaves the rest of a block out, and the block of a former record has ended.
func TestReaderSkips(t *testing.T) {
	t.Parallel()
	r, err := NewReader(strings.NewReader(zip(text("resource", "1", "0123456789")) + zip(text("resource", "2", "x"))))
	testkit.Must(t, err)
	first, err := r.Next()
	testkit.Must(t, err)
	io.ReadFull(first.Block, make([]byte, 3))
	second, err := r.Next()
	testkit.Must(t, err)
	if rest, err := io.ReadAll(first.Block); len(rest) > 0 || err != nil {
		t.Errorf("the rest of the first block: %q, %v", rest, err)
	}
	if got, err := io.ReadAll(second.Block); string(got) != "x" || err != nil {
		t.Errorf("the second block: %q, %v", got, err)
	}
}

func TestHeader(t *testing.T) {
	t.Parallel()
	r, err := NewReader(strings.NewReader(text("response", "1", "",
		"WARC-Target-URI: <http://a.test/>", "WARC-Protocol: http/1.1", "warc-protocol:tls/1.3", "Content-Type: Application/HTTP; msgtype=response", "Folded: a\r\n\t b ")))
	testkit.Must(t, err)
	rec, err := r.Next()
	testkit.Must(t, err)
	got := []string{rec.Version, rec.Type(), rec.ID(), rec.TargetURI(), rec.Get("WARC-PROTOCOL"), rec.Get("Folded"), fmt.Sprint(rec.All("WARC-Protocol"), rec.IsHTTP(), rec.Length)}
	want := []string{"1.1", "response", "<urn:uuid:1>", "http://a.test/", "http/1.1", "a b", "[http/1.1 tls/1.3] true 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHTTPHead(t *testing.T) {
	t.Parallel()
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n"
	for _, c := range []struct {
		name, block, head, body string
		err                     error
	}{
		{"a response", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n", "body\r\n\r\n", nil},
		{"no fields", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "", nil},
		{"line feeds alone", "HTTP/1.1 200 OK\nA: b\n\nbody", "HTTP/1.1 200 OK\nA: b\n\n", "body", nil},
		{"a line longer than a buffer", long + "body", long, "body", nil},
		{"a head that is not whole", "HTTP/1.1 200 OK\r\nA: b", "HTTP/1.1 200 OK\r\nA: b", "", errNoHead},
		{"an empty block", "", "", "", errNoHead},
	} {
		head, body, err := HTTPHead(strings.NewReader(c.block))
		rest, _ := io.ReadAll(body)
		if string(head) != c.head || string(rest) != c.body || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes, %q, %v", c.name, len(head), rest, err)
		}
	}
	if _, _, err := HTTPHead(strings.NewReader(strings.Repeat("x: y\r\n", maxHTTPHead))); err == nil || !strings.Contains(err.Error(), "longer than 1024 KiB") {
		t.Errorf("a head without end: %v", err)
	}
}

// TestReaderHeap: a long block, and a short file that claims one, use no memory.
func TestReaderHeap(t *testing.T) {
	const length = 64 << 20
	head := fmt.Sprintf("WARC/1.1\r\nContent-Length: %d\r\n\r\n", length)
	zeros := io.LimitReader(zeroes{}, length)
	before := testkit.Heap()
	r, err := NewReader(io.MultiReader(strings.NewReader(head), zeros, strings.NewReader("\r\n\r\nWARC/1.1\r\nContent-Length: 9223372036854775807\r\n\r\n")))
	testkit.Must(t, err)
	for range 2 {
		_, err = r.Next()
		testkit.Must(t, err)
	}
	if _, err = r.Next(); !errors.Is(err, ErrTorn) {
		t.Errorf("%v, want ErrTorn", err)
	}
	if grown := testkit.Heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes of memory for a block of %d", grown, length)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzReader: no file makes the Reader panic or use a head beyond its bounds; each record that
// has a size can be read alone; and what the Reader calls whole is read without an error.
func FuzzReader(f *testing.F) {
	one, two := text("warcinfo", "1", "software: x\r\n"), text("response", "2", "HTTP/1.1 200 OK\r\n\r\nbody", "Content-Type: application/http")
	for _, file := range []string{one + two, zip(one) + zip(two), zip(one + two), one + two[:40], zip(one) + zip(two)[:40], "WARC/1.0\r\nContent-Length: 9223372036854775807\r\n\r\n"} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		all, whole, err := readAll(t, bytes.NewReader(file))
		if whole > int64(len(file)) || err == nil && whole != int64(len(file)) {
			t.Fatalf("whole up to %d of %d bytes, error %v", whole, len(file), err)
		}
		again, _, err := readAll(t, bytes.NewReader(file[:whole]))
		if err != nil {
			t.Fatalf("the whole part: %v", err)
		}
		for i, rec := range all {
			if rec.Size == 0 {
				continue
			}
			alone, _, err := readAll(t, bytes.NewReader(file[rec.Offset:rec.Offset+rec.Size]))
			if err != nil || len(alone) != 1 || alone[0].Block != rec.Block || again[i] != rec {
				t.Fatalf("record %d alone: %d records, %v", i, len(alone), err)
			}
		}
	})
}
