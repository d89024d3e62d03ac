package warc

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots/testkit"
)

// digestOf returns a field with the digest of content.
func digestOf(field, content string) string {
	sum := sha256.Sum256([]byte(content))
	return fmt.Sprintf("%s: sha256:%x", field, sum)
}

const (
	okHead = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
	uri    = "WARC-Target-URI: http://a.test/"
	isHTTP = "Content-Type: application/http; msgtype=response"
)

// response returns a record with these digests of its block and of its payload.
func response(id, block, payload string, lines ...string) string {
	return text(TypeResponse, id, block, append(lines, uri, isHTTP, digestOf("WARC-Block-Digest", block), digestOf("WARC-Payload-Digest", payload))...)
}

func revisit(id, of, payload string) string {
	return text(TypeRevisit, id, okHead, uri, isHTTP, "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest",
		"WARC-Refers-To: <urn:uuid:"+of+">", digestOf("WARC-Block-Digest", okHead), digestOf("WARC-Payload-Digest", payload))
}

// A checkCase is a number of files, and what Check finds in them.
type checkCase struct {
	name   string
	files  []string // a name that ends in ".open" if it begins with "open:"
	want   CheckResult
	faults []string
}

// checkCases returns the cases of TestCheck, with the clauses of ISO 28500:2017.
func checkCases() []checkCase {
	info := text(TypeWarcinfo, "info", "software: x\r\n", digestOf("WARC-Block-Digest", "software: x\r\n"))
	page := response("page", okHead+"body", "body")
	const chunks = "4\r\nbody\r\n0\r\n\r\n"
	chunked := strings.Replace(okHead, "Content-Type", "Transfer-Encoding: chunked\r\nContent-Type", 1) + chunks
	return []checkCase{
		{"an exchange and its revisit in another file", []string{
			zip(info) + zip(page) + zip(text(TypeRequest, "request", "GET / HTTP/1.1\r\n\r\n", uri, "Content-Type: application/http", "WARC-Concurrent-To: <urn:uuid:page>")) +
				zip(text(TypeMetadata, "meta", "id: 1\r\n", "WARC-Concurrent-To: <urn:uuid:page>", "WARC-Concurrent-To: <urn:uuid:request>")),
			revisit("again", "page", "body"),
		}, CheckResult{Files: 2, Records: 5, Digests: 4, Bare: 2}, nil},
		{"a reference to a later record", []string{revisit("again", "page", "body"), page}, CheckResult{Files: 2, Records: 2, Digests: 3}, nil},
		{"a chunked body, digest of the entity", []string{response("page", chunked, "body")}, CheckResult{Files: 1, Records: 1, Digests: 2}, nil},
		{"a chunked body, digest with the chunks", []string{response("page", chunked, chunks)}, CheckResult{Files: 1, Records: 1, Digests: 2}, nil},
		{"a chunked body, digest of something else", []string{response("page", chunked, "bod")}, CheckResult{Files: 1, Records: 1, Digests: 1}, []string{"the payload has not the digest sha256:"}},
		{"a payload without HTTP", []string{text(TypeResource, "r", "body", uri, digestOf("WARC-Payload-Digest", "body"))}, CheckResult{Files: 1, Records: 1, Digests: 1}, nil},
		{"a truncated head", []string{response("page", "HTTP/1.1", "", "WARC-Truncated: disconnect")}, CheckResult{Files: 1, Records: 1, Digests: 1}, nil},
		{"records that share a member", []string{zip(info + page)}, CheckResult{Files: 1, Records: 2, Digests: 3, Shared: 2}, nil},
		{"an unknown digest", []string{text(TypeResource, "r", "x", uri, "WARC-Block-Digest: blake3:00")}, CheckResult{Files: 1, Records: 1, Unknown: 1, Bare: 1}, nil},
		{"a removed original", []string{revisit("again", "page", "body")}, CheckResult{Files: 1, Records: 1, Digests: 1, Missing: 1}, nil},
		{"a file that is being written", []string{"open:" + info + text(TypeRequest, "q", "GET / HTTP/1.1\r\n\r\n", uri, "WARC-Concurrent-To: <urn:uuid:later>") + page[:50]},
			CheckResult{Files: 1, Records: 2, Digests: 1, Bare: 1, Growing: 1}, nil},
		{"a file that a crash has cut between two records", []string{info + text(TypeRequest, "q", "", uri, "WARC-Concurrent-To: <urn:uuid:later>"), page},
			CheckResult{Files: 2, Records: 3, Digests: 3, Cut: 1}, nil},

		{"a changed payload (5.9)", []string{strings.Replace(page, "body\r\n\r\n", "bodY\r\n\r\n", 1)}, CheckResult{Files: 1, Records: 1},
			[]string{"0: record at offset 0: the block has not the digest", "the payload has not the digest"}},
		{"a changed head of HTTP", []string{strings.Replace(page, "text/html", "text/htmL", 1)}, CheckResult{Files: 1, Records: 1, Digests: 1}, []string{"the block has not the digest"}},
		{"a torn file", []string{info + page[:50]}, CheckResult{Files: 1, Records: 1, Digests: 1}, []string{fmt.Sprintf("0: offset %d: the file ends inside a record", len(info))}},
		{"no file of this format", []string{"hello"}, CheckResult{Files: 1}, []string{"the file ends inside a record"}},
		{"an invalid digest (5.8)", []string{text(TypeResource, "r", "x", uri, "WARC-Block-Digest: sha256:00")}, CheckResult{Files: 1, Records: 1, Bare: 1}, []string{`invalid digest: "sha256:00"`}},
		{"no HTTP head", []string{response("page", "body", "body")}, CheckResult{Files: 1, Records: 1, Digests: 1}, []string{"no whole HTTP head"}},
		{"an ID twice (5.2)", []string{page + page}, CheckResult{Files: 1, Records: 2, Digests: 4}, []string{"an earlier record of the file has the same ID"}},
		{"the same file twice", []string{page, page}, CheckResult{Files: 2, Records: 2, Digests: 4}, nil},
		{"a reference to nothing (5.7)", []string{text(TypeMetadata, "m", "", "WARC-Concurrent-To: <urn:uuid:no>") + page}, CheckResult{Files: 1, Records: 2, Digests: 2}, []string{"no record has the ID in WARC-Concurrent-To"}},
		{"another payload than the original's (6.7.2)", []string{page + revisit("again", "page", "other")}, CheckResult{Files: 1, Records: 2, Digests: 3}, []string{"another payload than that of the record in WARC-Refers-To"}},
		{"no ID, type or date (5.2, 5.4, 5.5)", []string{"WARC/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n"}, CheckResult{Files: 1, Records: 1}, []string{"no WARC-Type", "no WARC-Record-ID", "no WARC-Date"}},
		{"no target URI (5.12)", []string{text(TypeResource, "r", "")}, CheckResult{Files: 1, Records: 1}, []string{"must have WARC-Target-URI"}},
		{"a revisit without a profile (6.7)", []string{text(TypeRevisit, "r", "", uri)}, CheckResult{Files: 1, Records: 1}, []string{"must have WARC-Profile"}},
		{"an invalid ID and date", []string{"WARC/1.1\r\nWARC-Type: x\r\nWARC-Record-ID: 1\r\nWARC-Date: today\r\nContent-Length: 0\r\n\r\n\r\n\r\n"},
			CheckResult{Files: 1, Records: 1}, []string{"invalid WARC-Record-ID", "invalid WARC-Date"}},
		{"a fraction in WARC 1.0 (5.4)", []string{strings.Replace(text("x", "1", ""), "WARC/1.1", "WARC/1.0", 1)}, CheckResult{Files: 1, Records: 1}, []string{"WARC 1.0 has whole seconds"}},
		{"a field twice", []string{text("x", "1", "", "WARC-Filename: a", "WARC-Filename: b")}, CheckResult{Files: 1, Records: 1}, []string{"more than one WARC-Filename"}},
		{"many faults", []string{strings.Repeat("WARC/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n", 10)}, CheckResult{Files: 1, Records: 10, More: 10}, slices.Repeat([]string{"no WARC-"}, maxFaults)},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range checkCases() {
		check := NewCheck()
		for i, file := range c.files {
			file, open := strings.CutPrefix(file, "open:")
			check.File(fmt.Sprint(i), strings.NewReader(file), open)
		}
		got := check.Result()
		faults := got.Faults
		got.Faults = nil
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %v\n%s", c.name, faults, diff)
		}
		if len(faults) != len(c.faults) {
			t.Errorf("%s: faults %v, want %q", c.name, faults, c.faults)
			continue
		}
		for i, fault := range faults {
			if !strings.Contains(fault.Error(), c.faults[i]) {
				t.Errorf("%s: %v, want %q", c.name, fault, c.faults[i])
			}
		}
	}
}

// TestCheckHeap: references to records that are not there use no memory beyond a bound.
func TestCheckHeap(t *testing.T) {
	testkit.Long(t, "volume")
	head := text(TypeMetadata, "m", "", slices.Repeat([]string{"WARC-Concurrent-To: <urn:uuid:none>"}, 500)...)
	const records = 2 * maxWaiting / 500
	check := NewCheck()
	before := testkit.Heap()
	check.File("a", strings.NewReader(strings.Repeat(head, records)), false)
	if used := testkit.Heap() - before; used > 64<<20 {
		t.Errorf("%d bytes of memory", used)
	}
	if got := check.Result(); got.Ignored != maxWaiting || got.More == 0 {
		t.Errorf("%d of %d references ignored, %d faults", got.Ignored, 500*records, maxFaults+got.More)
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"2026-11-25T10:00:00Z":           "2026-11-25T10:00:00Z",
		"2026-11-25T10:00:00.123456789Z": "2026-11-25T10:00:00.123456789Z",
		"2026-11-25T10:00Z":              "2026-11-25T10:00:00Z",
		"2026-11-25":                     "2026-11-25T00:00:00Z",
		"2026":                           "2026-01-01T00:00:00Z",
		"2026-11-25T10:00:00+01:00":      "",
		"20261125100000":                 "",
		"":                               "",
	} {
		got, err := Header{{"WARC-Date", value}}.Date()
		if shown := got.Format("2006-01-02T15:04:05.999999999Z07:00"); (err == nil) != (want != "") || err == nil && shown != want {
			t.Errorf("%q: %s, %v; want %s", value, shown, err, want)
		}
	}
}

// FuzzCheck: no file makes the Check panic, and a file without faults has none when it is split
// into its records.
func FuzzCheck(f *testing.F) {
	page := response("page", okHead+"body", "body")
	for _, file := range []string{page + revisit("again", "page", "body"), zip(page), strings.Replace(page, "body\r\n\r\n", "bodY\r\n\r\n", 1),
		response("page", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "body")} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		check := NewCheck()
		check.File("a", strings.NewReader(string(file)), false)
		whole := check.Result()
		if len(whole.Faults) > 0 {
			return
		}
		all, _, err := readAll(t, strings.NewReader(string(file)))
		if err != nil {
			t.Fatal(err)
		}
		parts := NewCheck()
		for _, rec := range all {
			if rec.Size == 0 {
				return
			}
			parts.File("a", strings.NewReader(string(file[rec.Offset:rec.Offset+rec.Size])), false)
		}
		got := parts.Result()
		got.Files = whole.Files
		if diff := cmp.Diff(whole, got); len(all) > 0 && diff != "" {
			t.Fatal(diff)
		}
	})
}
