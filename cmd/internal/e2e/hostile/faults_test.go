package hostile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"html"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// Strangers that cannot connect properly, again and again, cause one warning of each kind. They hide neither the warning about
// a client with a name, nor that client on the dashboard, and another client works meanwhile.
func TestWrongClientsDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	o := e2e.NewOrigin(t, "faults", "")
	o.Handle("/a", e2e.TextPage("text/plain", "a"))
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Named("127.0.0.3", "127.0.0.4")))
	distrust := func(from string) {
		c := p.DialFrom(t, from)
		defer c.Close()
		c.Send(t, "CONNECT "+o.Hostport("https")+" HTTP/1.1", "Host: x")
		if got := c.Receive(t, http.MethodConnect); got.Status != http.StatusOK {
			t.Errorf("CONNECT: %d", got.Status)
			return
		}
		tls.Client(c, &tls.Config{RootCAs: x509.NewCertPool(), ServerName: o.Name}).Handshake()
	}
	speakTLS := func(from string) {
		c := p.DialFrom(t, from)
		defer c.Close()
		tls.Client(c, &tls.Config{ServerName: o.Name}).Handshake()
		io.Copy(io.Discard, c)
	}
	var honest sync.WaitGroup
	honest.Go(func() {
		client := e2e.From(t, p.Client(t, false), "127.0.0.4")
		for i := range 10 {
			scheme := []string{"http", "https"}[i%2]
			if got := e2e.Get(t, client, o.URL(scheme, "/a")); got.Status != http.StatusOK {
				t.Errorf("%s: %v", scheme, got)
			}
		}
	})
	const many = 100
	for i := range many {
		stranger := fmt.Sprintf("127.0.7.%d", i+1)
		distrust(stranger)
		speakTLS(stranger)
	}
	distrust("127.0.0.3")
	honest.Wait()
	var page string
	testkit.Eventually(t, "all connections count", func() bool {
		page = html.UnescapeString(string(e2e.Get(t, e2e.Operator(t), "http://"+p.Admin+"/clients").Body))
		return strings.Count(page, fmt.Sprintf(`data-name="Connections">%d<`, many)) == 2
	})
	if !strings.Contains(page, "client-127.0.0.3</bdi>") {
		t.Errorf("the dashboard does not show the client with a name:\n%s", page)
	}
	testkit.Eventually(t, "the log names the last client", func() bool { return strings.Contains(p.Stderr.String(), "client=client-127.0.0.3") })
	log := p.Stderr.String()
	for warning, want := range map[string]int{
		"level=WARN": 3, "does not trust the proxy's CA": 2, "client=client-127.0.0.3": 1, "speaks TLS": 1, "client=client-127.0.0.4": 0,
	} {
		if n := strings.Count(log, warning); n != want {
			t.Errorf("the log has %q %d times, want %d", warning, n, want)
		}
	}
	if http, https := len(o.Pages("http")), len(o.Pages("https")); http != 5 || https != 5 {
		t.Errorf("the origin got %d and %d pages", http, https)
	}
}
