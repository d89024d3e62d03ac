package fetch

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"robotsproxy/robots"
)

// TestDenied: no request goes to a denied host, in whatever spelling, and a redirect there fails
// the fetch.
func TestDenied(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host)
		_, port, _ := net.SplitHostPort(r.Host)
		http.Redirect(w, r, "http://[::FFFF:127.0.0.2]:"+port+"/robots.txt", http.StatusFound)
	})
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	for denied, want := range map[string]int{"127.0.0.2": 1, "127.0.0.1": 0} {
		asked = nil
		c, err := New(Options{Sender: Unpaced(tr), Denied: func(t robots.Target) bool { return t.Origin.Host == denied }})
		if err != nil {
			t.Fatal(err)
		}
		a := c.Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: "FooBot"})
		if a.Err == nil || !strings.Contains(a.Err.Error(), "requests to "+denied+" are not permitted") || len(asked) != want || a.Connected != (want > 0) {
			t.Errorf("%s denied: %+v, after %q", denied, a, asked)
		}
	}
}

// TestFrom: RFC 9110 10.1.2, on each hop.
func TestFrom(t *testing.T) {
	got := make(chan []string, 2)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header["From"]
		if r.URL.Path == "/robots.txt" {
			http.Redirect(w, r, "/real.txt", http.StatusFound)
		}
	})
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	for from, want := range map[string][]string{"bot@foo.example": {"bot@foo.example"}, "": nil} {
		c, err := New(Options{Sender: Unpaced(tr), From: from})
		if err != nil {
			t.Fatal(err)
		}
		if a := c.Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: "FooBot"}); a.Err != nil || a.Redirects != 1 {
			t.Fatalf("%+v", a)
		}
		for range 2 {
			if diff := cmp.Diff(want, <-got); diff != "" {
				t.Errorf("From (-want +got):\n%s", diff)
			}
		}
	}
	if _, err := New(Options{Sender: Unpaced(tr), From: "a@b\r\nX: y"}); err == nil {
		t.Error("what no header can hold is taken")
	}
}
