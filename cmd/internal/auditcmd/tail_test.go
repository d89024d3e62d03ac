package auditcmd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots/testkit"
)

// A chain seals lines, each with the hash of the line before.
type chain struct {
	seq  uint64
	prev trail.Hash
}

func (c *chain) seal(members string) string {
	c.seq++
	line, hash := trail.AppendLink([]byte("{"+members), 0, c.seq, c.prev)
	c.prev = hash
	return string(line)
}

// request is a record of a request for a path at a.test.
func (c *chain) request(path string) string {
	return c.seal(fmt.Sprintf(`"time":"2026-11-21T05:00:%02d.5Z","client":"lab","method":"GET","url":"http://a.test%s","host":"a.test","decision":"allow","reason":"no-rule","enforced":true,"status":200`, c.seq%60, path))
}

func TestTailLines(t *testing.T) {
	const evil = `\u001b[2J\u202e\u009b31m\u2028\u0000\u007f\r\n\t`
	const raw = "\x1b[2J\u202e\u009b31m\u2028\xff"
	at := `{"time":"2026-11-21T05:00:01.25Z"`
	const day = "-- Saturday, 2026-11-21 UTC\n05:00:01.250  "
	for _, c := range []struct{ name, line, want string }{
		{"allowed", at + `,"client":"lab","method":"GET","url":"http://a.test/","agent":"Foo","decision":"allow","reason":"no-file","enforced":true,"wait_ms":1500.4,"status":200}`,
			day + "allowed      no-file      200  GET   http://a.test/  waited 1.5s  client lab  agent Foo"},
		{"disallowed by a rule", at + `,"method":"GET","url":"http://a.test/x","decision":"block","reason":"rule","rule":"/x","line":7,"enforced":true,"status":403}`,
			day + "disallowed   rule         403  GET   http://a.test/x  Disallow: /x (line 7)"},
		{"a tunnel to a host that is wholly disallowed", at + `,"method":"CONNECT","url":"a.test:443","decision":"block","reason":"tunnel","rule":"/","line":2,"enforced":true,"status":403}`,
			day + "disallowed   tunnel       403  CONNECT  a.test:443  Disallow: / (line 2)"},
		{"allowed by a rule, and too busy", at + `,"method":"GET","url":"http://a.test/x","decision":"block","reason":"pace","rule":"/x","line":7,"enforced":true,"status":429}`,
			day + "deferred     pace         429  GET   http://a.test/x  rule /x (line 7)"},
		{"recorded only", at + `,"method":"GET","url":"http://a.test/x","decision":"block","reason":"rule","enforced":false,"status":200}`,
			day + "disallowed?  rule         200  GET   http://a.test/x"},
		{"the client left", at + `,"method":"GET","url":"http://a.test/x","decision":"block","reason":"client","enforced":true,"error":"context canceled"}`,
			day + `failed       client       ---  GET   http://a.test/x  error "context canceled"`},
		{"no member", `{}`, "--:--:--.---  failed?                   ---  -     -"},
		{"an event", at + `,"event":"lost","detail":"the disk was full","count":3}`, day + "audit        lost 3 records: the disk was full"},
		{"what is set aside", at + `,"event":"torn","file":"audit.torn","octets":12}`, day + "audit        torn (audit.torn, 12 bytes)"},
		{"what was counted", at + `,"kind":"event","event":"counted","detail":"refusals of 1 client: 3 auth","count":3,"reasons":{"auth":3},"clients":1,"client":"lab"}`,
			day + "audit        counted: refusals of 1 client: 3 auth  client lab"},
		{"another kind", at + `,"kind":"robots","url":"http://a.test/robots.txt","status":404,"agent":"Foo"}`, day + "robots       404  http://a.test/robots.txt  agent Foo"},
		{"a wait of ages", `{"time":"2026-11-21T05:00:01Z","decision":"allow","wait_ms":1e300}`, "-- Saturday, 2026-11-21 UTC\n05:00:01.000  allowed                   ---  -     -  waited 1281023h53m38.427s"},
		{"strangers' words", at + `,"client":"` + evil + `","method":"` + evil + `","url":"` + evil + `","agent":"` + evil + `","decision":"` + evil + `","reason":"` + evil + `","rule":"` + evil + `","error":"` + evil + `","status":200}`,
			day + `failed?      Q  200  Q  Q  rule Q (line 0)  error Q  client Q  agent Q`},
		{"words that look like others", at + `,"client":"a  agent b","method":"GET","url":"http://a.test/  error \"x\"","rule":"/a (line 1)  client x","decision":"allow","reason":"rule","enforced":true,"status":200}`,
			day + `allowed      rule         200  GET   "http://a.test/  error \"x\""  Allow: "/a (line 1)  client x" (line 0)  client "a  agent b"`},
		{"an event of strangers' words", at + `,"event":"` + evil + `","detail":"` + evil + `","file":"` + evil + `"}`, day + `audit        Q: H (Q, 0 bytes)`},
		{"no JSON", raw, `no record: "\x1b[2J\u202e\u009b31m\u2028\xff"`},
		{"an escape in JSON", `{"client":"` + raw + `"}`, `no record: "{\"client\":\"\x1b[2J\u202e\u009b31m\u2028\xff\"}"`},
		{"no text", `{"client":1}`, `no record: "{\"client\":1}"`},
		{"too long an address", at + `,"method":"GET","url":"http://a.test/` + strings.Repeat("x", 5000) + `","decision":"allow","reason":"no-rule","enforced":true}`,
			day + "allowed      no-rule      ---  GET   http://a.test/" + strings.Repeat("x", humanize.MaxBrief-17) + "…"},
	} {
		want := strings.NewReplacer("Q", `"\x1b[2J\u202e\u009b31m\u2028\x00\x7f\r\n\t"`, "H", `\x1b[2J\u202e\u009b31m\u2028\x00\x7f\r\n\t`).Replace(c.want)
		if got := newRecordLines(false, time.UTC).line([]byte(c.line)); got != want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, want)
		}
		if got := jsonLine([]byte(c.line)); humanize.Escape(got) != got || !strings.Contains(c.line, "\x1b") && got != c.line {
			t.Errorf("%s as JSON: %q", c.name, got)
		}
		coloured := newRecordLines(true, time.UTC).line([]byte(c.line))
		for _, colour := range []string{cli.Red, cli.Green, cli.Yellow, cli.Dim, "0"} {
			coloured = strings.ReplaceAll(coloured, "\x1b["+colour+"m", "")
		}
		if coloured != want {
			t.Errorf("%s in colours:\n%q", c.name, coloured)
		}
	}
}

func TestTailDateWhereItChanges(t *testing.T) {
	r := newRecordLines(false, time.FixedZone("", 3600))
	var days []string
	for _, at := range []string{"2026-11-20T22:59:59Z", "2026-11-20T23:00:00Z", "2026-11-21T05:00:00Z"} {
		line := r.line([]byte(`{"time":"` + at + `"}`))
		days = append(days, line[:min(len(line), 14)])
	}
	if want := "-- Friday, 202|-- Saturday, 2|06:00:00.000  "; strings.Join(days, "|") != want {
		t.Errorf("%q", days)
	}
}

func TestTailFilter(t *testing.T) {
	const blocked = `{"client":"läb \"1\"","host":"a.test","decision":"block"}`
	const allowed = `{"client":"lab","host":"b.test","decision":"allow"}`
	const event = `{"event":"lost"}`
	const kind = `{"kind":"robots","client":"lab","host":"b.test"}`
	for _, c := range []struct {
		name   string
		filter tailFilter
		want   string
	}{
		{"all", tailFilter{}, "blocked allowed event kind other"},
		{"blocked", tailFilter{blocked: true}, "blocked"},
		{"a client", tailFilter{requestFlags: requestFlags{client: "lab"}}, "allowed"},
		{"a client that is escaped", tailFilter{requestFlags: requestFlags{client: `läb "1"`}}, "blocked"},
		{"a part of a name", tailFilter{requestFlags: requestFlags{client: "la"}}, ""},
		{"a host", tailFilter{requestFlags: requestFlags{host: "A.Test"}}, "blocked"},
		{"hosts", tailFilter{requestFlags: requestFlags{host: "*.Test"}}, "blocked allowed"},
		{"what no request is", tailFilter{blocked: true, requestFlags: requestFlags{client: "lab"}}, ""},
		{"both", tailFilter{blocked: true, requestFlags: requestFlags{host: "a.test"}}, "blocked"},
	} {
		if err := c.filter.read(&auditFlags{ConfigFlags: cli.ConfigFlags{Flags: new(pflag.FlagSet)}}); err != nil {
			t.Fatal(err)
		}
		c.filter.prepare()
		var got []string
		for _, line := range []struct{ name, text string }{{"blocked", blocked}, {"allowed", allowed}, {"event", event}, {"kind", kind}, {"other", "x"}} {
			if c.filter.passes([]byte(line.text)) {
				got = append(got, line.name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// TestTailSince: all records of requests since a time are shown, however many, and more than are held in memory.
func TestTailSince(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var c chain
	var text strings.Builder
	for i := range 50 {
		text.WriteString(c.request(fmt.Sprint("/", i)))
	}
	testkit.Must(t, os.WriteFile(path, []byte(text.String()), 0o600))
	for _, look := range []struct {
		since time.Time
		n     int
		want  string
	}{
		{time.Date(2026, 11, 21, 5, 0, 48, 0, time.UTC), 0, "/48 /49"},
		{time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC), 0, "none of the recorded requests matches in " + path},
		{time.Time{}, 2, "/48 /49"},
		{time.Time{}, maxTail + 1, ""},
	} {
		var out, errOut bytes.Buffer
		to := &tail{
			from: []*tailedTrail{{path: path}}, filter: &tailFilter{since: look.since}, out: bufio.NewWriter(&out), errOut: &errOut,
			print: func(line []byte) string {
				e, err := trail.Read(line)
				testkit.Must(t, err)
				return strings.TrimPrefix(e.URL, "http://a.test")
			},
		}
		testkit.Must(t, to.first(t.Context(), look.n, false))
		got := strings.Join(strings.Fields(out.String()), " ") + strings.TrimSpace(strings.TrimPrefix(errOut.String(), "robotsproxy: "))
		if look.n > maxTail {
			if n := len(strings.Fields(got)); n != 50 {
				t.Errorf("%d of 50 were shown", n)
			}
		} else if got != look.want {
			t.Errorf("since %v: %s, want %s", look.since, got, look.want)
		}
		to.close()
	}
	few := &tail{from: []*tailedTrail{{path: path}}, filter: &tailFilter{}}
	if n, err := few.count(t.Context()); err != nil || n != 50 {
		t.Errorf("%d records, %v", n, err)
	}
}

// The last records are found however far back they are.
func TestTailFromTheEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var c chain
	var text [2]strings.Builder
	for i := range 6000 { // more than one look at the end
		pad := strings.Repeat("x", 200)
		line := c.request(fmt.Sprintf("/%d/%s", i, pad))
		if i < 10 {
			line = c.seal(fmt.Sprintf(`"client":"early","url":"/early/%d","host":"a.test"`, i))
		}
		text[i/3000].WriteString(line)
	}
	for name, text := range map[string]string{trail.SegmentPath(path, 1): text[0].String(), path: text[1].String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []struct {
		args        []string
		lines       int
		first, last string
	}{
		{nil, 20, "/5980/", "/5999/"},
		{[]string{"-n", "1"}, 1, "/5999/", "/5999/"},
		{[]string{"-n", "0"}, 0, "", ""},
		{[]string{"-n", "3500"}, 3500, "/2500/", "/5999/"},
		{[]string{"-n", "100000"}, 6000, "/early/0", "/5999/"},
		{[]string{"-n", "3", "--client", "early"}, 3, "/early/7", "/early/9"},
		{[]string{"-n", "30", "--client", "early"}, 10, "/early/0", "/early/9"},
		{[]string{"--client", "nobody"}, 0, "", ""},
	} {
		var out, errOut bytes.Buffer
		status := cli.Execute(t.Context(), Command(), append([]string{"tail", "--json", "--file", path}, q.args...), nil, &out, &errOut)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		nothing := strings.HasPrefix(errOut.String(), "robotsproxy: none of the recorded requests matches in ")
		if status != 0 || nothing != slices.Contains(q.args, "nobody") || !nothing && errOut.Len() > 0 || len(lines) != q.lines {
			t.Errorf("%v: status %d, %d lines, %s", q.args, status, len(lines), errOut.String())
		} else if q.lines > 0 && (!strings.Contains(lines[0], q.first) || !strings.Contains(lines[len(lines)-1], q.last)) {
			t.Errorf("%v: from %s to %s", q.args, lines[0], lines[len(lines)-1])
		}
	}
}

// A following is a tail -f that runs.
type following struct {
	t      *testing.T
	path   string
	shown  *bufio.Scanner
	stop   context.CancelFunc
	status chan int
}

// follow starts tail -f on a file that is not there yet.
func follow(t *testing.T) *following {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	errRead, errOut := io.Pipe()
	outRead, out := io.Pipe()
	f := &following{t, filepath.Join(t.TempDir(), "later", "audit.jsonl"), bufio.NewScanner(outRead), stop, make(chan int, 1)}
	go func() {
		f.status <- cli.Execute(ctx, Command(), []string{"tail", "-f", "--file", f.path}, nil, out, errOut)
		out.Close()
		errOut.Close()
	}()
	said := bufio.NewScanner(errRead)
	if !said.Scan() || said.Text() != "robotsproxy: "+f.path+" does not exist yet" {
		t.Fatalf("it says %q", said.Text())
	}
	go io.Copy(io.Discard, errRead)
	return f
}

// shows waits for the next record, which has to be that of a URL.
func (f *following) shows(url string) {
	f.t.Helper()
	for f.shown.Scan() {
		if strings.HasPrefix(f.shown.Text(), "-- ") {
			continue
		}
		if !strings.Contains(f.shown.Text(), url+"  ") {
			f.t.Fatalf("%q, want %s", f.shown.Text(), url)
		}
		return
	}
	f.t.Fatalf("it ended before %s", url)
}

// add appends a line to the file.
func (f *following) add(line string) {
	f.t.Helper()
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	testkit.Must(f.t, err)
	_, err = file.WriteString(line)
	testkit.Must(f.t, err)
	testkit.Must(f.t, file.Close())
}

// A tail -f waits for the file, and goes from one file to the next.
func TestTailFollows(t *testing.T) {
	t.Parallel()
	f := follow(t)
	var c chain
	testkit.Must(t, os.Mkdir(filepath.Dir(f.path), 0o700))
	f.add(c.request("/1"))
	f.shows("a.test/1")
	f.add(c.request("/2"))
	f.shows("a.test/2")
	f.add(c.request("/3"))
	testkit.Must(t, os.Rename(f.path, trail.SegmentPath(f.path, 1)))
	f.add(c.request("/4"))
	f.shows("a.test/3")
	f.shows("a.test/4")
	testkit.Must(t, os.Remove(f.path))
	c = chain{}
	f.add(c.request("/5"))
	f.shows("a.test/5")
	testkit.Must(t, os.RemoveAll(filepath.Dir(f.path)))
	testkit.Must(t, os.Mkdir(filepath.Dir(f.path), 0o700))
	f.add(c.request("/6"))
	f.shows("a.test/6")
	f.stop()
	if status := <-f.status; status != 0 {
		t.Errorf("status %d", status)
	}
}

// Of standard input each record is shown as it comes.
func TestTailOfStandardInput(t *testing.T) {
	in, w := io.Pipe()
	outRead, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Execute(t.Context(), Command(), []string{"tail", "-f", "--json", "--file", "-"}, in, out, io.Discard)
		out.Close()
	}()
	shown := bufio.NewScanner(outRead)
	var c chain
	for i := range 3 {
		line := c.request(fmt.Sprint("/", i))
		go io.WriteString(w, line)
		if !shown.Scan() || shown.Text()+"\n" != line {
			t.Fatalf("%s, want %s", shown.Text(), line)
		}
	}
	w.Close()
	if status := <-ended; status != 0 {
		t.Errorf("status %d", status)
	}
}
