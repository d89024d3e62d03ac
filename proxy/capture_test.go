package proxy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"robotsproxy/policy"
	"robotsproxy/policy/usage"
	"robotsproxy/proxy"
	"robotsproxy/proxy/archive"
	"robotsproxy/proxy/archive/warc"
	"robotsproxy/robots/testkit"
)

// noIndex is an archive.Index that knows nothing.
type noIndex struct{}

func (noIndex) Find(archive.Digest) (of archive.Original, ok bool) { return of, false }
func (noIndex) Add(map[archive.Digest]archive.Original) error      { return nil }
func (noIndex) Remove(string) error                                { return nil }

// openArchive opens an archive in a directory of the test.
func openArchive(t testing.TB, change func(*archive.Options)) (*archive.Archive, string) {
	t.Helper()
	o := archive.Options{
		Dir: filepath.Join(t.TempDir(), "archive"), Index: noIndex{}, Software: "test", Prefix: "test", MaxFile: 1 << 30, MaxBody: 1 << 30,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	a, err := archive.Open(o)
	testkit.Must(t, err)
	return a, o.Dir
}

// archived reads the archive, and returns the block of each record by its type and URL.
func archived(t *testing.T, a *archive.Archive, dir string) map[string]string {
	t.Helper()
	testkit.Must(t, a.Close())
	all := map[string]string{}
	readArchive(t, dir, func(rec *warc.Record) {
		block, err := io.ReadAll(rec.Block)
		testkit.Must(t, err)
		all["protocol "+rec.Type()+" "+rec.TargetURI()] = strings.Join(rec.All("WARC-Protocol"), " ")
		all[strings.TrimSpace(rec.Type()+" "+rec.TargetURI()+" "+rec.Get("WARC-Truncated"))] = string(block)
	})
	return all
}

// readArchive calls f with each record of an archive.
func readArchive(t *testing.T, dir string, f func(*warc.Record)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.warc"))
	testkit.Must(t, err)
	for _, name := range files {
		data, err := os.ReadFile(name)
		testkit.Must(t, err)
		r, err := warc.NewReader(bytes.NewReader(data))
		testkit.Must(t, err)
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			testkit.Must(t, err)
			f(rec)
		}
	}
}

// What the origin has sent is in the archive, whichever way it came, with the audit's ID beside it.
func TestArchive(t *testing.T) {
	t.Parallel()
	for _, over := range routes {
		for _, size := range []int{0, 5, 100_000, 1_000_000} {
			t.Run(fmt.Sprint(over.name, " ", size), func(t *testing.T) {
				t.Parallel()
				page := strings.Repeat("x", size)
				origin := over.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					io.WriteString(w, page)
				})
				a, dir := openArchive(t, nil)
				r := start(t, setup{front: over.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Archive = a }})
				_, _, err := get(over.client(r), origin.URL+"/other") // without a body, egress sends it directly
				testkit.Must(t, err)
				r.records.last(t, 1)
				resp, err := over.client(r).Post(origin.URL+"/page", "text/plain", strings.NewReader("upload"))
				testkit.Must(t, err)
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != page {
					t.Errorf("the client got %d bytes, %v", len(got), err)
				}
				rec := r.records.last(t, 2)
				all := archived(t, a, dir)
				if request := all["request "+origin.URL+"/page"]; !strings.HasPrefix(request, "POST /page HTTP/1.1\r\nHost: "+origin.host()+"\r\n") || !strings.HasSuffix(request, "\r\n\r\nupload") {
					t.Errorf("request %q", request)
				}
				response := all["response "+origin.URL+"/page"]
				if head, body, _ := strings.Cut(response, "\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || body != page {
					t.Errorf("response %q with %d bytes", head, len(body))
				}
				if about := all["metadata "+origin.URL+"/page"]; !strings.Contains(about, "id: "+rec.ID+"\r\n") || !strings.Contains(about, "decision: allow\r\n") {
					t.Errorf("metadata %q", about)
				}
				wantProtocol := "http/1.1"
				if over.h2origin {
					wantProtocol = "h2"
				}
				if over.tls {
					wantProtocol += " tls/1.3"
				}
				for _, path := range []string{"/page", "/other"} {
					if got := all["protocol response "+origin.URL+path] + all["protocol revisit "+origin.URL+path]; got != wantProtocol {
						t.Errorf("WARC-Protocol of %s %q, want %q", path, got, wantProtocol)
					}
				}
				if rec.Archived.ID == "" || rec.Archived.Offset == 0 || !strings.HasSuffix(rec.Archived.File, ".warc") {
					t.Errorf("the record has %+v", rec.Archived)
				}
			})
		}
	}
}

// archive.on_error: refuse lets the client not take for complete what was not archived, and sends nothing
// after that. continue passes it on.
func TestArchiveCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, over := range routes {
		for _, goOn := range []bool{false, true} {
			for form, page := range map[string]string{"chunked": "page", "length": "page", "empty": "", "none": ""} {
				t.Run(fmt.Sprintf("%s continue=%t %s", over.name, goOn, form), func(t *testing.T) {
					t.Parallel()
					origin := over.serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
						switch form {
						case "length", "empty":
							w.Header().Set("Content-Length", strconv.Itoa(len(page)))
						case "none":
							w.WriteHeader(http.StatusNoContent)
						}
						io.WriteString(w, page)
					})
					a, dir := openArchive(t, func(o *archive.Options) { o.Continue = goOn })
					testkit.Must(t, os.RemoveAll(dir))
					r := start(t, setup{front: over.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Archive, o.Ready = a, a.Refusal }})
					got := []string{}
					for range 2 {
						resp, err := over.client(r).Get(origin.URL + "/page")
						if err != nil && strings.Contains(err.Error(), "Service Unavailable") { // the tunnel
							got = append(got, "503 Service Unavailable")
							continue
						} else if err != nil {
							got = append(got, "broken")
							continue
						}
						body, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						switch {
						case err != nil:
							got = append(got, "broken")
						case resp.StatusCode/100 != 2:
							got = append(got, resp.Status)
						default:
							got = append(got, "whole"+string(body))
						}
					}
					want := "broken 503 Service Unavailable"
					if goOn {
						want = "whole" + page + " whole" + page
					}
					if strings.Join(got, " ") != want {
						t.Errorf("the client got %q, want %q", got, want)
					}
					if pages := strings.Count(strings.Join(origin.paths(), " "), "/page"); !goOn && pages != 1 {
						t.Errorf("the origin got %d requests", pages)
					}
					rec := r.records.last(t, 1)
					if rec.Archived.ID != "" || errors.Is(rec.Err, archive.ErrUnwritable) == goOn {
						t.Errorf("the record has %+v, %v", rec.Archived, rec.Err)
					}
				})
			}
		}
	}
}

// What a usage preference withholds from the client is not archived.
func TestWithheldIsNotArchived(t *testing.T) {
	t.Parallel()
	origin := routes[0].serve(t, rules, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Robots-Tag", "noai")
		io.WriteString(w, "page")
	})
	a, dir := openArchive(t, nil)
	r := start(t, setup{
		origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.Archive = a },
		policyOptions: func(o *policy.Options) { o.Usage = usage.Policy{Purposes: usage.SetOf(usage.TrainAI), Refuse: true} },
	})
	resp, err := r.client(false).Get(origin.URL + "/page")
	testkit.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || !r.records.last(t, 1).Withheld {
		t.Fatalf("status %d", resp.StatusCode)
	}
	if all := archived(t, a, dir); len(all) != 0 {
		t.Errorf("archived: %q", all)
	}
}
