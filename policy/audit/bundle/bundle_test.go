package bundle

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"robotsproxy/policy/audit/checkpoint"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tree"
	"robotsproxy/robots/testkit"
)

// robotsTxt is the file by which the records are decided.
const robotsTxt = "User-agent: *\nDisallow: /private\n"

var robotsSHA = func() string {
	sum := sha256.Sum256([]byte(robotsTxt))
	return hex.EncodeToString(sum[:])
}()

// start is when the audit begins: a line a second.
var start = time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)

// An auditFile is an audit of some lines, with checkpoints of it.
type auditFile struct {
	lines []byte
	tree  *tree.Tree
	notes []Note
	keys  []checkpoint.Key
}

// newAudit returns an audit with a line for each content, and a checkpoint after each of the numbers.
func newAudit(t testing.TB, contents []string, checkpoints ...int) *auditFile {
	t.Helper()
	a := &auditFile{}
	text, err := checkpoint.NewKey("robotsproxy-test")
	testkit.Must(t, err)
	a.keys, err = checkpoint.ParseKeys([]byte(text))
	testkit.Must(t, err)
	a.tree, err = tree.Create(filepath.Join(t.TempDir(), "audit.tree"), 1)
	testkit.Must(t, err)
	t.Cleanup(func() { a.tree.Close() })
	var salter trail.Salter
	var prev trail.Hash
	for i, content := range contents {
		begin := len(a.lines)
		b := fmt.Appendf(a.lines, `{"time":%q%s%s`, start.Add(time.Duration(i)*time.Second).Format(time.RFC3339), content, trail.VersionMember)
		a.lines, prev = salter.AppendSalted(b, begin, uint64(i+1), prev)
		testkit.Must(t, a.tree.Append([]trail.Hash{prev}))
		if slices.Contains(checkpoints, i+1) {
			c := checkpoint.Checkpoint{
				Origin: "robotsproxy/test", Size: a.tree.Size(), Root: a.tree.CurrentRoot(), Seq: uint64(i + 1), Time: start.Add(time.Duration(i) * time.Second),
			}
			signed, err := c.Sign(a.keys[0].Signer)
			testkit.Must(t, err)
			a.notes = append(a.notes, Note{Checkpoint: c, Text: signed})
		}
	}
	return a
}

// request returns the content of a record.
func request(client, host, path string) string {
	return fmt.Sprintf(`,"id":%q,"client":%q,"method":"GET","url":"https://%s%s","host":%q,"user_agent":"Bot-of-%s/1","decision":"allow","robots_url":"https://%s/robots.txt",`+
		`"robots_fetched":"2026-11-29T09:00:01Z","robots_sha256":%q`, strings.TrimPrefix(path, "/page-"), client, host, path, host, client, host, robotsSHA)
}

// contents are those of an audit of two clients and two hosts.
func contents() []string {
	all := []string{
		`,"kind":"event","event":"start","config_sha256":"aa"`,
		`,"kind":"robots","url":"https://a.test/robots.txt","host":"a.test","user_agent":"robotsproxy","sha256":"` + robotsSHA + `","fetched":"2026-11-29T09:00:01Z"`,
	}
	for i := range 20 {
		all = append(all, request([]string{"lab-a", "lab-b"}[i%2], []string{"a.test", "b.test"}[i/2%2], fmt.Sprintf("/page-%d", i)))
	}
	return all
}

// source returns what a bundle of the audit is made of.
func (a *auditFile) source() *Source {
	return &Source{
		Open:  func() (*trail.Reader, error) { return trail.NewReader("audit.jsonl", bytes.NewReader(a.lines)), nil },
		Trees: []*tree.Tree{a.tree}, Notes: a.notes, Keys: a.keys[0].Public + "\n",
		Snapshot: func(sha string) ([]byte, error) {
			if sha == robotsSHA {
				return []byte(robotsTxt), nil
			}
			return nil, fs.ErrNotExist
		},
		Report: func(lines io.Reader) ([]byte, error) {
			text, err := io.ReadAll(lines)
			return fmt.Appendf(nil, "%d lines", bytes.Count(text, []byte("\n"))), err
		},
	}
}

// ofHost selects the records of a host.
func ofHost(host string) *Options {
	return &Options{Selection: Selection{Host: host}, Made: start, Version: "1.2.3"}
}

func write(t testing.TB, s *Source, o *Options) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := Write(&b, s, o)
	testkit.Must(t, err)
	return b.Bytes()
}

func verify(file []byte, trust *Trust) (*Findings, error) {
	return Verify(bytes.NewReader(file), int64(len(file)), trust)
}

// TestBundle: what was selected is in the bundle, and verifies.
func TestBundle(t *testing.T) {
	a := newAudit(t, contents(), 2, 8, 15, 18)
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"a host":             {func(*Options) {}, "records 10, covered 8, hidden 0, configuration 1, fetches 1, snapshots 1, missing 0, others 0, of the host 0, checkpoints 8 15 18"},
		"a host, completely": {func(o *Options) { o.Complete, o.Until = true, start.Add(17*time.Second) }, "records 8, covered 8, hidden 0, configuration 1, fetches 1, snapshots 1, missing 0, others 8, of the host 0, checkpoints 2 8 15 18"},
		"a client and a host": {
			func(o *Options) {
				o.Client, o.Complete, o.Until = "lab-a", true, start.Add(17*time.Second)
			}, "records 4, covered 4, hidden 0, configuration 1, fetches 1, snapshots 1, missing 0, others 12, of the host 4, checkpoints 2 8 15 18",
		},
		"hidden values": {func(o *Options) { o.Hidden = []string{"client"} }, "records 10, covered 8, hidden 10, configuration 1, fetches 1, snapshots 1, missing 0, others 0, of the host 0, checkpoints 8 15 18"},
		"a time":        {func(o *Options) { o.Since = start.Add(19 * time.Second) }, "records 1, covered 0, hidden 0, configuration 1, fetches 1, snapshots 1, missing 0, others 0, of the host 0, checkpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			o := ofHost("a.test")
			c.change(o)
			file := write(t, a.source(), o)
			keys, err := checkpoint.ParsePublic([]byte(a.keys[0].Public))
			testkit.Must(t, err)
			for _, trust := range []*Trust{{}, {Keys: keys}} {
				f, err := verify(file, trust)
				testkit.Must(t, err)
				got := fmt.Sprintf("records %d, covered %d, hidden %d, configuration %d, fetches %d, snapshots %d, missing %d, others %d, of the host %d, checkpoints",
					f.Records, f.Covered, f.Hidden, f.Events, f.Fetches, f.Snapshots, f.Missing, f.Others, f.OfHost)
				for _, c := range f.Checkpoints {
					if got += fmt.Sprint(" ", c.Seq); !c.Signed {
						t.Errorf("%d is not signed", c.Seq)
					}
				}
				if got != c.want {
					t.Errorf("%s\nwant %s", got, c.want)
				}
			}
			text := allOf(t, file)
			if o.Hidden != nil && strings.Contains(text, `"client":"lab`) || !o.Complete && strings.Contains(text, "b.test") || strings.Contains(text, "page-2\"") {
				t.Errorf("too much:\n%s", text)
			}
		})
	}
}

// allOf returns the content of all files of a bundle.
func allOf(t *testing.T, file []byte) string {
	t.Helper()
	var all strings.Builder
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	testkit.Must(t, err)
	for _, f := range z.File {
		in, err := f.Open()
		testkit.Must(t, err)
		_, err = io.Copy(&all, in)
		testkit.Must(t, err)
	}
	return all.String()
}

// forged returns a bundle in which change has changed files, with a manifest that fits.
func forged(t testing.TB, file []byte, change func(files map[string]string), changeManifest ...func(m *Manifest)) []byte {
	t.Helper()
	files := map[string]string{}
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	testkit.Must(t, err)
	var m Manifest
	for _, f := range z.File {
		in, err := f.Open()
		testkit.Must(t, err)
		text, err := io.ReadAll(in)
		testkit.Must(t, err)
		files[f.Name] = string(text)
	}
	testkit.Must(t, json.Unmarshal([]byte(files[manifestName]), &m))
	delete(files, manifestName)
	change(files)
	for _, change := range changeManifest {
		change(&m)
	}
	var b bytes.Buffer
	out := zip.NewWriter(&b)
	m.Files = nil
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		w, err := out.Create(name)
		testkit.Must(t, err)
		io.WriteString(w, text)
		sum := sha256.Sum256([]byte(text))
		m.Files = append(m.Files, File{name, int64(len(text)), hex.EncodeToString(sum[:])})
	}
	text, err := m.marshal()
	testkit.Must(t, err)
	w, err := out.Create(manifestName)
	testkit.Must(t, err)
	w.Write(text)
	testkit.Must(t, out.Close())
	return b.Bytes()
}

// inOrder sorts lines by their numbers.
func inOrder(lines string) string {
	all := slices.Collect(strings.Lines(lines))
	seq := func(line string) uint64 {
		l, _ := trail.ReadLink([]byte(strings.TrimSuffix(line, "\n")))
		return l.Seq
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(seq(a), seq(b)) })
	return strings.Join(all, "")
}

// hidden returns lines without their values.
func hidden(t *testing.T, lines string) string {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(lines) {
		text, _, err := trail.Hide([]byte(strings.TrimSuffix(line, "\n")), func(string, []byte) bool { return true })
		testkit.Must(t, err)
		all.Write(append(text, '\n'))
	}
	return all.String()
}

// TestForgedBundle: whatever is changed, removed or added is found, even with a manifest that fits.
func TestForgedBundle(t *testing.T) {
	a := newAudit(t, contents(), 2, 8, 15, 20)
	o := ofHost("a.test")
	o.Complete, o.Until = true, start.Add(17*time.Second)
	file := write(t, a.source(), o)
	without := func(name, line string) func(map[string]string) {
		return func(files map[string]string) {
			var kept strings.Builder
			for l := range strings.Lines(files[name]) {
				if !strings.Contains(l, line) {
					kept.WriteString(l)
				}
			}
			if kept.Len() == len(files[name]) {
				t.Errorf("%s has no %s", name, line)
			}
			files[name] = kept.String()
		}
	}
	other := newAudit(t, contents(), 2, 8, 15, 20)
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   string
	}{
		"nothing is changed": {func(map[string]string) {}, ""},
		"a record is changed": {func(files map[string]string) {
			files[recordsName] = strings.Replace(files[recordsName], "page-4", "page-5", 1)
		}, "records.jsonl:3: changed"},
		"a record is left out":     {without(recordsName, "page-4"), "is not complete: it has no line"},
		"another line is left out": {without(linesName, "b.test"), "is not complete: it has no line"},
		"a record is there twice": {func(files map[string]string) {
			files[recordsName] += files[recordsName]
		}, "not in their order"},
		"a record is there in two files": {func(files map[string]string) {
			files[linesName] = inOrder(files[linesName] + files[recordsName])
		}, "a line whose values are not hidden"},
		"an event is there in two files": {func(files map[string]string) {
			files[linesName] = files[eventsName] + files[linesName]
		}, "is in the bundle twice"},
		"a record of another audit": {func(files map[string]string) {
			files[recordsName] = string(bytes.Join(bytes.SplitAfter(other.lines, []byte("\n"))[2:4], nil))
		}, "has"},
		"a checkpoint is not signed by the key": {func(files map[string]string) {
			files["checkpoints/8"] = string(other.notes[1].Text)
		}, "checkpoints/8"},
		"a checkpoint under another name": {func(files map[string]string) { files["checkpoints/8"] = files["checkpoints/15"] }, "checkpoints/8"},
		"a record is called one of others": {func(files map[string]string) {
			files[linesName] = inOrder(files[linesName] + hidden(t, files[recordsName]))
			files[recordsName] = ""
		}, "a record that the selection has"},
		"a robots.txt is changed": {func(files map[string]string) { files[robotsDir+robotsSHA] += "Allow: /\n" }, "its SHA-256 is not its name"},
		"a robots.txt that no record names": {func(files map[string]string) {
			sum := sha256.Sum256(nil)
			files[robotsDir+hex.EncodeToString(sum[:])] = ""
		}, "no record names it"},
		"a file that nothing names": {func(files map[string]string) { files["VERDICT.html"] = "x" }, "is not a file of a bundle"},
		"a time-stamp of nothing":   {func(files map[string]string) { files["timestamps/99.tsr"] = "x" }, "is not a file of a bundle"},
		"no proofs":                 {func(files map[string]string) { delete(files, proofsName) }, `"proofs.json" is missing`},
		"records are no JSON":       {func(files map[string]string) { files[recordsName] = "x\n" }, "records.jsonl:1"},
		"a fetch among the records": {func(files map[string]string) {
			files[recordsName] = files[fetchesName] + files[recordsName]
			files[fetchesName] = ""
		}, "not the record of a request"},
		"another line for a fetch": {func(files map[string]string) {
			files[fetchesName] = files[eventsName] + files[fetchesName]
			files[eventsName] = ""
		}, "not about a fetch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verify(forged(t, file, c.change), &Trust{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestForgedProofs: a bundle whose proofs do not lead to its checkpoints is refused, and without a panic.
func TestForgedProofs(t *testing.T) {
	a := newAudit(t, contents(), 8, 20)
	file := write(t, a.source(), ofHost("a.test"))
	for name, c := range map[string]struct{ old, new, want string }{
		"nothing is changed":               {"{", "{", ""},
		"a node is changed":                {`"1:8": "`, `"1:8": "AAAA`, "not a hash"},
		"a node is another one's":          {`"1:8"`, `"1:9"`, "node 1:8 is missing"},
		"two nodes are swapped":            {`"1:4"`, `"1:8"`, "is not the one"},
		"a place is none":                  {`"1:8"`, `"0:x"`, "not LEVEL:INDEX"},
		"a place is too high":              {`"1:8"`, `"63:0"`, "not LEVEL:INDEX"},
		"a checkpoint is left out":         {"20\n", "21\n", `"checkpoints/21" is missing`},
		"the tree begins before":           {`"first": 1`, `"first": 0`, "covers the lines 1 to 8, but"},
		"the tree begins after its lines":  {`"first": 1`, `"first": 18446744073709551615`, "covers the lines 1 to 8, but"},
		"the checkpoints are out of order": {"8,", "20,", "not in their order"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verify(forged(t, file, func(files map[string]string) {
				if !strings.Contains(files[proofsName], c.old) {
					t.Errorf("%s has no %s", files[proofsName], c.old)
				}
				files[proofsName] = strings.NewReplacer(c.old, c.new, c.new, c.old).Replace(files[proofsName])
			}), &Trust{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// TestForgedRange: a bundle that claims other lines to be complete than it has is refused.
func TestForgedRange(t *testing.T) {
	a := newAudit(t, contents(), 2, 8, 15, 20)
	o := ofHost("a.test")
	o.Complete, o.Until = true, start.Add(17*time.Second)
	file := write(t, a.source(), o)
	for name, c := range map[string]struct {
		claim *Range
		want  string
	}{
		"what it has":                    {&Range{3, 20}, ""},
		"less":                           {nil, ""},
		"from after the first record on": {&Range{9, 20}, "not one of the lines"},
		"to no checkpoint":               {&Range{3, 19}, "not those between two checkpoints"},
		"to the end of all numbers":      {&Range{3, 1<<64 - 1}, "not those between two checkpoints"},
		"nothing":                        {&Range{16, 15}, "not those between two checkpoints"},
	} {
		_, err := verify(forged(t, file, func(map[string]string) {}, func(m *Manifest) { m.Complete = c.claim }), &Trust{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestForgedManifest: each byte of the files is compared with the manifest.
func TestForgedManifest(t *testing.T) {
	a := newAudit(t, contents(), 20)
	file := write(t, a.source(), ofHost("a.test"))
	for name, change := range map[string]func(z *zip.Writer){
		"a further file": func(z *zip.Writer) { z.Create("more") },
		"a file twice":   func(z *zip.Writer) { z.Create(reportName) },
		"a file that is too large for the bundle": func(z *zip.Writer) {
			z.CreateRaw(&zip.FileHeader{Name: "more", Method: zip.Deflate, UncompressedSize64: 1 << 40})
		},
	} {
		var b bytes.Buffer
		out := zip.NewWriter(&b)
		in, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
		testkit.Must(t, err)
		for _, f := range in.File {
			testkit.Must(t, out.Copy(f))
		}
		change(out)
		testkit.Must(t, out.Close())
		if _, err := verify(b.Bytes(), &Trust{}); err == nil {
			t.Errorf("%s is not found", name)
		}
	}
	for _, text := range []string{"", "PK", "x"} {
		if _, err := verify([]byte(text), &Trust{}); err == nil {
			t.Errorf("%q is a bundle", text)
		}
	}
}

// TestUntrusted: a bundle whose key is not one that is trusted is refused.
func TestUntrusted(t *testing.T) {
	a, other := newAudit(t, contents(), 20), newAudit(t, contents(), 20)
	keys, err := checkpoint.ParsePublic([]byte(other.keys[0].Public))
	testkit.Must(t, err)
	if _, err := verify(write(t, a.source(), ofHost("a.test")), &Trust{Keys: keys}); !errors.Is(err, checkpoint.ErrUntrusted) {
		t.Errorf("%v", err)
	}
	var none note.Verifiers
	s := a.source()
	s.Keys = ""
	f, err := verify(write(t, s, ofHost("a.test")), &Trust{Keys: none})
	if err != nil || f.Checkpoints[0].Signed {
		t.Errorf("without a key: %+v, %v", f, err)
	}
}

// TestNothingToBundle: there is no bundle without a record, nor a complete one without checkpoints, nor after the end of ctx.
func TestNothingToBundle(t *testing.T) {
	a := newAudit(t, contents(), 12)
	if _, err := Write(io.Discard, a.source(), ofHost("c.test")); err != ErrNone {
		t.Errorf("no record: %v", err)
	}
	o := ofHost("a.test")
	o.Complete = true
	if _, err := Write(io.Discard, a.source(), o); err == nil {
		t.Error("a complete bundle without a checkpoint after the last record")
	}
}

// TestBundleOfAPart: if the proxy has removed older lines, a bundle is complete from a checkpoint on after which all lines are there.
func TestBundleOfAPart(t *testing.T) {
	a := newAudit(t, append(contents(), `,"kind":"event","event":"pruned","first_seq":1,"last_seq":5`), 2, 8, 15, 20)
	for range 5 {
		_, a.lines, _ = bytes.Cut(a.lines, []byte("\n"))
	}
	o := ofHost("a.test")
	o.Complete, o.Until = true, start.Add(19*time.Second)
	if _, err := Write(io.Discard, a.source(), o); err == nil || !strings.Contains(err.Error(), "were removed") {
		t.Errorf("%v", err)
	}
	o.Since = start.Add(9 * time.Second)
	if f, err := verify(write(t, a.source(), o), &Trust{}); err != nil || *f.Complete != (Range{9, 20}) || f.Records != 5 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestUnfinished: requests that began and have no record are in the bundle, and cannot be hidden among the lines of others.
func TestUnfinished(t *testing.T) {
	begun := func(id, host string) string {
		return fmt.Sprintf(`,"kind":"begun","id":%q,"client":"lab-a","method":"GET","url":"https://%s/slow","host":%q,"user_agent":"Bot","decision":"allow"`, id, host, host)
	}
	all := append(contents(), begun("gone", "a.test"), begun("7", "a.test"), begun("other", "b.test"), request("lab-a", "a.test", "/page-7"))
	a := newAudit(t, all, 26)
	o := ofHost("a.test")
	o.Complete = true
	file := write(t, a.source(), o)
	f, err := verify(file, &Trust{})
	if err != nil || f.Records != 12 || f.Unfinished != 1 || f.OfHost != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	moved := forged(t, file, func(files map[string]string) {
		for line := range strings.Lines(files[recordsName]) {
			if strings.Contains(line, "gone") {
				files[recordsName] = strings.Replace(files[recordsName], line, "", 1)
				files[linesName] = inOrder(files[linesName] + hidden(t, line))
			}
		}
	})
	if _, err := verify(moved, &Trust{}); err == nil || !strings.Contains(err.Error(), "a record that the selection has") {
		t.Errorf("hidden: %v", err)
	}
}

// TestMalformedRequest: a record without a host belongs to the host in its URL.
func TestMalformedRequest(t *testing.T) {
	malformed := strings.Replace(request("lab-a", "a.test", "/page-1"), `"host":"a.test",`, "", 1)
	for url, want := range map[string]int{"https://a.test/a b": 1, "http://user@A.test:80:80/": 1, "https://b.test/": 0, "/a.test": 0} {
		a := newAudit(t, append(contents()[:4], strings.Replace(malformed, "https://a.test/page-1", url, 1)), 5)
		f, err := verify(write(t, a.source(), ofHost("a.test")), &Trust{})
		if err != nil || f.Records != 2+want {
			t.Errorf("%s: %+v, %v", url, f, err)
		}
	}
}

// TestHiddenName: the manifest does not name a client that is hidden.
func TestHiddenName(t *testing.T) {
	a := newAudit(t, contents(), 22)
	o := ofHost("a.test")
	o.Client, o.Hidden, o.Complete = "lab-a", []string{"client"}, true
	file := write(t, a.source(), o)
	f, err := verify(file, &Trust{})
	if err != nil || f.Records != 5 || f.Selection.Client != HiddenClient || strings.Contains(allOf(t, file), `"lab-a"`) {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestHeldCheckpoints: a checkpoint that the verifier has either agrees with the bundle, or contradicts it.
func TestHeldCheckpoints(t *testing.T) {
	a, other := newAudit(t, contents(), 8, 15, 20), newAudit(t, contents(), 15)
	s := a.source()
	for i := range s.Notes {
		s.Notes[i].Wanted = s.Notes[i].Seq == 15
	}
	o := ofHost("a.test")
	o.Since = start.Add(18 * time.Second)
	if f, err := verify(write(t, s, o), &Trust{}); err != nil || len(f.Checkpoints) != 1 {
		t.Errorf("without those before the records: %+v, %v", f, err)
	}
	o.Since = time.Time{}
	file := write(t, s, o)
	later := a.notes[2].Checkpoint
	later.Size, later.Seq = later.Size+2, later.Seq+2
	f, err := verify(file, &Trust{Held: []checkpoint.Checkpoint{a.notes[1].Checkpoint, later}})
	if err != nil || f.Held != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := verify(file, &Trust{Held: []checkpoint.Checkpoint{other.notes[0].Checkpoint}}); err == nil || !strings.Contains(err.Error(), "contradicts the bundle") {
		t.Errorf("%v", err)
	}
	another := other.notes[0].Checkpoint
	another.Origin = "robotsproxy/another"
	if f, err := verify(file, &Trust{Held: []checkpoint.Checkpoint{another}}); err != nil || f.Held != 0 {
		t.Errorf("of another audit: %+v, %v", f, err)
	}
}

// TestJudge: each record whose file is there is judged again, and a difference is a fault.
func TestJudge(t *testing.T) {
	a := newAudit(t, contents(), 22)
	file := write(t, a.source(), ofHost("a.test"))
	var judged []string
	judge := func(e *trail.Entry, robots []byte, status int, tdmrep []byte) error {
		if judged = append(judged, e.ID); string(robots) != robotsTxt || status != 200 || tdmrep != nil {
			t.Errorf("%q %d %q", robots, status, tdmrep)
		}
		return unless(e.ID != "9", "differs")
	}
	if _, err := verify(file, &Trust{Judge: judge}); err == nil || !strings.HasSuffix(err.Error(), "differs") || len(judged) != 6 {
		t.Errorf("%v, after %q", err, judged)
	}
	o := ofHost("a.test")
	o.Hidden = []string{"url"}
	if f, err := verify(write(t, a.source(), o), &Trust{Judge: judge}); err != nil || f.Judged != 0 {
		t.Errorf("hidden: %+v, %v", f, err)
	}
}

// TestTwoTrees: records of two trees are proved by the checkpoints of both. No complete bundle has them.
func TestTwoTrees(t *testing.T) {
	a := newAudit(t, contents(), 10)
	second, err := tree.Create(filepath.Join(t.TempDir(), "second.tree"), 11)
	testkit.Must(t, err)
	t.Cleanup(func() { second.Close() })
	for line := range bytes.Lines(a.lines) {
		if l, err := trail.ReadLink(bytes.TrimSuffix(line, []byte("\n"))); err == nil && l.Seq > 10 {
			testkit.Must(t, second.Append([]trail.Hash{l.Hash}))
		}
	}
	testkit.Must(t, a.tree.Truncate(11))
	c := checkpoint.Checkpoint{Origin: "robotsproxy/test", Size: 12, Root: second.CurrentRoot(), Seq: 22, Time: start}
	text, err := c.Sign(a.keys[0].Signer)
	testkit.Must(t, err)
	s := a.source()
	s.Trees, s.Notes = append(s.Trees, second), append(s.Notes, Note{Checkpoint: c, Text: text, Response: []byte("x"), Stamped: start})
	o := ofHost("a.test")
	var b bytes.Buffer
	written, err := Write(&b, s, o)
	testkit.Must(t, err)
	if written.Covered != 10 || written.Stamped != 6 {
		t.Errorf("%+v", written)
	}
	if _, err := verify(b.Bytes(), &Trust{}); err == nil || !strings.Contains(err.Error(), "timestamps/22.tsr") {
		t.Errorf("a response that is none: %v", err)
	}
	s.Notes[1].Response = nil
	if f, err := verify(write(t, s, o), &Trust{}); err != nil || f.Covered != 10 || len(f.Checkpoints) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	o.Complete = true
	if _, err := Write(io.Discard, s, o); err == nil || !strings.Contains(err.Error(), "one tree") {
		t.Errorf("%v", err)
	}
}

// TestLines: what is shown can be read in the order of the audit.
func TestLines(t *testing.T) {
	a := newAudit(t, contents(), 22)
	file := write(t, a.source(), ofHost("a.test"))
	r, err := Lines(bytes.NewReader(file), int64(len(file)))
	testkit.Must(t, err)
	text, err := io.ReadAll(r)
	testkit.Must(t, err)
	want := slices.Collect(bytes.Lines(a.lines))
	want = slices.DeleteFunc(want, func(line []byte) bool { return bytes.Contains(line, []byte("b.test")) })
	if string(text) != string(bytes.Join(want, nil)) {
		t.Errorf("%s", text)
	}
}

// TestNothingCanBeHidden: lines of format version 2 cannot be without their values, so no bundle has them where values are hidden.
func TestNothingCanBeHidden(t *testing.T) {
	a := newAudit(t, contents(), 22)
	old := strings.ReplaceAll(string(a.lines), trail.VersionMember, `,"v":2`)
	a.lines = nil
	prev := trail.Hash{}
	for line := range strings.Lines(old) {
		begin := len(a.lines)
		body, _, _ := strings.Cut(line, `,"seq":`)
		a.lines, prev = trail.AppendLink(append(a.lines, body...), begin, uint64(strings.Count(string(a.lines), "\n")+1), prev)
	}
	for name, change := range map[string]func(o *Options){
		"a complete bundle": func(o *Options) { o.Complete = true },
		"hidden values":     func(o *Options) { o.Hidden = []string{"client"} },
	} {
		o := ofHost("a.test")
		s := a.source()
		change(o)
		if _, err := Write(io.Discard, s, o); err == nil || !strings.Contains(err.Error(), "nothing can be hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzVerify: whatever a bundle has, the verifier ends, and calls no record covered that the audit does not have.
func FuzzVerify(f *testing.F) {
	a := newAudit(f, contents(), 8, 15, 20)
	file := write(f, a.source(), ofHost("a.test"))
	forged(f, file, func(files map[string]string) { f.Add(files[recordsName], files[fetchesName], files[proofsName]) })
	f.Fuzz(func(t *testing.T, records, fetches, proofs string) {
		found, err := verify(forged(t, file, func(files map[string]string) {
			files[recordsName], files[fetchesName], files[proofsName] = records, fetches, proofs
		}), &Trust{})
		if err != nil || found.Covered < found.Records {
			return
		}
		for line := range strings.Lines(records) {
			if !bytes.Contains(a.lines, []byte(line)) {
				t.Errorf("%s is not a line of the audit", line)
			}
		}
	})
}
