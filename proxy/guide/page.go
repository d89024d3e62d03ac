package guide

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net"
	"net/http"
	texttemplate "text/template"
	"time"
)

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

// contentPolicy lets a page have its own style, and nothing else (CSP Level 3).
func contentPolicy(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// A view is what the templates are made of. Its strings are safe for a terminal.
type view struct {
	Style    template.CSS
	Base     string // http://host:port, where the page is, and the proxy
	Addr     string // host:port
	Host     string // IPv6 without brackets
	Port     string
	Operator string
	Version  string
	Sealed   bool
	Monitor  bool
	TLS      bool

	Fingerprint string // SHA-256
	From, Until string // days
	Over        bool   // the certificate has expired, or is not valid yet
}

func (p *Page) page(w http.ResponseWriter, r *http.Request) error {
	v, err := p.view(r)
	if err != nil {
		return err
	}
	var b bytes.Buffer // so that a failure leaves no half page
	w.Header().Set("Vary", "Accept")
	if !wantsHTML(r.Header["Accept"]) {
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
	at, err := p.at(r)
	if err != nil {
		return nil, err
	}
	cert, err := certificate(p.o.CAPEM())
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, fmt.Errorf("guide: %w", err)
	}
	v := &view{
		Style: template.CSS(pageStyle), // ours, as it was compiled in
		Base:  "http://" + at, Addr: at, Host: host, Port: port,
		Operator: p.o.Operator, Version: p.o.Version, Sealed: p.o.Sealed, Monitor: p.o.Monitor, TLS: p.o.TLS,
		Fingerprint: Fingerprint(cert.Raw),
		From:        cert.NotBefore.UTC().Format(time.DateOnly),
		Until:       cert.NotAfter.UTC().Format(time.DateOnly),
	}
	if p.o.TLS {
		v.Base = "https://" + at
	}
	now := time.Now()
	v.Over = now.Before(cert.NotBefore) || now.After(cert.NotAfter)
	return v, nil
}
