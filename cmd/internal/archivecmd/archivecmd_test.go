package archivecmd

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/robots/testkit"
)

// record returns a record of 2026-11-25 with digests. fields are further lines of its head.
func record(kind, id, clock, block string, fields ...string) string {
	digest := func(name, of string) string {
		sum := sha256.Sum256([]byte(of))
		return fmt.Sprintf("%s: sha256:%x", name, sum)
	}
	head := append([]string{"WARC/1.1", "WARC-Type: " + kind, "WARC-Record-ID: <urn:uuid:" + id + ">", "WARC-Date: 2026-11-25T" + clock + "Z", digest("WARC-Block-Digest", block)}, fields...)
	if _, payload, ok := strings.Cut(block, "\r\n\r\n"); ok && kind == "response" {
		head = append(head, digest("WARC-Payload-Digest", payload))
	}
	return strings.Join(head, "\r\n") + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n", len(block), block)
}

// zip returns each record in a gzip member of its own.
func zip(records ...string) string {
	var b bytes.Buffer
	for _, r := range records {
		z := gzip.NewWriter(&b)
		z.Write([]byte(r))
		z.Close()
	}
	return b.String()
}

// testFiles are an archive with three files, of which one is being written, and files that do not
// belong to it.
func testFiles() map[string]string {
	const (
		page    = "WARC-Target-URI: http://a.test/page"
		other   = "WARC-Target-URI: http://a.test/other?b&a"
		message = "Content-Type: application/http; msgtype="
		ok      = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nServer: s\r\n\r\n"
	)
	return map[string]string{
		"a-1.warc.gz": zip(record("warcinfo", "i1", "10:00:00", "software: x\r\n"),
			record("request", "q1", "10:00:01", "GET /page HTTP/1.1\r\nHost: a.test\r\n\r\n", page, message+"request", "WARC-Concurrent-To: <urn:uuid:r1>"),
			record("response", "r1", "10:00:01", ok+"first\x00\x1b[2J", page, message+"response"),
			record("metadata", "m1", "10:00:01", "decision: allow\r\nid: ab12cd34-1\r\n", page, "WARC-Concurrent-To: <urn:uuid:r1>", "Content-Type: application/warc-fields")),
		"a-2.warc": record("response", "r2", "11:00:00", ok+"second", page, message+"response") +
			record("revisit", "v1", "11:00:01", "HTTP/1.1 203 Again\r\n\r\n", other, message+"response", "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/identical-payload-digest", "WARC-Refers-To: <urn:uuid:r1>") +
			record("revisit", "v2", "11:00:02", "", "WARC-Target-URI: http://a.test/gone", "WARC-Profile: x", "WARC-Refers-To: <urn:uuid:gone>", "WARC-Refers-To-Target-URI: http://a.test/gone", "WARC-Refers-To-Date: 2026-01-01T00:00:00Z") +
			record("resource", "f1", "11:00:03", "file", "WARC-Target-URI: ftp://a.test/", "Content-Type: text/plain", "WARC-Truncated: length") +
			record("response", "c1", "11:00:04", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "WARC-Target-URI: http://b.test/", message+"response"),
		"a-3.warc.gz.open": zip(record("response", "r3", "12:00:00", ok+"third", page, message+"response")) + zip(record("metadata", "m3", "12:00:00", "", "Content-Type: application/warc-fields"))[:50],
		"a-0.warc.gz.torn": "WARC/1.1", "notes.txt": "",
	}
}

// put writes the files to a new directory.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// run runs the command archive.
func run(args ...string) (status int, stdout, stderr string) {
	var out, errOut strings.Builder
	status = cli.Execute(context.Background(), Command(), args, strings.NewReader(""), &out, &errOut)
	return status, out.String(), errOut.String()
}

func TestGet(t *testing.T) {
	t.Parallel()
	dir := put(t, testFiles())
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nServer: s\r\n\r\n"
	for _, c := range []struct {
		name           string
		args           []string
		status         int
		stdout, stderr string // all of stdout, part of stderr
	}{
		{"the newest capture", []string{"http://a.test/page"}, 0, "third", ""},
		{"a fragment", []string{"http://a.test/page#x"}, 0, "third", ""},
		{"up to a time", []string{"--at", "2026-11-25T11:00:00Z", "http://a.test/page"}, 0, "second", ""},
		{"up to an earlier time", []string{"--at", "2026-11-25T11:59:59+01:00", "http://a.test/page"}, 0, "first\x00\x1b[2J", ""},
		{"with its head", []string{"--head", "http://a.test/page"}, 0, head + "third", ""},
		{"a revisit", []string{"http://a.test/other?b&a"}, 0, "first\x00\x1b[2J", ""},
		{"a revisit with its head", []string{"--head", "http://a.test/other?b&a"}, 0, "HTTP/1.1 203 Again\r\n\r\nfirst\x00\x1b[2J", ""},
		{"a chunked body, and a URL without a path", []string{"http://b.test"}, 0, "body", ""},
		{"a truncated resource", []string{"ftp://a.test/"}, 0, "file", "robotsproxy: the payload is not complete (WARC-Truncated: length)\n"},
		{"a WARC-Record-ID", []string{"<urn:uuid:r2>"}, 0, "second", ""},
		{"only its UUID", []string{"R1"}, 0, "first\x00\x1b[2J", ""},
		{"that of a request", []string{"--head", "q1"}, 0, "GET /page HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
		{"the ID of the audit", []string{"ab12cd34-1"}, 0, "first\x00\x1b[2J", ""},

		{"a revisit without its original", []string{"http://a.test/gone"}, 1, "", "the payload is that of an earlier record, <urn:uuid:gone>, which the archive does not have any more"},
		{"an unknown URL", []string{"http://a.test/none"}, 1, "", "robotsproxy: no capture of http://a.test/none: robotsproxy archive index"},
		{"nothing so early", []string{"--at", "2026-11-25T09:00:00Z", "http://a.test/page"}, 1, "", "no capture of http://a.test/page up to 2026-11-25T09:00:00Z"},
		{"an unknown ID", []string{"ab12cd34-2"}, 1, "", "no record ab12cd34-2: the proxy may have removed it"},
		{"a time for an ID", []string{"--at", "2026-11-25T09:00:00Z", "r1"}, 2, "", "--at needs a URL"},
		{"no time", []string{"--at", "yesterday", "http://a.test/"}, 2, "", "--at: must be a time such as"},
		{"no argument", nil, 2, "", "expected exactly one URL or ID"},
	} {
		status, stdout, stderr := run(append([]string{"get", "--dir", dir}, c.args...)...)
		if status != c.status || stdout != c.stdout || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
			t.Errorf("%s: status %d, %q, %s\nwant %d, %q, %s", c.name, status, stdout, stderr, c.status, c.stdout, c.stderr)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	files := testFiles()
	dir := put(t, files)
	status, stdout, stderr := run("list", "--dir", dir)
	want := fmt.Sprintf(`FILE              SIZE     RECORDS  FROM                  TO                    TYPES
a-1.warc.gz       1.1 KiB  4        2026-11-25T10:00:00Z  2026-11-25T10:00:01Z  1 metadata, 1 request, 1 response, 1 warcinfo
a-2.warc          2.0 KiB  5        2026-11-25T11:00:00Z  2026-11-25T11:00:04Z  1 resource, 2 response, 2 revisit
a-3.warc.gz.open  %-7s  1        2026-11-25T12:00:00Z  2026-11-25T12:00:00Z  1 response
`, humanize.Bytes(len(files["a-3.warc.gz.open"])))
	if diff := cmp.Diff(want, stdout); diff != "" || status != 0 || stderr != "" {
		t.Errorf("status %d, %s\n%s", status, stderr, diff)
	}
	status, stdout, stderr = run("list", "--dir", dir, "--json")
	line := fmt.Sprintf(`{"file":"a-3.warc.gz.open","open":true,"bytes":%d,"records":1,"from":"2026-11-25T12:00:00Z","to":"2026-11-25T12:00:00Z","types":{"response":1}}`+"\n", len(files["a-3.warc.gz.open"]))
	if status != 0 || stderr != "" || strings.Count(stdout, "\n") != 3 || !strings.HasSuffix(stdout, line) {
		t.Errorf("status %d, %s\n%s", status, stderr, stdout)
	}
}

// TestListDamage: a file that is damaged does not hide the others, and its names cannot move the
// cursor.
func TestListDamage(t *testing.T) {
	t.Parallel()
	files := testFiles()
	files["a-1.warc.gz"] = files["a-1.warc.gz"][:200]
	files["a-2.warc"] = "WARC/1.1\r\nWARC-Type: \u0085\r\nContent-Length: 0\r\n\r\n\r\n\r\n" + "hello\r\n"
	dir := put(t, files)
	status, stdout, stderr := run("list", "--dir", dir)
	for _, want := range []string{"a-1.warc.gz", "1 warcinfo\n", `1 "\u0085"`, "a-3.warc.gz.open"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing:\n%s", want, stdout)
		}
	}
	for _, want := range []string{"a-1.warc.gz: offset ", ": the file ends inside a record\n", "a-2.warc: offset 50: no record of WARC"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing:\n%s", want, stderr)
		}
	}
	if status != 1 {
		t.Errorf("status %d", status)
	}
}

func TestIndex(t *testing.T) {
	t.Parallel()
	files := testFiles()
	files["a-4.warc.gz"] = zip(record("response", "s1", "13:00:00", "HTTP/1.1 200 OK\r\n\r\n", "WARC-Target-URI: http://c.test/", "Content-Type: application/http") + record("warcinfo", "s2", "13:00:00", ""))
	files["a-5.warc"] = "WARC/1.1\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:uuid:x>\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
	status, stdout, stderr := run("index", "--dir", put(t, files))
	var got []string
	for line := range strings.Lines(stdout) {
		key, rest, _ := strings.Cut(line, " ")
		clock, rest, _ := strings.Cut(rest, " ")
		_, place, _ := strings.Cut(rest, `"offset"`)
		got = append(got, key+" "+clock+" "+place)
	}
	rest, ok := len(files["a-2.warc"]), strings.Index(files["a-2.warc"], "WARC/1.1\r\nWARC-Type: revisit")
	want := []string{
		"test,a)/ 20261125110003 :", "test,a)/gone 20261125110002 :", fmt.Sprintf("test,a)/other?a&b 20261125110001 :\"%d\",\"filename\":\"a-2.warc\"}\n", ok),
		"test,a)/page 20261125100001 :", "test,a)/page 20261125110000 :\"0\",", "test,a)/page 20261125120000 :\"0\",\"filename\":\"a-3.warc.gz\"}\n", "test,b)/ 20261125110004 :",
	}
	if len(got) != len(want) || rest == 0 {
		t.Fatalf("%d lines:\n%s", len(got), stdout)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s\nwant %s", got[i], want[i])
		}
	}
	for _, want := range []string{"a-4.warc.gz: no index can name 1 capture", `a-5.warc: record at offset 0: invalid WARC-Date: ""`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing:\n%s", want, stderr)
		}
	}
	if status != 1 {
		t.Errorf("status %d", status)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := run("verify", "--dir", put(t, testFiles()))
	const want = `Each record is whole, has its fields, and no digest is wrong.
records  10 records in 3 files
digests  14 digests right
missing  1 revisit without the original, which the proxy (archive.max_age, archive.max_total_size) or somebody else removed
growing  1 file whose last record the proxy is writing
`
	if diff := cmp.Diff(want, stdout); diff != "" || status != 0 || stderr != "" {
		t.Errorf("status %d, %s\n%s", status, stderr, diff)
	}

	files := testFiles()
	files["a-2.warc"] = strings.Replace(files["a-2.warc"], "second", "Second", 1)
	files["a-3.warc.gz"] = files["a-3.warc.gz.open"]
	dir := put(t, files)
	status, stdout, stderr = run("verify", "--dir", dir)
	for _, want := range []string{"a-2.warc: record at offset 0: the block has not the digest sha256:", "a-2.warc: record at offset 0: the payload has not", "a-3.warc.gz: offset "} {
		if !strings.Contains(stderr, "robotsproxy: "+filepath.Join(dir, want)) {
			t.Errorf("%q is missing:\n%s", want, stderr)
		}
	}
	if status != 1 || stdout != "" {
		t.Errorf("status %d\n%s", status, stdout)
	}
}

// TestExtract: what is copied are the records that are named, and with all the records about them. They may name others that
// were not copied.
func TestExtract(t *testing.T) {
	dir := put(t, testFiles())
	for all, want := range map[bool]string{false: "r1 v1", true: "q1 r1 m1 v1"} {
		var b bytes.Buffer
		testkit.Must(t, Extract(&b, dir, map[string]bool{"<urn:uuid:r1>": true, "<urn:uuid:v1>": true, "<urn:uuid:none>": true}, all))
		var ids []string
		_, err := warc.ForEach(&b, func(rec *warc.Record) error {
			ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(rec.ID(), "<urn:uuid:"), ">"))
			return nil
		})
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("%s, want %s: %v", got, want, err)
		}
	}
	for partial, want := range map[bool]int{true: 0, false: 1} {
		var b bytes.Buffer
		testkit.Must(t, Extract(&b, dir, map[string]bool{"<urn:uuid:q1>": true, "<urn:uuid:r2>": true}, false))
		check := warc.NewCheck()
		check.Partial = partial
		check.File("a", &b, false)
		if res := check.Result(); res.Records != 2 || len(res.Faults) != want {
			t.Errorf("partial %v: %+v", partial, res)
		}
	}
}

// TestFiles: which directory is read, and a file that the proxy has renamed or removed meanwhile.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"no directory", "no archive is configured: set archive.dir", []string{"list"}},
		{"no such directory", "archive: open ", []string{"list", "--dir", filepath.Join(t.TempDir(), "none")}},
		{"a directory without WARC files", "no WARC files in ", []string{"list", "--dir", t.TempDir()}},
	} {
		if status, _, stderr := run(c.args...); status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s", c.name, status, stderr)
		}
	}
	dir := put(t, map[string]string{"a.warc.gz": zip(record("metadata", "m", "10:00:00", ""))})
	cfg := filepath.Join(put(t, map[string]string{"c.yaml": "archive: {dir: " + dir + "}"}), "c.yaml")
	if status, stdout, stderr := run("list", "-c", cfg); status != 0 || !strings.Contains(stdout, "a.warc.gz") {
		t.Errorf("with a configuration: status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := run("list", "-c", cfg, "--dir", t.TempDir()); status != 1 || !strings.Contains(stderr, "no WARC files in ") {
		t.Errorf("--dir does not replace archive.dir: status %d, %s", status, stderr)
	}
	for _, c := range []struct {
		name string
		file file
		want int
	}{
		{"renamed", file{filepath.Join(dir, "a.warc.gz.open"), true}, 1},
		{"removed", file{filepath.Join(dir, "b.warc.gz"), false}, 0},
	} {
		n := 0
		for _, err := range c.file.records(0) {
			testkit.Must(t, err)
			n++
		}
		if n != c.want {
			t.Errorf("%s: %d records, want %d", c.name, n, c.want)
		}
	}
}

// TestEmptyDirectory: --dir with an empty value does not mean archive.dir.
func TestEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a.warc"), []byte(testFiles()["a-2.warc"]), 0o600))
	file := filepath.Join(dir, "robotsproxy.yaml")
	testkit.Must(t, os.WriteFile(file, []byte("archive: {dir: .}\n"), 0o600))
	for _, command := range [][]string{{"list"}, {"get", "http://a.test/page"}, {"verify"}, {"index"}} {
		var out, errOut bytes.Buffer
		status := cli.Execute(t.Context(), Command(), append(command, "-c", file, "--dir", ""), nil, &out, &errOut)
		if status != cli.ExitUsage || out.Len() > 0 || !strings.Contains(errOut.String(), "--dir: empty directory name") {
			t.Errorf("%s: status %d, %q, %q", command, status, out.String(), errOut.String())
		}
	}
}
