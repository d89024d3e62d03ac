//go:build linux && !race

package audit

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

// BenchmarkLargeBodies: bodies of GiB pass in constant memory in both directions, and their records end at
// archive.max_body.
func BenchmarkLargeBodies(b *testing.B) {
	const maxBody, most, block = 64 << 20, 100 << 20, 1 << 15
	o := e2e.NewOrigin(b, "volume", "")
	o.Handle("/down", e2e.RepeatedPage(make([]byte, block), 4<<30/block))
	o.Handle("/up", e2e.UploadPage)
	for _, form := range forms {
		b.Run(form, func(b *testing.B) {
			p, dir := startProxy(b, e2e.Settings{"archive.compress": form, "archive.max_body": "64MiB"})
			c := p.Client(b, false)
			c.Timeout = 0
			for b.Loop() {
				resp, err := c.Get(o.URL("http", "/down"))
				testkit.Must(b, err)
				if n, err := io.Copy(io.Discard, resp.Body); n != 4<<30 || err != nil {
					b.Errorf("%d bytes came down: %v", n, err)
				}
				got := e2e.Do(b, c, http.MethodPost, o.URL("http", "/up"), io.LimitReader(e2e.Zeros{}, 1<<30))
				if !strings.HasPrefix(string(got.Body), strconv.Itoa(1<<30)+" ") {
					b.Errorf("the origin got %s", got.Body)
				}
			}
			p.WantPeak(b, most)
			p.End(b)
			cut := 0
			for _, r := range readArchive(b, dir) {
				if r.Truncated == "length" && r.Bytes == maxBody {
					cut++
				}
			}
			if cut != 2*b.N {
				b.Errorf("%d records end at archive.max_body, want %d", cut, 2*b.N)
			}
		})
	}
}

// BenchmarkManyBodies: bodies that are under way at once take little more memory than limits.memory, and all are
// archived.
func BenchmarkManyBodies(b *testing.B) {
	const clients, each, most = 10, 60, 150 << 20
	for _, size := range []int{250_000, 1 << 20} { // the first would be kept in memory
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			p, dir := startProxy(b, e2e.Settings{"limits.memory": "96MiB", "archive.dedup": false})
			for b.Loop() {
				var begun, all sync.WaitGroup
				begun.Add(clients * each)
				for _, c := range p.Clients(b, clients) {
					o := e2e.NewOrigin(b, "many", "")
					o.Handle("/", func(w http.ResponseWriter, r *http.Request) {
						w.Write(body[1:])
						http.NewResponseController(w).Flush()
						begun.Done()
						begun.Wait() // all are under way
						w.Write(body[:1])
					})
					for range each {
						all.Go(func() {
							if got := e2e.Get(b, c, o.URL("http", "/")); got.Status != http.StatusOK || len(got.Body) != len(body) {
								b.Errorf("%v", got)
								begun.Done()
							}
						})
					}
				}
				all.Wait()
			}
			p.WantPeak(b, most)
			p.End(b)
			whole := 0
			for _, r := range readArchive(b, dir) {
				if r.Type == "response" && r.Bytes == int64(len(body)) && r.Truncated == "" {
					whole++
				}
			}
			if whole != clients*each*b.N {
				b.Errorf("%d responses are archived, want %d", whole, clients*each*b.N)
			}
		})
	}
}
