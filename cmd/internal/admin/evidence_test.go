package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/cmd/internal/notary"
	"robotsproxy/policy/audit"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/proxy/archive"
)

// fakeEvidence has the results of its functions. Verify waits for a result.
type fakeEvidence struct {
	verified chan error
	report   func(context.Context, io.Writer) error
	places   []notary.Place
}

func newFakeEvidence() *fakeEvidence { return &fakeEvidence{verified: make(chan error)} }

func (e *fakeEvidence) option(o *Options) {
	o.Evidence = &Evidence{
		Verify: func(ctx context.Context) (int, error) {
			select {
			case err := <-e.verified:
				return 1446, err
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		},
		Report:      func(ctx context.Context, w io.Writer) error { return e.report(ctx, w) },
		Checkpoints: func() []notary.Place { return e.places },
	}
}

// auditText returns what the page says of the audit.
func (f *fixture) auditText(t testing.TB) string {
	t.Helper()
	return textOf(findOne(t, inspectPage(t, f.do("GET", "/about", "").Body.String()), "id", "audit"))
}

func TestChainIsVerifiedOnRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEvidence()
		f := newFixture(t, e.option)
		if got := f.auditText(t); !strings.Contains(got, "Not verified") {
			t.Errorf("before: %q", got)
		}
		for _, c := range []struct {
			err  error
			want string
		}{
			{nil, "Intact 2000-01-01 00:00:00 UTC, 1 min ago. No line of 1,446 was changed"},
			{&trail.Fault{File: "audit.jsonl", Line: 7, Kind: "changed", Detail: "its hash does not fit"}, "Not intact 2000-01-01 00:01:00 UTC, 1 min ago: audit.jsonl:7: changed"},
			{errors.New("no such file" + hostileText), "Not verified 2000-01-01 00:02:00 UTC, 1 min ago: no such file"},
		} {
			for range 2 { // the second request begins no other verification
				if w := f.do("POST", "/verify", ""); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/about#audit" {
					t.Fatalf("%d %v", w.Code, w.Header())
				}
			}
			synctest.Wait()
			if got := f.auditText(t); !strings.Contains(got, "Verifying") {
				t.Errorf("meanwhile: %q", got)
			}
			e.verified <- c.err
			<-time.After(time.Minute)
			if got := f.auditText(t); !strings.Contains(got, c.want) {
				t.Errorf("no %q in %q", c.want, got)
			}
		}
	})
}

func TestVerificationEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, newFakeEvidence().option)
		f.do("POST", "/verify", "")
		<-time.After(verifyTimeout)
		synctest.Wait()
		if got := f.auditText(t); !strings.Contains(got, "not finished after 30m0s") {
			t.Errorf("after its time: %q", got)
		}
		f.do("POST", "/verify", "")
		check(t, f.Shutdown(t.Context()))
		if got := f.auditText(t); !strings.Contains(got, errShutdown.Error()) {
			t.Errorf("after the shutdown: %q", got)
		}
		f.do("POST", "/verify", "")
		if got := f.auditText(t); strings.Contains(got, "Verifying") {
			t.Error("it verifies after the shutdown")
		}
	})
}

func TestAuditFacts(t *testing.T) {
	e := newFakeEvidence()
	at := time.Now().Add(-90 * time.Minute)
	e.places = []notary.Place{
		{Name: "file", At: "/mnt/checkpoints", Newest: at},
		{Name: "anchor", At: "/mnt/anchors", Newest: at, Err: errors.New("disk full")},
		{Name: "tsa", At: "https://tsa.example/"},
	}
	f := newFixture(t, e.option, func(o *Options) {
		o.About = func() About { return About{Audit: "/var/lib/robots/audit.jsonl"} }
		o.Space = func() audit.Space { return audit.Space{Oldest: at, Bytes: 5 << 20, Free: 1 << 30} }
	})
	got := f.auditText(t)
	for _, want := range []string{"/var/lib/robots/audit.jsonl", "Oldest record" + utcTime(at) + ", 1 h ago", "5.0 MiB, 1.0 GiB free", "Last checkpoint" + utcTime(at) + ", 1 h ago, to /mnt/checkpoints",
		"Last checkpoint" + utcTime(at) + ", 1 h ago, to /mnt/anchors; a newer one is overdue: disk full", "none written yet, to https://tsa.example/"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if got := newFixture(t).auditText(t); strings.Contains(got, "Verify") {
		t.Errorf("without access to the audit: %q", got)
	}
	for _, path := range []string{"/verify", "/report"} {
		if w := newFixture(t).do("POST", path, ""); w.Code != http.StatusNotImplemented {
			t.Errorf("%s without access to the audit: %d", path, w.Code)
		}
	}
}

func TestArchiveFacts(t *testing.T) {
	about := About{ArchiveDir: "/var/lib/warc", Archive: archive.Stats{
		Records: 1200, Revisits: 3, Left: 2, Space: audit.Space{Bytes: 5 << 20, Free: 1 << 30},
	}}
	f := newFixture(t, func(o *Options) { o.About = func() About { return about } })
	shows := func(want string) {
		t.Helper()
		if got := f.do("GET", "/about", "").Body.String(); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	shows("/var/lib/warc")
	shows("1,200 records since the start, 3 of them revisits, 2 responses not archived; 5.0 MiB on the disk, 1.0 GiB free")
	about.Archive.Err = errors.New("no space left")
	shows("cannot be written: no space left")
}

func TestReportIsDownloaded(t *testing.T) {
	e := newFakeEvidence()
	f := newFixture(t, e.option)
	e.report = func(_ context.Context, w io.Writer) error {
		if nested := f.do("POST", "/report", ""); nested.Code != http.StatusServiceUnavailable || nested.Header().Get("Retry-After") == "" {
			t.Errorf("a second report at once: %d", nested.Code)
		}
		_, err := io.WriteString(w, "<!DOCTYPE html><title>Report</title>")
		return err
	}
	w := f.do("POST", "/report", "")
	if w.Code != 200 || w.Body.String() != "<!DOCTYPE html><title>Report</title>" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), `attachment; filename="robotsproxy-report-`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	e.report = func(_ context.Context, w io.Writer) error {
		io.WriteString(w, "half a page")
		return errors.New("the disk fails" + hostileText)
	}
	if w := f.do("POST", "/report", ""); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "half a page") || !strings.Contains(w.Body.String(), "the disk fails") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := f.do("GET", "/report", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	if w := f.do("POST", "/report", "", "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("from a page of another origin: %d", w.Code)
	}
}

func TestConfigPage(t *testing.T) {
	text := "listen: 127.0.0.1:8080  # where\nfrom: \"<script>\u202e\"\n"
	f := newFixture(t, func(o *Options) { o.Config = func() []byte { return []byte(text) } })
	doc := inspectPage(t, f.do("GET", "/config", "").Body.String())
	if got := textOf(findOne(t, doc, "class", "code")); got != "listen: 127.0.0.1:8080  # where\nfrom: \"<script>\\u202e\"\n" {
		t.Errorf("%q", got)
	}
	if got := newFixture(t).do("GET", "/config", "").Body.String(); !strings.Contains(got, "does not show its configuration") {
		t.Error("unknown, and not said to be")
	}
}
