// Package guide is what the proxy says to who asks itself, at its own address: a
// page for browsers and a few lines for others, the certificate to trust
// (/ca.pem, /ca.der), the script that leads a browser through the proxy
// (/proxy.pac), and whether a balancer may send clients here (/readyz).
//
// It tells of the proxy alone: of no client, no request and no site. It asks for
// nothing, and sends nothing anywhere. Whether a request is one for the proxy
// itself is package proxy's to judge.
//
// What a stranger can put on the page is the Host that it asked for, and that only
// where it is a host and a port; else the address stands there that the connection
// came in at. Where neither is known, or the certificate cannot be read, the answer
// is 500 with a line that says so.
//
// A [Page] may be shared by any number of goroutines.
package guide

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"

	"robotsproxy/robots"
)

// Options make a Page.
type Options struct {
	CAPEM    func() []byte // the certificates of the CA as PEM, its own first; required
	Ready    func() error  // why the proxy takes no requests at present, which is not passed on; required
	Operator string        // how whoever runs the proxy is reached, an e-mail address; "": not said
	TLS      bool          // the proxy's own port speaks TLS
	Sealed   bool          // HTTPS passes unopened, and nobody needs the CA
	Monitor  bool          // requests are judged and recorded, and neither blocked nor held up
	Version  string
}

// A Page answers at the proxy's own address. New makes one.
type Page struct {
	o     Options
	paths map[string]func(http.ResponseWriter, *http.Request) error
}

// New checks the options and makes a Page.
func New(o Options) (*Page, error) {
	if o.CAPEM == nil || o.Ready == nil {
		return nil, errors.New("guide: option CAPEM or Ready is missing")
	}
	if _, err := certificate(o.CAPEM()); err != nil {
		return nil, err
	}
	p := &Page{o: o}
	p.paths = map[string]func(http.ResponseWriter, *http.Request) error{
		"/":            p.page,
		"/ca.pem":      p.caPEM,
		"/ca.der":      p.caDER,
		"/proxy.pac":   p.pac,
		"/readyz":      p.ready,
		"/robots.txt":  robotsTXT,
		"/favicon.ico": noIcon,
	}
	return p, nil
}

// Knows says whether there is an answer at a path.
func (p *Page) Knows(path string) bool {
	_, known := p.paths[path]
	return known
}

// ServeHTTP answers a GET or HEAD. It looks at the path, Host and Accept alone.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, known := p.paths[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	maps.Copy(w.Header(), http.Header{
		"Cache-Control":                {"no-store"},
		"Cross-Origin-Resource-Policy": {"same-origin"}, // no site's page may take in what is here
		"Referrer-Policy":              {"no-referrer"},
		"X-Content-Type-Options":       {"nosniff"},
		"X-Frame-Options":              {"DENY"}, // for what does not know frame-ancestors
	})
	if err := answer(w, r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// caPEM sends the certificate as curl, Python, Node and most others want it.
func (p *Page) caPEM(w http.ResponseWriter, _ *http.Request) error {
	text := p.o.CAPEM()
	if _, err := certificate(text); err != nil {
		return err
	}
	return send(w, caType, "robotsproxy-ca.pem", text)
}

// caDER sends it as Windows, Android and iOS want it, under an ending that they know.
func (p *Page) caDER(w http.ResponseWriter, _ *http.Request) error {
	cert, err := certificate(p.o.CAPEM())
	if err != nil {
		return err
	}
	return send(w, caType, "robotsproxy-ca.crt", cert.Raw)
}

func (p *Page) pac(w http.ResponseWriter, r *http.Request) error {
	at, err := p.at(r)
	if err != nil {
		return err
	}
	if p.o.TLS {
		at = "https://" + at
	}
	return send(w, "application/x-ns-proxy-autoconfig", "proxy.pac", PAC(at))
}

// robotsTXT keeps crawlers away from the page.
func (p *Page) ready(w http.ResponseWriter, _ *http.Request) error {
	if p.o.Ready() != nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return nil
	}
	return send(w, plainText, "", []byte("ready\n"))
}

func robotsTXT(w http.ResponseWriter, _ *http.Request) error {
	return send(w, plainText, "", []byte("User-agent: *\nDisallow: /\n"))
}

// noIcon is what browsers ask for by themselves.
func noIcon(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusNotFound)
	return nil
}

const (
	// caType has browsers offer to trust it, where they can; see Content-Disposition in send.
	caType    = "application/x-x509-ca-cert"
	plainText = "text/plain; charset=utf-8"
)

// send writes a whole answer; name is what a browser saves it as, "": nothing.
func send(w http.ResponseWriter, contentType, name string, body []byte) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if name != "" { // inline: Firefox would save an attachment without asking whether to trust it
		w.Header().Set("Content-Disposition", `inline; filename="`+name+`"`)
	}
	w.Write(body) // a client that has left misses nothing but this
	return nil
}

var errNowhere = errors.New("the proxy cannot tell at which address it is")

// at is where the proxy is for who asks, as host:port: the Host that was asked for,
// or where that is none the address that the connection came in at.
func (p *Page) at(r *http.Request) (string, error) {
	scheme := "http"
	if p.o.TLS {
		scheme = "https"
	}
	if o, err := robots.ParseOrigin(scheme, r.Host); err == nil {
		return o.Addr(), nil
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if o, err := robots.ParseOrigin(scheme, local.String()); err == nil {
			return o.Addr(), nil
		}
	}
	return "", errNowhere
}

// certificate reads the first certificate of a PEM text.
func certificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("guide: the CA's certificate: %w", err)
		}
		return cert, nil
	}
	return nil, errors.New("guide: the CA has no certificate")
}

// Fingerprint is the SHA-256 of a certificate's DER, as browsers show it.
func Fingerprint(der []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(der)), " ", ":")
}

// wantsHTML says whether a client asked for HTML by name, as browsers do.
func wantsHTML(accept []string) bool {
	return strings.Contains(strings.ToLower(strings.Join(accept, ",")), "text/html")
}
