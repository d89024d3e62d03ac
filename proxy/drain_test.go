package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestDrainMovesClients checks that each client connection gets at most one more response (with
// HTTP/2: a few) during a drain and that no request fails.
func TestDrainMovesClients(t *testing.T) {
	t.Parallel()
	const hears = 20
	for _, route := range routes {
		t.Run(route.name, func(t *testing.T) {
			origin := route.serve(t, "", func(w http.ResponseWriter, r *http.Request) {})
			r := start(t, setup{front: route.front, origins: []*httptest.Server{origin.Server}})
			client := route.client(r)
			ask := func() (reused bool) {
				trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused }}
				req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, origin.URL+"/", nil)
				testkit.Must(t, err)
				resp, err := client.Do(req)
				testkit.Must(t, err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Fatalf("answered with %s", resp.Status)
				}
				return reused
			}
			testkit.Eventually(t, "the connection is persistent before the drain", ask) // the client keeps it a moment after the response
			r.handler.Drain()
			for round := range 3 {
				n := 0
				for ask() {
					if n++; n > hears || !route.h2 && n > 1 {
						t.Fatalf("round %d: the connection stays open after %d responses", round, n)
					}
				}
			}
		})
	}
}
