package fetch

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		c, err := New(Options{Transport: tr, From: from})
		if err != nil {
			t.Fatal(err)
		}
		if a := c.Fetch(t.Context(), originOf(t, s.URL), "FooBot"); a.Err != nil || a.Redirects != 1 {
			t.Fatalf("%+v", a)
		}
		for range 2 {
			if diff := cmp.Diff(want, <-got); diff != "" {
				t.Errorf("From (-want +got):\n%s", diff)
			}
		}
	}
	if _, err := New(Options{Transport: tr, From: "a@b\r\nX: y"}); err == nil {
		t.Error("what no header can hold is taken")
	}
}
