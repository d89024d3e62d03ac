//go:build linux && !race

package archive

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestMemoryOfLargeBodies: bodies of GiB pass in constant memory in both directions, and their records end at
// archive.max_body.
func TestMemoryOfLargeBodies(t *testing.T) {
	testkit.Long(t, "volume")
	const maxBody, most = 64 << 20, 100 << 20
	o := e2e.NewOrigin(t, "volume", "")
	o.Handle("/down", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(4<<30))
		io.Copy(w, io.LimitReader(zeros{}, 4<<30))
	})
	o.Handle("/up", e2e.UploadPage)
	for _, form := range forms {
		p, dir := startProxy(t, e2e.Settings{"archive.compress": form, "archive.max_body": "64MiB"})
		c := p.Client(t, false)
		c.Timeout = 0
		resp, err := c.Get(o.URL("http", "/down"))
		testkit.Must(t, err)
		if n, err := io.Copy(io.Discard, resp.Body); n != 4<<30 || err != nil {
			t.Errorf("%s: %d bytes came down: %v", form, n, err)
		}
		got := e2e.Do(t, c, http.MethodPost, o.URL("http", "/up"), io.LimitReader(zeros{}, 1<<30))
		if !strings.HasPrefix(string(got.Body), strconv.Itoa(1<<30)+" ") {
			t.Errorf("%s: the origin got %s", form, got.Body)
		}
		if peak := p.Usage(t).Peak; peak > most {
			t.Errorf("%s: %d MiB of memory, want at most %d", form, peak>>20, most>>20)
		}
		p.End(t)
		cut := 0
		for _, r := range readArchive(t, dir) {
			if r.Truncated == "length" && r.Bytes == maxBody {
				cut++
			}
		}
		if cut != 2 {
			t.Errorf("%s: %d records end at archive.max_body, want 2", form, cut)
		}
	}
}

// TestMemoryOfManyBodies: bodies that are under way at once take little more memory than limits.memory, and all are
// archived.
func TestMemoryOfManyBodies(t *testing.T) {
	testkit.Long(t, "volume")
	for _, size := range []int{250_000, 1 << 20} { // the first would be kept in memory
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			const clients, each, most = 10, 60, 150 << 20
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			var begun sync.WaitGroup
			begun.Add(clients * each)
			p, dir := startProxy(t, e2e.Settings{"limits.memory": "96MiB", "archive.dedup": false})
			var all sync.WaitGroup
			for _, c := range p.Clients(t, clients) {
				o := e2e.NewOrigin(t, "many", "")
				o.Handle("/", func(w http.ResponseWriter, r *http.Request) {
					w.Write(body[1:])
					http.NewResponseController(w).Flush()
					begun.Done()
					begun.Wait() // all are under way
					w.Write(body[:1])
				})
				for range each {
					all.Go(func() {
						if got := e2e.Get(t, c, o.URL("http", "/")); got.Status != http.StatusOK || len(got.Body) != len(body) {
							t.Errorf("%v", got)
							begun.Done()
						}
					})
				}
			}
			all.Wait()
			if peak := p.Usage(t).Peak; peak > most {
				t.Errorf("%d MiB of memory, want at most %d", peak>>20, most>>20)
			}
			p.End(t)
			whole := 0
			for _, r := range readArchive(t, dir) {
				if r.Type == "response" && r.Bytes == int64(len(body)) && r.Truncated == "" {
					whole++
				}
			}
			if whole != clients*each {
				t.Errorf("%d responses are archived, want %d", whole, clients*each)
			}
		})
	}
}
