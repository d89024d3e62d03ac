package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"weak"

	"robotsproxy/policy"
	"robotsproxy/proxy"
	"robotsproxy/robots/testkit"
)

// TestUseUnderLoad checks that each request is answered by the Rules of one generation.
func TestUseUnderLoad(t *testing.T) {
	testkit.Long(t, "volume")
	t.Parallel()
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, rules, func(w http.ResponseWriter, q *http.Request) {
				io.WriteString(w, q.Header.Get("User-Agent")+" "+q.Header.Get("From"))
			})
			r := startRuled(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}, change: func(o *proxy.Options) { o.UserAgent, o.From = "Odd/1", "odd@foo.example" }})
			var asked sync.WaitGroup
			for range 4 {
				asked.Go(func() {
					c := route.client(r.rig)
					for range 50 {
						_, body, err := get(c, origin.URL+"/page")
						if err != nil || body != "Odd/1 odd@foo.example" && body != "Even/1 even@foo.example" {
							t.Errorf("%q %v", body, err)
							return
						}
					}
				})
			}
			var overs []<-chan struct{}
			for i := range 100 {
				overs = append(overs, r.use(func(u *proxy.Rules, _ *policy.Options) {
					u.UserAgent, u.From = "Odd/1", "odd@foo.example"
					if i%2 == 0 {
						u.UserAgent, u.From = "Even/1", "even@foo.example"
					}
				}))
			}
			asked.Wait()
			for _, over := range overs {
				<-over
			}
		})
	}
}

// TestUseReleasesOldRules checks that a long request keeps only its own Rules in memory.
func TestUseReleasesOldRules(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	origin := serve(t, false, rules, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-release
	})
	r := startRuled(t, setup{})
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end)
	var asked sync.WaitGroup
	asked.Go(func() {
		_, _, err := get(r.client(false), origin.URL+"/held")
		testkit.Must(t, err)
	})
	<-begun
	r.use(deny)
	between := weak.Make(r.rules.Engine)
	over := r.use(deny)
	testkit.Eventually(t, "the rules from before are collected", func() bool {
		runtime.GC()
		return between.Value() == nil
	})
	select {
	case <-over:
		t.Error("the previous Rules are reported unused")
	default:
	}
	end()
	asked.Wait()
	<-over
}
