package operations

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// published returns the certificates that the proxy at an address publishes.
func published(t *testing.T, addr string) (pem []byte, n int) {
	t.Helper()
	pem = e2e.Get(t, e2e.Operator(t), "http://"+addr+"/ca.pem").Body
	return pem, bytes.Count(pem, []byte("BEGIN CERTIFICATE"))
}

// awaitPublished waits until the proxy at an address publishes n certificates, and returns them.
func awaitPublished(t *testing.T, addr string, n int) (pem []byte) {
	t.Helper()
	testkit.Eventually(t, "the certificates are published", func() bool {
		var is int
		pem, is = published(t, addr)
		return is == n
	})
	return pem
}

// trusting returns a client of the proxy at an address that trusts some certificates alone, and makes a new connection for each
// request.
func trusting(t *testing.T, p *e2e.Proxy, addr string, pem []byte) *http.Client {
	t.Helper()
	c, roots := p.Client(t, false), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %q", pem)
	}
	tr := c.Transport.(*http.Transport)
	tr.Proxy, tr.TLSClientConfig = http.ProxyURL(&url.URL{Scheme: "http", Host: addr}), &tls.Config{RootCAs: roots}
	tr.DisableKeepAlives = true
	return c
}

// under calls f while a client requests a page again and again. Each request must get it.
func under(t *testing.T, c *http.Client, page string, f func()) {
	t.Helper()
	stop := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for n := 1; ; n++ {
			resp, err := c.Get(page)
			if err != nil {
				t.Errorf("request %d: %v", n, err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("request %d: %s", n, resp.Status)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	f()
	close(stop)
	load.Wait()
}

// signer returns the CA that signs the certificates of a proxy.
func signer(t *testing.T, c *http.Client, page string) string {
	t.Helper()
	resp, err := c.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	chain := resp.TLS.VerifiedChains[0]
	return chain[len(chain)-1].SerialNumber.String()
}

// TestCARotation replaces the CA as https.md says. A client that trusts both sees nothing of it.
func TestCARotation(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "rotation", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	p, page := e2e.StartProxy(t, e2e.Unpaced), o.URL("https", "/page")
	old := trusting(t, p, p.Listen, awaitPublished(t, p.Listen, 1))
	reload := func() {
		t.Helper()
		e2e.API[struct{}](t, p, http.MethodPost, "reload", "", http.StatusOK)
	}
	e2e.Command(t, "ca", "next", "--state", p.State).Want(t, 0)
	reload()
	both := awaitPublished(t, p.Listen, 2)
	if shown := e2e.Command(t, "ca", "show", "--pem", "--state", p.State).Want(t, 0).Stdout; shown != string(both) {
		t.Errorf("ca show --pem prints %s", shown)
	}
	client := trusting(t, p, p.Listen, both)
	before := signer(t, client, page)
	if got := e2e.Get(t, old, page); got.Status != http.StatusOK {
		t.Errorf("before: %v", got)
	}
	under(t, client, page, func() {
		e2e.Command(t, "ca", "rotate", "--state", p.State).Want(t, 0)
		reload()
		awaitPublished(t, p.Listen, 1)
		for range 10 {
			signer(t, client, page)
		}
	})
	if after := signer(t, client, page); after == before {
		t.Error("the old CA still signs")
	}
	if resp, err := old.Get(page); err == nil {
		resp.Body.Close()
		t.Error("a client that trusts the old CA alone is served")
	}
}

// TestCARotationOfAFleet replaces the CA of two replicas behind HAProxy as https.md says.
func TestCARotationOfAFleet(t *testing.T) {
	testkit.Long(t, "real peers")
	t.Parallel()
	o := e2e.NewOrigin(t, "fleetca", "")
	o.Handle("/page", e2e.TextPage("text/plain", "a page"))
	own := e2e.Unpaced.With(e2e.Settings{"store.redis": storeURL(t), "store.replicas": 2})
	page, dir := o.URL("https", "/page"), t.TempDir()
	files := func(name string) (cert, key string) {
		return filepath.Join(dir, name, "ca.pem"), filepath.Join(dir, name, "ca.key")
	}
	for _, name := range []string{"first", "second"} {
		e2e.Command(t, "ca", "path", "--state", filepath.Join(dir, name)).Want(t, 0)
	}
	with := func(i int, name, next string) e2e.Settings {
		cert, key := files(name)
		s := own.With(e2e.Settings{"store.replica": []string{"one", "two"}[i], "tls.ca_cert": cert, "tls.ca_key": key})
		if next != "" {
			s["tls.ca_next"], _ = files(next)
		}
		return s
	}
	var all []*e2e.Proxy
	for i := range 2 {
		all = append(all, e2e.StartProxy(t, with(i, "first", "")))
	}
	front := startHAProxy(t, all)
	reload := func(i int, s e2e.Settings) {
		t.Helper()
		all[i].Rewrite(t, s)
		e2e.API[struct{}](t, all[i], http.MethodPost, "reload", "", http.StatusOK)
	}
	for i := range all {
		reload(i, with(i, "first", "second"))
	}
	client := trusting(t, all[0], front, awaitPublished(t, front, 2))
	before := signer(t, client, page)
	under(t, client, page, func() {
		for i := range all {
			reload(i, with(i, "second", "first"))
			for range 20 {
				signer(t, client, page)
			}
		}
	})
	for i := range all {
		reload(i, with(i, "second", ""))
		awaitPublished(t, all[i].Listen, 1)
	}
	for range 4 {
		if after := signer(t, client, page); after == before {
			t.Error("the old CA still signs")
		}
	}
}
