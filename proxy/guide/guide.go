// Package guide serves the pages at the proxy's own address: a guide for browsers and a short text
// for other clients, the certificate to trust (/ca.pem, /ca.der), the script that leads a browser
// through the proxy (/proxy.pac), and whether a load balancer may send clients here (/readyz).
//
// The pages tell about the proxy alone: nothing about clients, requests or origins. They ask for
// nothing and send nothing anywhere. Package proxy decides which requests are for the proxy itself.
//
// The only client input on a page is the Host of its request, and that only if it is a host and a
// port. Otherwise the page shows the local address of the connection. If neither is known, the
// answer is 500 with a one-line reason.
//
// Any number of goroutines may share a [Page].
package guide

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	texttemplate "text/template"
	"time"

	"robotsproxy/robots"
)

// Options configure a Page.
type Options struct {
	// CAPEM is the CA certificate as PEM, followed by its issuers; required.
	CAPEM []byte

	// Ready returns why the proxy accepts no requests now; required. Clients do not see the error.
	Ready func() error

	// Operator is the e-mail address of the operator; "": none is shown.
	Operator string

	// TLS says that the proxy's own port speaks TLS.
	TLS bool

	// Passthrough says that HTTPS tunnels are not intercepted, so nobody needs the CA.
	Passthrough bool

	// Monitor says that requests are checked and recorded, but neither refused nor delayed.
	Monitor bool
	Version string
}

// A Page serves the proxy's own pages. New makes one.
type Page struct {
	o Options

	// cert is the first certificate of CAPEM.
	cert  *x509.Certificate
	paths map[string]func(http.ResponseWriter, *http.Request) error
}

// New checks the options and makes a Page.
func New(o Options) (*Page, error) {
	if o.Ready == nil {
		return nil, errors.New("guide: option Ready is missing")
	}
	cert, err := certificate(o.CAPEM)
	if err != nil {
		return nil, err
	}
	p := &Page{o: o, cert: cert}
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

// Knows reports whether there is a page at path.
func (p *Page) Knows(path string) bool {
	_, known := p.paths[path]
	return known
}

// ServeHTTP answers a GET or HEAD. It reads nothing but path, Host and Accept.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, known := p.paths[r.URL.Path]
	if !known {
		http.NotFound(w, r)
		return
	}
	maps.Copy(w.Header(), http.Header{
		"Cache-Control": {"no-store"},
		// Pages of other origins must not embed these pages.
		"Cross-Origin-Resource-Policy": {"same-origin"},
		"Referrer-Policy":              {"no-referrer"},
		"X-Content-Type-Options":       {"nosniff"},
		// Some browsers do not know frame-ancestors.
		"X-Frame-Options": {"DENY"},
	})
	if err := answer(w, r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageStyle string
	//go:embed page.txt
	pageText string

	asHTML = template.Must(template.New("page.html").Parse(pageHTML))
	asText = texttemplate.Must(texttemplate.New("page.txt").Parse(pageText))
	policy = contentPolicy(pageStyle)
)

// contentPolicy returns a policy that allows a page its own style and nothing else (CSP Level 3).
func contentPolicy(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// A view is the data of the templates. Its strings are safe for a terminal.
type view struct {
	Options
	Style template.CSS

	// Base is the URL of the page and of the proxy, without a path, and Addr its host:port.
	Base string
	Addr string

	// Host is the host. An IPv6 address has no brackets.
	Host string
	Port string

	// Fingerprint is the SHA-256 of the certificate.
	Fingerprint string

	// From and Until are the dates between which the certificate is valid. NotValid says that it is not valid today.
	From, Until string
	NotValid    bool
}

// page serves the guide, as HTML to clients that accept it.
func (p *Page) page(w http.ResponseWriter, r *http.Request) error {
	v, err := p.view(r)
	if err != nil {
		return err
	}
	// The buffer keeps back half a page after a failure.
	var b bytes.Buffer
	w.Header().Set("Vary", "Accept")
	if !acceptsHTML(r.Header["Accept"]) {
		if err := asText.Execute(&b, v); err != nil {
			return fmt.Errorf("guide: %w", err)
		}
		return send(w, plainText, "", b.Bytes())
	}
	if err := asHTML.Execute(&b, v); err != nil {
		return fmt.Errorf("guide: %w", err)
	}
	w.Header().Set("Content-Security-Policy", policy)
	return send(w, "text/html; charset=utf-8", "", b.Bytes())
}

func (p *Page) view(r *http.Request) (*view, error) {
	at, err := p.address(r)
	if err != nil {
		return nil, err
	}
	v := &view{
		// The style is embedded, not user input.
		Options: p.o, Style: template.CSS(pageStyle),
		Base: p.scheme() + "://" + at.Addr(), Addr: at.Addr(), Host: at.Host, Port: strconv.Itoa(int(at.Port)),
		Fingerprint: Fingerprint(p.cert.Raw),
		From:        p.cert.NotBefore.UTC().Format(time.DateOnly),
		Until:       p.cert.NotAfter.UTC().Format(time.DateOnly),
	}
	now := time.Now()
	v.NotValid = now.Before(p.cert.NotBefore) || now.After(p.cert.NotAfter)
	return v, nil
}

// caPEM serves the certificate in the format of curl, Python, Node and most others.
func (p *Page) caPEM(w http.ResponseWriter, _ *http.Request) error {
	return send(w, caType, "robotsproxy-ca.pem", p.o.CAPEM)
}

// caDER serves the certificate in the format of Windows, Android and iOS, under a suffix that they
// know.
func (p *Page) caDER(w http.ResponseWriter, _ *http.Request) error {
	return send(w, caType, "robotsproxy-ca.crt", p.cert.Raw)
}

func (p *Page) pac(w http.ResponseWriter, r *http.Request) error {
	at, err := p.address(r)
	if err != nil {
		return err
	}
	proxy := at.Addr()
	if p.o.TLS {
		proxy = "https://" + proxy
	}
	return send(w, "application/x-ns-proxy-autoconfig", "proxy.pac", PAC(proxy))
}

func (p *Page) ready(w http.ResponseWriter, _ *http.Request) error {
	if p.o.Ready() != nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return nil
	}
	return send(w, plainText, "", []byte("ready\n"))
}

// robotsTXT keeps crawlers away from the pages.
func robotsTXT(w http.ResponseWriter, _ *http.Request) error {
	return send(w, plainText, "", []byte("User-agent: *\nDisallow: /\n"))
}

// noIcon answers the request for an icon that browsers send by themselves.
func noIcon(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusNotFound)
	return nil
}

const (
	// caType makes browsers offer to trust the certificate if they can; see Content-Disposition in send.
	caType    = "application/x-x509-ca-cert"
	plainText = "text/plain; charset=utf-8"
)

// send writes a complete response. A browser saves it as name; "": not as a file.
func send(w http.ResponseWriter, contentType, name string, body []byte) error {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// Firefox would save an attachment without asking whether to trust it.
	if name != "" {
		w.Header().Set("Content-Disposition", `inline; filename="`+name+`"`)
	}
	// An error means that the client has disconnected.
	w.Write(body)
	return nil
}

// address returns the proxy's address for this client: the Host of the request or, if that is not an address, the local
// address of the connection.
func (p *Page) address(r *http.Request) (robots.Origin, error) {
	if o, err := robots.ParseOrigin(p.scheme(), r.Host); err == nil {
		return o, nil
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if o, err := robots.ParseOrigin(p.scheme(), local.String()); err == nil {
			return o, nil
		}
	}
	return robots.Origin{}, errors.New("the address of the proxy is unknown")
}

// scheme returns the scheme of the proxy's own port.
func (p *Page) scheme() string {
	if p.o.TLS {
		return "https"
	}
	return "http"
}

// certificate parses the first certificate of a PEM text.
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

// Fingerprint returns the SHA-256 of a certificate's DER in the form that browsers show.
func Fingerprint(der []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(der)), " ", ":")
}

// acceptsHTML reports whether an Accept header names HTML, as those of browsers do.
func acceptsHTML(accept []string) bool {
	return strings.Contains(strings.ToLower(strings.Join(accept, ",")), "text/html")
}
