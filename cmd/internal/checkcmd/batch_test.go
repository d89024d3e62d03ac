package checkcmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/robots"
	"robotsproxy/robots/testkit"
)

func newBatch() *batch { return &batch{dialect: robots.Standard(), most: 10 * time.Second} }

// TestBatchGivesUp: where matching takes too many steps there is no verdict.
func TestBatchGivesUp(t *testing.T) {
	line, err := json.Marshal(map[string]string{"robots": testkit.ComplexFile(), "agent": "FooBot", "url": "/" + strings.Repeat("a", 4000)})
	if err != nil {
		t.Fatal(err)
	}
	if got := answers(t, newBatch(), string(line)+"\n"); !strings.HasPrefix(got, `{"error":"The site's robots.txt, its tdmrep.json, or the paths in hosts have too many patterns`) {
		t.Error(got)
	}
}

// answers runs a batch over lines.
func answers(t *testing.T, b *batch, lines string) string {
	t.Helper()
	var out strings.Builder
	if err := b.run(strings.NewReader(lines), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBatch(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"a rule", `{"robots": "User-agent: *\nDisallow: /x", "agent": "FooBot", "url": "http://a.test/x"}`, `{"allow":false,"rule":"/x","line":2,"group":"*"}`},
		{"a group and a delay", `{"robots": "User-agent: FooBot\nCrawl-delay: 1.5", "agent": "FooBot", "url": "/"}`, `{"allow":true,"group":"foobot","crawl_delay":1.5}`},
		{"the delay in force", `{"robots": "User-agent: *\nCrawl-delay: 60", "agent": "FooBot", "url": "/"}`, `{"allow":true,"group":"*","crawl_delay":10}`},
		{"octets", `{"robots_b64": "VXNlci1hZ2VudDogKgpEaXNhbGxvdzogL3gK", "agent": "FooBot", "url": "/x"}`, `{"allow":false,"rule":"/x","line":2,"group":"*"}`},
		{"a header", `{"robots": "User-agent: bar\nDisallow: /", "user_agent": "FooBot/1.0 Bar/2", "url": "/"}`, `{"allow":false,"rule":"/","line":2,"group":"bar","agent":"Bar"}`},
		{"a browser's header", `{"robots": "", "user_agent": "Mozilla/5.0", "url": "/"}`, `{"allow":true,"agent":""}`},
		{"no agent at all", `{"robots": "User-agent: *\nDisallow: /", "agent": "", "url": "/"}`, `{"allow":false,"rule":"/","line":2,"group":"*"}`},
		{"an empty name is nobody's", `{"robots": "User-agent:\nDisallow: /", "agent": "", "url": "/"}`, `{"allow":true}`},
		{"RFC 9309 2.2.2: the file itself", `{"robots": "User-agent: *\nDisallow: /\nCrawl-delay: 2", "agent": "FooBot", "url": "http://a.test/robots.txt#y"}`, `{"allow":true,"group":"*","crawl_delay":2}`},
		{"RFC 9309 2.2.2: not with a query", `{"robots": "User-agent: *\nDisallow: /", "agent": "FooBot", "url": "http://a.test/robots.txt?x"}`, `{"allow":false,"rule":"/","line":2,"group":"*"}`},
		{"a rule that is a URL of the origin", `{"robots": "User-agent: *\nDisallow: http://a.test/b", "agent": "FooBot", "url": "http://A.test:80/b"}`, `{"allow":false,"rule":"http://a.test/b","line":2,"group":"*"}`},
		{"a rule that is a URL of another origin", `{"robots": "User-agent: *\nDisallow: http://a.test/b", "agent": "FooBot", "url": "http://b.test/b"}`, `{"allow":true,"group":"*"}`},
		{"a rule that is a URL, in UTF-16", `{"robots_b64": "//5VAHMAZQByAC0AYQBnAGUAbgB0ADoAIAAqAAoARABpAHMAYQBsAGwAbwB3ADoAIABoAHQAdABwADoALwAvAGEALgB0AGUAcwB0AC8AYgAKAA==", "agent": "FooBot", "url": "http://a.test/b"}`, `{"allow":false,"rule":"http://a.test/b","line":2,"group":"*"}`},
		{"broken gzip", `{"robots_b64": "H4sIAAA=", "agent": "FooBot", "url": "/"}`, `{"error":"the gzip data is incomplete"}`},
		{"the path stays as it is", `{"robots": "User-agent: *\nDisallow: /b", "agent": "FooBot", "url": "http://a.test//b"}`, `{"allow":true,"group":"*"}`},
		{"robots.readings: literal removes dot segments", `{"robots": "User-agent: *\nDisallow: /b", "agent": "FooBot", "url": "http://a.test/a/../b"}`, `{"allow":false,"rule":"/b","line":2,"group":"*"}`},
		{"no markup is made of a rule", `{"robots": "User-agent: *\nDisallow: /<&>", "agent": "", "url": "/<&>"}`, `{"allow":false,"rule":"/<&>","line":2,"group":"*"}`},
		{"nor control of a terminal", `{"robots": "User-agent: *\nDisallow: /\u009b\u202eü\ud83d\ude00\ud834\udd73", "agent": "", "url": "/\u009b\u202eü\ud83d\ude00\ud834\udd73"}`, `{"allow":false,"rule":"/\u009b\u202eü😀\ud834\udd73","line":2,"group":"*"}`},
		{"others' members", `{"name": 1, "robots": "", "agent": "", "url": "", "allow": false}`, `{"allow":true}`},
		{"no JSON", `robots`, `{"error":"must be a JSON object: invalid character 'r' looking for beginning of value"}`},
		{"half an object", `{"robots": "`, `{"error":"must be a JSON object: unexpected end of JSON input"}`},
		{"two objects", `{} {}`, `{"error":"must be a JSON object: invalid character '{' after top-level value"}`},
		{"another value", `["robots"]`, `{"error":"must be a JSON object, got array"}`},
		{"another type", `{"robots": 1, "agent": "", "url": ""}`, `{"error":"robots: must be a string, got number"}`},
		{"no file", `{"agent": "", "url": ""}`, `{"error":"robots or robots_b64 is required"}`},
		{"null is none", `{"robots": null, "agent": "", "url": ""}`, `{"error":"robots or robots_b64 is required"}`},
		{"two files", `{"robots": "", "robots_b64": "", "agent": "", "url": ""}`, `{"error":"robots and robots_b64 exclude each other"}`},
		{"no base64", `{"robots_b64": "?", "agent": "", "url": ""}`, `{"error":"robots_b64: illegal base64 data at input byte 0"}`},
		{"nobody", `{"robots": "", "url": ""}`, `{"error":"agent or user_agent is required"}`},
		{"somebody twice", `{"robots": "", "agent": "", "user_agent": "", "url": ""}`, `{"error":"agent and user_agent exclude each other"}`},
		{"no address", `{"robots": "", "agent": ""}`, `{"error":"url is required"}`},
		{"no UTF-8", `{"robots": "` + "\xff" + `", "agent": "", "url": ""}`, `{"error":"must be valid Unicode: give other bytes as robots_b64, or percent-encoded in url"}`},
		{"half a character", `{"robots": "\ud800", "agent": "", "url": ""}`, `{"error":"must be valid Unicode: give other bytes as robots_b64, or percent-encoded in url"}`},
		{"the other half", `{"robots": "\uDFFF\ud800", "agent": "", "url": ""}`, `{"error":"must be valid Unicode: give other bytes as robots_b64, or percent-encoded in url"}`},
		{"not an escape", `{"robots": "\\ud800\\", "agent": "", "url": ""}`, `{"allow":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := answers(t, newBatch(), c.line); got != c.want+"\n" {
				t.Errorf("got  %swant %s", got, c.want)
			}
		})
	}
}

func TestBatchKeepsTheDelayOfTheConfiguration(t *testing.T) {
	const file = `{"robots": "User-agent: *\nCrawl-delay: 60", "agent": "", "url": `
	for _, c := range []struct {
		over       policy.OverMax
		page, self string
	}{
		{policy.Clamp, `{"allow":true,"group":"*","crawl_delay":20}`, `{"allow":true,"group":"*","crawl_delay":20}`},
		{policy.Honor, `{"allow":true,"group":"*","crawl_delay":60}`, `{"allow":true,"group":"*","crawl_delay":60}`},
		{policy.RefuseExcess, `{"allow":false,"group":"*","crawl_delay":60}`, `{"allow":true,"group":"*","crawl_delay":60}`},
	} {
		b := &batch{dialect: robots.Standard(), most: 20 * time.Second, over: c.over}
		if got := answers(t, b, file+`"/"}`+"\n"+file+`"/robots.txt"}`); got != c.page+"\n"+c.self+"\n" {
			t.Errorf("over_max %d: %s", c.over, got)
		}
	}
}

// The google dialect alone judges the file itself.
func TestBatchDialect(t *testing.T) {
	const line = `{"robots": "User-agent: *\nDisallow: /robots.txt", "agent": "", "url": "/robots.txt"}`
	for _, d := range robots.Dialects() {
		want := `{"allow":true,"group":"*"}`
		if d.MatchRobotsTxt {
			want = `{"allow":false,"rule":"/robots.txt","line":2,"group":"*"}`
		}
		if got := answers(t, &batch{dialect: d}, line); got != want+"\n" {
			t.Errorf("%s: %s", d.Name, got)
		}
	}
}

// The file before is remembered; a line that fails in between changes nothing.
func TestBatchRemembersTheRightFile(t *testing.T) {
	const no, yes = `{"robots": "User-agent: *\nDisallow: /", "agent": "", "url": "/"}`, `{"robots": "", "agent": "", "url": "/"}`
	const coded = `{"robots_b64": "", "agent": "", "url": "/"}`
	const bad = `{"robots_b64": "?", "agent": "", "url": "/"}`
	lines := strings.Join([]string{no, no, yes, no, bad, no, coded, bad, coded, no, yes}, "\n")
	want := []string{"false", "false", "true", "false", "error", "false", "true", "error", "true", "false", "true"}
	got := strings.Split(strings.TrimSuffix(answers(t, newBatch(), lines), "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d answers to %d lines", len(got), len(want))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("line %d: %s, want %s", i+1, got[i], want[i])
		}
	}
}

// cases is an input of many lines, made as they are read.
type cases struct {
	next func(i int) string // "": the end
	i    int
	rest string
}

func (c *cases) Read(p []byte) (int, error) {
	if c.rest == "" {
		if c.rest = c.next(c.i); c.rest == "" {
			return 0, io.EOF
		}
		c.i++
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// smallCase is one of many: each file is there three times, blank lines between.
func smallCase(i int) string {
	return fmt.Sprintf(`{"robots": "User-agent: *\nDisallow: /a\nDisallow: /%d/\n", "agent": "FooBot", "url": "https://a.test/%d/x"}`+"\n\r\n", i/3, i/3)
}

func TestBatchKeepsOrder(t *testing.T) {
	t.Parallel()
	const many = 20_000
	in := &cases{next: func(i int) string {
		if i == many {
			return ""
		}
		return smallCase(i)
	}}
	out, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := newBatch().run(in, write)
		write.CloseWithError(err)
		ended <- err
	}()
	lines, n := bufio.NewScanner(out), 0
	for ; lines.Scan(); n++ {
		if want := fmt.Sprintf(`{"allow":false,"rule":"/%d/","line":3,"group":"*"}`, n/3); lines.Text() != want {
			t.Fatalf("answer %d is %s, want %s", n+1, lines.Text(), want)
		}
	}
	if err := <-ended; err != nil || n != many {
		t.Errorf("%d answers to %d lines, %v", n, many, err)
	}
}

// A line over the ceiling is answered in its turn; one at it is judged.
func TestBatchLineTooLong(t *testing.T) {
	t.Parallel()
	const head, tail = `{"url": "", "agent": "", "robots": "User-agent: *\nDisallow: /\n#`, `"}`
	line := func(size int) string { return head + strings.Repeat("x", size-len(head)-len(tail)) + tail }
	const judged = `{"allow":false,"rule":"/","line":2,"group":"*"}` + "\n"
	const refused = `{"error":"the line has more than 16777216 bytes"}` + "\n"
	for _, c := range []struct{ name, lines, want string }{
		{"at the ceiling", line(maxCase), judged},
		{"over it", line(maxCase + 1), refused},
		{"in the middle", line(1000) + "\n" + line(2*maxCase) + "\n" + line(1000) + "\n", judged + refused + judged},
		{"over a buffer", line(batchBuffer-1) + "\n" + line(batchBuffer) + "\n" + line(batchBuffer+1), judged + judged + judged},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := answers(t, newBatch(), c.lines); got != c.want {
				t.Errorf("%.300s", got)
			}
		})
	}
}

// A caller may write a line and wait for its answer.
func TestBatchAnswersBeforeItWaits(t *testing.T) {
	in, ask := io.Pipe()
	answered, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- newBatch().run(in, out) }()
	lines := bufio.NewReader(answered)
	for i := range 3 {
		io.WriteString(ask, strings.TrimSpace(smallCase(i))+"\n")
		if got, err := lines.ReadString('\n'); err != nil || !strings.Contains(got, "false") {
			t.Fatalf("%q, %v", got, err)
		}
	}
	ask.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestBatchFails(t *testing.T) {
	broken := errors.New("broken")
	if err := newBatch().run(io.MultiReader(strings.NewReader(smallCase(0)), iotest.ErrReader(broken)), io.Discard); !errors.Is(err, broken) {
		t.Errorf("input that cannot be read: %v", err)
	}
	for _, in := range []string{smallCase(0), strings.Repeat(smallCase(0), 10_000)} {
		if err := newBatch().run(strings.NewReader(in), failing{broken}); !errors.Is(err, broken) {
			t.Errorf("output that cannot be written: %v", err)
		}
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func BenchmarkBatch(b *testing.B) {
	file := "User-agent: *\\n" + strings.Repeat("Disallow: /d/e/f\\nAllow: /d/e\\n", 6)
	for _, same := range []bool{true, false} {
		name := map[bool]string{true: "one file", false: "a file each"}[same]
		b.Run(name, func(b *testing.B) {
			in := &cases{next: func(i int) string {
				if i == b.N {
					return ""
				}
				n := 0
				if !same {
					n = i
				}
				return fmt.Sprintf(`{"robots": "%sDisallow: /%d", "agent": "FooBot", "url": "https://a.test/d/%d?x=1"}`+"\n", file, n, i)
			}}
			b.ReportAllocs()
			if err := newBatch().run(in, io.Discard); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Minutes(), "lines/min")
		})
	}
}
