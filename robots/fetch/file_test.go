package fetch

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots"
)

// TestFile: another file than robots.txt is fetched alike, and a body that its Check rejects fails
// the fetch. The record has that body.
func TestFile(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		want       outline
		err, bad   string
	}{
		{"a file", "good", 200, outline{Status: 200, Redirects: 1, Body: "good", Connected: true, MaxAge: -1}, "", ""},
		{"no file", "an error page", 404, outline{Status: 404, Redirects: 1, Connected: true, MaxAge: -1}, "", ""},
		{"a body that cannot be read", "bad", 200, outline{Status: 200, Redirects: 1, Connected: true, Fail: true, MaxAge: -1}, "/file.json: not good", "bad"},
		{"a cut body", "good" + strings.Repeat(" ", robots.MaxBytes), 200, outline{Status: 200, Redirects: 1, Connected: true, Fail: true, MaxAge: -1}, "/file.json: not good", "good" + strings.Repeat(" ", robots.MaxBytes-4)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.Path+" "+r.Header.Get("Accept"))
				if r.URL.Path == "/.well-known/file.json" {
					http.Redirect(w, r, "/real", http.StatusFound)
					return
				}
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			})
			tr := &http.Transport{DisableCompression: true}
			t.Cleanup(tr.CloseIdleConnections)
			var reports []Report
			file := File{Path: "/.well-known/file.json", Accept: "application/json", Check: func(body []byte) error {
				if string(body) != "good" {
					return errors.New("not good")
				}
				return nil
			}}
			client, err := New(Options{File: file, Sender: Unpaced(tr), Record: func(r Report) error { reports = append(reports, r); return nil }})
			if err != nil {
				t.Fatal(err)
			}
			a := client.Fetch(t.Context(), Request{Origin: originOf(t, s.URL)})
			if diff := cmp.Diff(c.want, outlineOf(t, a)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a.Err != nil && !strings.HasSuffix(a.Err.Error(), c.err) {
				t.Errorf("got %v", a.Err)
			}
			if diff := cmp.Diff([]string{"/.well-known/file.json application/json", "/real application/json"}, asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if len(reports) != 1 || string(reports[0].Rejected) != c.bad || len(reports[0].Hops) != 2 || reports[0].Hops[0] != s.URL+"/.well-known/file.json" {
				t.Errorf("recorded: %+v", reports)
			}
		})
	}
}
