package fetch

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/google/go-cmp/cmp"
)

// TestHeaders: Result has the fields that matter of the last response, cut at MaxHeader.
func TestHeaders(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		send   http.Header
		want   *Headers
	}{
		{"all", 200, http.Header{
			"Content-Type": {"text/plain; charset=utf-8"}, "Last-Modified": {"Sat, 21 Nov 2026 10:00:00 GMT"}, "Etag": {`W/"x"`},
			"Cache-Control": {"max-age=60", "private"}, "Age": {"5"}, "Content-Encoding": {"identity"}, "Set-Cookie": {"secret=1"},
		}, &Headers{"text/plain; charset=utf-8", "identity", "Sat, 21 Nov 2026 10:00:00 GMT", `W/"x"`, "max-age=60, private", "5"}},
		{"of a failure", 503, http.Header{"Content-Type": nil, "Age": {"7"}}, &Headers{Age: "7"}},
		{"none", 404, http.Header{"Content-Type": nil}, nil},
		{"cut", 200, http.Header{"Content-Type": nil, "Etag": {strings.Repeat("e", MaxHeader+1)}}, &Headers{ETag: strings.Repeat("e", MaxHeader)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/final" {
					w.Header().Set("ETag", "of the redirect")
					http.Redirect(w, r, "/final", http.StatusFound)
					return
				}
				for name, values := range tc.send {
					w.Header()[name] = values
				}
				w.WriteHeader(tc.status)
			})
			a := newClient(t, 0).Fetch(t.Context(), Request{Origin: originOf(t, s.URL), UserAgent: ""})
			if diff := cmp.Diff(tc.want, a.Headers); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// A readerFunc is a body.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestHeadIsFreedBeforeText: a long head is not in memory while the text is read.
func TestHeadIsFreedBeforeText(t *testing.T) {
	long := new([256 << 10]byte)
	head, freed := weak.Make(long), false
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X": {unsafe.String(&long[0], len(long))}}}
	res.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
		runtime.GC()
		freed = head.Value() == nil
		return 0, io.EOF
	}))
	f := fetching{client: newClient(t, 0), result: new(Result)}
	if err := f.read(res); err != nil || !freed {
		t.Errorf("%v; the head is freed: %v", err, freed)
	}
}

// TestHeadersAreOnTheirOwn: the Headers do not keep the head of the response in memory.
func TestHeadersAreOnTheirOwn(t *testing.T) {
	tag := []string{`"33a64df5"`}
	if picked := headersOf(http.Header{"Etag": tag}); unsafe.StringData(picked.ETag) == unsafe.StringData(tag[0]) {
		t.Error("a piece of the head is kept")
	}
}
