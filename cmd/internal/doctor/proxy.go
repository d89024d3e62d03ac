package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
)

const (
	askTimeout = 10 * time.Second // for one answer of the proxy, the head of a tunnel included
	maxAsked   = 64 << 10         // octets of it that are read
	ownName    = "robotsproxy"    // in Proxy-Status and Server
	ownAgent   = "robotsproxy-doctor"
)

// samePlace says whether two addresses lead to one listener.
func samePlace(ctx context.Context, a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	return strings.EqualFold(hostA, hostB) || slices.ContainsFunc(addresses(ctx, hostA), func(a netip.Addr) bool {
		return slices.ContainsFunc(addresses(ctx, hostB), func(b netip.Addr) bool { return a == b })
	})
}

// askable is an address at which a listener can be asked: for one that is everywhere,
// this machine's loopback.
func askable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// addresses are those of a host; of a listener everywhere, all of this machine's.
func addresses(ctx context.Context, host string) (all []netip.Addr) {
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && !ip.IsUnspecified():
		return []netip.Addr{ip.Unmap()}
	case err == nil || host == "":
		nets, _ := net.InterfaceAddrs() // without them: nothing is the same
		for _, n := range nets {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				all = append(all, p.Addr().Unmap())
			}
		}
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for _, ip := range found {
		all = append(all, ip.Unmap())
	}
	return all
}

// page is the address of a page of the proxy's own.
func (d *doctor) page(path string) string { return d.proxy.Scheme + "://" + d.proxy.Host + path }

// A reply is the proxy's answer to one request.
type reply struct {
	*http.Response
	body []byte
	conn net.Conn // of a tunnel that was opened; else closed, and nil
}

// ours says whether it is this program that has answered, not an origin or another proxy.
func (r *reply) ours() bool {
	name, _, _ := strings.Cut(r.Header.Get("Proxy-Status"), ";")
	return strings.TrimSpace(name) == ownName || r.Header.Get("Server") == ownName
}

// trouble is the error type in Proxy-Status (RFC 9209 2.3), "" where there is none.
func (r *reply) trouble() string {
	for part := range strings.SplitSeq(r.Header.Get("Proxy-Status"), ";") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(part), "error="); ok {
			return token
		}
	}
	return ""
}

// dial connects to the proxy.
func (d *doctor) dial(ctx context.Context) (net.Conn, error) {
	if d.proxy.Scheme == "https" {
		return (&tls.Dialer{}).DialContext(ctx, "tcp", d.proxy.Host)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.proxy.Host)
}

// ask sends the proxy one request on a connection of its own. Where a tunnel is
// opened the caller closes it.
func (d *doctor) ask(ctx context.Context, method, target, host string) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			conn.Close()
		}
	}()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return nil, err
		}
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", method, target, host, ownAgent)
	if u := d.proxy.User; u != nil {
		password, _ := u.Password()
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if method != http.MethodConnect {
		head += "Connection: close\r\n"
	}
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAsked)), &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	r := &reply{Response: resp}
	if method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		keep, r.conn = true, conn // whoever opens a tunnel speaks first in it: nothing else has been read
		return r, nil
	}
	defer resp.Body.Close()
	r.body, err = io.ReadAll(resp.Body)
	return r, err
}

// checkProxy finds out whether the proxy answers, and whether it is one of ours. A
// request for a page of its own is answered by each version of it, by a page or by a
// refusal.
func (d *doctor) checkProxy(ctx context.Context) cli.Diagnosis {
	at := d.proxy.Host
	if strings.HasSuffix(at, ":0") {
		return cli.Fail("name the one that it got with --proxy", "the configuration's port is 0: any free one")
	}
	r, err := d.ask(ctx, http.MethodGet, "/", at)
	if err != nil {
		return d.unreached(at, err)
	}
	if !r.ours() {
		return cli.Fail("stop what has the port, or have the proxy listen on another (listen)", "what answers at %s is not robotsproxy: %s %s", at, r.Proto, r.Status)
	}
	d.answers = true
	if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		d.date, d.dated = date, d.now()
	}
	if r.StatusCode == http.StatusOK { // it has pages of its own
		if page, err := d.ask(ctx, http.MethodGet, "/ca.pem", at); err == nil && page.StatusCode == http.StatusOK && page.ours() {
			if certs := castore.Certificates(page.body); len(certs) > 0 {
				d.served = certs[0]
			}
		}
	}
	return cli.Fine("robotsproxy answers at %s", d.page("/"))
}

// unreached says why the proxy cannot be asked.
func (d *doctor) unreached(at string, err error) cli.Diagnosis {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return cli.Fail("look for a mistake in the name", "%s: %v", at, e)
	}
	_, notTrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && d.apart:
		return cli.Fail("look whether the proxy runs there, and listens on more than loopback", "nothing listens at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED):
		return cli.Fail("start it:\nrobotsproxy serve"+d.flags.Again()+"\nor, for one command:\nrobotsproxy run"+d.flags.Again()+" -- COMMAND", "nothing listens at %s", at)
	case notTrusted:
		return cli.Fail("have this machine trust the certificate of listen_tls", "%s: %v", at, err)
	}
	return cli.Fail("look whether it is the proxy that listens there, and with TLS or without (listen_tls), and for a firewall between", "%s does not answer as a proxy: %v", at, err)
}

// checkHealth asks the operator's side, where it is on.
func (d *doctor) checkHealth(ctx context.Context) cli.Diagnosis {
	switch at := d.cfg.Admin.Listen; {
	case d.apart:
		return cli.Skip("%s", elsewhere)
	case at == "":
		return cli.Skip("admin.listen is off")
	case !d.answers:
		return cli.Skip("the proxy does not answer")
	default:
		line, err := daemon.Health(ctx, at)
		if err != nil {
			return cli.Fail("the proxy's log says more", "%v", strings.TrimPrefix(fmt.Sprint(err, ": ", line), "health: "))
		}
		return cli.Fine("http://%s/healthz: %s", at, line)
	}
}

// A site is an origin of doctor's own on loopback, in the clear. It lets everybody
// fetch everything, and notes what arrives.
type site struct {
	server   http.Server
	listener net.Listener

	mu  sync.Mutex
	via string // of the request that came; guarded by mu
}

// openSite listens. The caller closes it.
func openSite() (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &site{listener: l}
	s.server.ReadHeaderTimeout = askTimeout
	s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if via := r.Header.Get("Via"); via != "" { // of the request, or of the proxy's own fetch that answers it
			s.mu.Lock()
			s.via = via
			s.mu.Unlock()
		}
		io.WriteString(w, "User-agent: *\nAllow: /\n")
	})
	go s.server.Serve(l) // ends with Close
	return s, nil
}

func (s *site) address() string { return s.listener.Addr().String() }

func (s *site) seen() (via string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.via
}

const noAnswer = "the proxy does not answer"

// checkHTTP sends a request through the proxy. That it is refused because loopback is
// private proves as well that it has arrived.
func (d *doctor) checkHTTP(ctx context.Context) cli.Diagnosis {
	if !d.answers {
		return cli.Skip(noAnswer)
	}
	s, err := openSite()
	if err != nil {
		return cli.Skip("%v", err)
	}
	defer s.server.Close()
	r, err := d.ask(ctx, http.MethodGet, "http://"+s.address()+"/robots.txt", s.address())
	switch {
	case err != nil:
		return cli.Fail("look for a firewall between, and into the proxy's log", "a request got no answer: %v", err)
	case r.StatusCode == http.StatusOK && strings.Contains(s.seen(), ownName):
		return cli.Fine("a request passes: it arrived at a site of doctor's own")
	}
	return d.refusal("a request", r)
}

// refusal is what an answer says that is not a site's.
func (d *doctor) refusal(what string, r *reply) cli.Diagnosis {
	said := r.Status
	if status := r.Header.Get("Proxy-Status"); status != "" {
		said += " (" + status + ")"
	}
	said = said[:min(len(said), castore.MaxSaid)]
	switch token := r.trouble(); {
	case r.StatusCode == http.StatusProxyAuthRequired:
		return cli.Warn("the same URL in the variables of clients, and here:\nrobotsproxy doctor --proxy "+d.proxy.Scheme+"://NAME:PASSWORD@"+d.proxy.Host, "the proxy asks for a name and a password, and these are missing or wrong")
	case !r.ours():
		return cli.Fail("look for another proxy between", "%s was answered by another than robotsproxy: %s", what, said)
	case token == "destination_ip_prohibited":
		return cli.Fine("%s arrives: refused, as all to this machine's own addresses", what)
	case token == "destination_unavailable" || token == "connection_limit_reached" || token == "tls_certificate_error" || token == "dns_error":
		return cli.Fine("%s arrives: %s", what, said)
	case token == "proxy_internal_error":
		return cli.Fail("the proxy's log says more", "%s is refused: %s", what, said)
	}
	return cli.Warn("whoever runs the proxy says in clients, identity and hosts whom it serves", "%s arrives, but is refused: %s", what, said)
}

// checkHTTPS opens a tunnel to a site of doctor's own. Where the proxy may go there, its
// certificate is looked at.
func (d *doctor) checkHTTPS(ctx context.Context) cli.Diagnosis {
	if !d.answers {
		return cli.Skip(noAnswer)
	}
	s, err := openSite()
	if err != nil {
		return cli.Skip("%v", err)
	}
	defer s.server.Close()
	found, seen := d.tunnel(ctx, s.address())
	if found.Status == cli.IsFine && !seen {
		found.Detail += "; --site HOST shows which certificate clients get"
	}
	return found
}

// checkSite is checkHTTPS with a site that the user names.
func (d *doctor) checkSite(ctx context.Context) []cli.Diagnosis {
	switch {
	case d.flags.site == "":
		return nil
	case !d.answers:
		return []cli.Diagnosis{cli.Skip(noAnswer)}
	}
	to, err := authorityOf(d.flags.site)
	if err != nil { // newDoctor has seen it
		return []cli.Diagnosis{cli.Fail("", "%v", err)}
	}
	found, seen := d.tunnel(ctx, to)
	if found.Status == cli.IsFine && !seen {
		found.Status, found.Mend = cli.IsWarn, "name a site that the proxy can reach"
	}
	return []cli.Diagnosis{found}
}

// tunnel asks for a tunnel and looks at the certificate in it; seen says whether it
// came to that.
func (d *doctor) tunnel(ctx context.Context, to string) (found cli.Diagnosis, seen bool) {
	r, err := d.ask(ctx, http.MethodConnect, to, to)
	if err != nil {
		return cli.Fail("look for a firewall between, and into the proxy's log", "a tunnel got no answer: %v", err), false
	}
	if r.conn == nil {
		return d.refusal("a tunnel", r), false
	}
	defer r.conn.Close()
	host, _, _ := net.SplitHostPort(to)
	roots := x509.NewCertPool()
	if d.ca != nil {
		roots.AddCert(d.ca)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = tls.Client(r.conn, &tls.Config{ServerName: host, RootCAs: roots, Time: d.now}).HandshakeContext(ctx)
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		issuer := e.UnverifiedCertificates[0].Issuer // a server has shown at least one (RFC 8446 4.4.2.4)
		if d.ca == nil {
			return cli.Warn("look whether it is the proxy's CA, and have clients trust it", "a tunnel shows a certificate of %s", issuer), true
		}
		return cli.Fail("if that is the site's own, the tunnel is not opened (tls.intercept, tls.tunnel); else have the proxy take the CA that is on disk:\n"+
			"kill -HUP, or start it again; or name its own configuration or state with -c or --state",
			"a tunnel shows a certificate of %s, not of %s: %v", issuer, d.caFile, e.Err), true
	}
	switch {
	case err == nil:
		return cli.Fine("a tunnel passes, and shows a certificate of the CA"), true
	case !d.cfg.TLS.Intercept && !d.apart:
		return cli.Fine("a tunnel passes, and is not opened (tls.intercept)"), true
	}
	return cli.Warn("look at tls.intercept and tls.tunnel: nothing in such a tunnel is judged by its path", "a tunnel passes, but is not opened: %v", err), true
}
