package audit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/pace"
	"robotsproxy/robots"
	"robotsproxy/robots/cache"
	"robotsproxy/robots/fetch"
)

func allowed() *Record {
	return &Record{
		Time: time.Date(2026, 11, 21, 10, 0, 0, 5, time.FixedZone("", 3600)), ID: "a-1",
		Request: policy.Request{
			Client: "127.0.0.1", Method: "GET", Origin: robots.Origin{Scheme: "https", Host: "site.test", Port: 443},
			PathQuery: "/page?q=1", UserAgent: "FooBot/1.0",
		},
		Decision: policy.Decision{
			Verdict: policy.Allow, Reason: policy.ReasonRule, Rule: "/p", Line: 3, Group: "foobot", Token: "FooBot",
			Asked: 100 * time.Second, Pace: pace.Limits{CrawlDelay: 10 * time.Second},
			Ruling: cache.Ruling{Outcome: cache.Rules, Answer: &fetch.Answer{URL: "https://site.test/robots.txt", SHA256: "ab", Fetched: time.Unix(0, 0)}},
		},
		Waited: 1500 * time.Microsecond, Status: 200, Bytes: 12, Took: 2 * time.Second,
	}
}

func refused() *Record {
	r := allowed()
	r.Decision.Verdict = policy.Refuse
	r.Status, r.Err = 403, errors.New("why")
	return r
}

func open(t *testing.T, o Options) (*Log, func() string) {
	t.Helper()
	if o.File == "" {
		o.File = filepath.Join(t.TempDir(), "audit.jsonl")
	}
	o.Log = slog.New(slog.DiscardHandler)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l, func() string {
		t.Helper()
		b, err := os.ReadFile(o.File)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func TestLineSaysWhatHeldTheRequestUp(t *testing.T) {
	l, read := open(t, Options{})
	r := allowed()
	r.BackOff, r.Slowed = 90*time.Second+499*time.Microsecond, 1500*time.Millisecond+500*time.Microsecond
	l.Write(r)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `"wait_ms":1.5,"back_off_s":90,"slowed_s":1.501,"status":200,`
	if got := read(); !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineHoldsWhatTheContractNames(t *testing.T) {
	l, read := open(t, Options{})
	l.Write(allowed())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"2026-11-21T09:00:00.000000005Z","id":"a-1","client":"127.0.0.1","method":"GET",` +
		`"url":"https://site.test/page?q=1","host":"site.test","user_agent":"FooBot/1.0","agent":"FooBot",` +
		`"decision":"allow","reason":"rule","enforced":true,"rule":"/p","line":3,"group":"foobot",` +
		`"robots_url":"https://site.test/robots.txt","robots_fetched":"1970-01-01T00:00:00.000000000Z","robots_sha256":"ab",` +
		`"crawl_delay_s":10,"crawl_delay_asked_s":100,"wait_ms":1.5,"status":200,"bytes":12,"duration_ms":2000}` + "\n"
	if got := read(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLineHoldsTheEntry(t *testing.T) {
	r := allowed()
	r.Decision = policy.Decision{Verdict: policy.Allow, Reason: policy.ReasonOverride, Entry: "*.site.test", EntryReason: "ticket \"7\" \u202e"}
	const want = `"decision":"allow","reason":"override","enforced":true,"entry":"*.site.test","entry_reason":"ticket \"7\" \u202e","wait_ms":1.5,`
	if got := string(appendRecord(nil, r, false)); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s in it", got, want)
	}
}

func TestURL(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(*Record)
		dropQuery bool
		want      string
	}{
		{"whole", func(*Record) {}, false, "https://site.test/page?q=1"},
		{"query_strings: drop", func(*Record) {}, true, "https://site.test/page"},
		{"CONNECT", func(r *Record) { r.Request.Method = "CONNECT" }, false, "site.test:443"},
		{"malformed, as the client wrote it", func(r *Record) {
			r.Request.Origin, r.Target = robots.Origin{}, "http://u:p@x/?s"
		}, true, "http://u:p@x/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := allowed()
			c.change(r)
			var line struct{ URL string }
			if err := json.Unmarshal(appendRecord(nil, r, c.dropQuery), &line); err != nil || line.URL != c.want {
				t.Errorf("url %q, %v; want %q", line.URL, err, c.want)
			}
		})
	}
}

func TestRefusalIsInTheFileWhenWriteReturns(t *testing.T) {
	l, read := open(t, Options{})
	defer l.Close()
	l.Write(allowed())
	if got := read(); got != "" {
		t.Errorf("an allowed request's record was not batched: %q", got)
	}
	if err := l.Write(refused()); err != nil {
		t.Fatal(err)
	}
	got := read()
	if lines := strings.Split(got, "\n"); len(lines) != 3 || !strings.Contains(lines[0], `"allow"`) || !strings.Contains(lines[1], `"block"`) {
		t.Errorf("not both records, in their order: %q", got)
	}
}

func TestBatchesAreWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, read := open(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		go l.Run(ctx)
		l.Write(allowed())
		<-time.After(batchDelay + time.Millisecond)
		if read() == "" {
			t.Error("the record is still not written")
		}
		cancel()
		synctest.Wait()
		l.Close()
	})
}

func TestIncludeBlocked(t *testing.T) {
	l, read := open(t, Options{BlockedOnly: true})
	l.Write(allowed())
	l.Write(refused())
	l.Close()
	if got := read(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"block"`) {
		t.Errorf("got %q", got)
	}
}

// failing is a file on a full disk: it takes room octets, then errors.
type failing struct {
	room int
	got  []byte
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	f.got = append(f.got, b[:n]...)
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (f *failing) Close() error { return nil }

var _ io.WriteCloser = (*failing)(nil)

func TestUnwritableRefusesUntilAProbeSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{room: 40}
		l := &Log{o: Options{File: "x", Log: slog.New(slog.DiscardHandler)}, w: f}
		ctx, cancel := context.WithCancel(context.Background())
		go l.Run(ctx)
		if err := l.Write(refused()); !errors.Is(err, ErrUnwritable) {
			t.Fatalf("a refusal whose record was torn: %v", err)
		}
		if err := l.Refusal(); !errors.Is(err, ErrUnwritable) {
			t.Errorf("what follows is not refused: %v", err)
		}
		l.mu.Lock()
		f.room = 1 << 20
		l.mu.Unlock()
		<-time.After(probeDelay + 2*batchDelay)
		if err := l.Refusal(); err != nil {
			t.Errorf("still refusing after a probe could write: %v", err)
		}
		if got, want := string(f.got), string(appendRecord(nil, refused(), false)); got != want {
			t.Errorf("the torn line was not completed:\n%s\nwant\n%s", got, want)
		}
		cancel()
		synctest.Wait()
	})
}

func TestOnErrorContinue(t *testing.T) {
	l := &Log{o: Options{File: "x", Continue: true}, w: &failing{}}
	if err := l.Write(refused()); err != nil || l.Refusal() != nil {
		t.Errorf("refuses although it may go on: %v", err)
	}
	if l.Err() == nil {
		t.Error("health does not hear of it")
	}
}

func TestPendingIsBounded(t *testing.T) {
	l := &Log{o: Options{File: "x"}, w: &failing{}}
	r := refused()
	r.Request.UserAgent = strings.Repeat("x", maxField)
	for range 2 * maxPending / maxField {
		l.Write(r)
	}
	if len(l.buf) > maxPending+2*maxField {
		t.Errorf("%d octets are kept", len(l.buf))
	}
	if l.lost.Load() == 0 {
		t.Error("none is counted as lost")
	}
}

func TestStrangersOctetsCannotForgeALine(t *testing.T) {
	r := refused()
	hostile := "a\"}\n{\"decision\":\"allow\x00\x1b[2J\u009b31m\u202eltr\xff\U0001F600\U000E0001é\x7f"
	r.Request.UserAgent, r.Request.PathQuery, r.Decision.Rule = hostile, hostile, hostile
	b := appendRecord(nil, r, false)
	if i := strings.IndexByte(string(b), '\n'); i != len(b)-1 {
		t.Fatalf("more than a line: %q", b)
	}
	for _, c := range string(b[:len(b)-1]) {
		if c < ' ' || c == 0x7f || c == 0x9b || c == 0x202e || c == 0xE0001 {
			t.Errorf("%U stands in the line unescaped", c)
		}
	}
	var line map[string]any
	if err := json.Unmarshal(b, &line); err != nil {
		t.Fatal(err)
	}
	if got, want := line["user_agent"], strings.ToValidUTF8(hostile, "\ufffd"); got != want {
		t.Errorf("read back as %q, want %q", got, want)
	}
}

func FuzzEscaped(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\"\\\xff\U0001F600\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		b := appendString(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if len(s) <= maxField && got != strings.ToValidUTF8(s, "\ufffd") && !strings.Contains(got, "\ufffd") {
			t.Errorf("%q came back as %q", s, got)
		}
	})
}

func TestOpenErrorNamesTheFile(t *testing.T) {
	_, err := Open(Options{File: filepath.Join(t.TempDir(), "absent", "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), filepath.Join("absent", "audit.jsonl")) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("opened without a name")
	}
}

func BenchmarkLogWrite(b *testing.B) {
	l, err := Open(Options{File: filepath.Join(b.TempDir(), "audit.jsonl"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	r := allowed()
	b.ReportAllocs()
	for b.Loop() {
		l.Write(r)
	}
	l.Close()
}

func TestTornLastLineSwallowsNothing(t *testing.T) {
	for name, c := range map[string]struct{ before, between string }{
		"torn":  {`{"time":"2026-11`, "\n"},
		"whole": {`{"time":"2026-11-21"}` + "\n", ""},
		"empty": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.jsonl")
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			l, read := open(t, Options{File: file})
			if err := l.Write(refused()); err != nil {
				t.Fatal(err)
			}
			if got, want := read(), c.before+c.between+string(appendRecord(nil, refused(), false)); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			l.Close()
		})
	}
}
