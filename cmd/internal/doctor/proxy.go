package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/h2"
	"robotsproxy/proxy/socket"
)

// A reply is the proxy's answer to one request.
type reply struct {
	*http.Response
	body []byte

	// conn is the connection of an established tunnel; nil for any other answer.
	conn net.Conn
}

// fromRobotsproxy reports whether robotsproxy answered, rather than an origin or another proxy.
func (r *reply) fromRobotsproxy() bool {
	name, _, _ := strings.Cut(r.Header.Get("Proxy-Status"), ";")
	return strings.TrimSpace(name) == proxyName || r.Header.Get("Server") == proxyName
}

// errorType returns the error type in Proxy-Status (RFC 9209 2.3), "" if there is none.
func (r *reply) errorType() string {
	for part := range strings.SplitSeq(r.Header.Get("Proxy-Status"), ";") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(part), "error="); ok {
			return token
		}
	}
	return ""
}

// dialProxy connects to the proxy.
func dialProxy(ctx context.Context, d *doctor) (net.Conn, error) {
	if d.proxy.Scheme == "https" {
		return new(tls.Dialer).DialContext(ctx, "tcp", d.proxy.Host)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", d.proxy.Host)
}

// request sends the proxy one request on a new connection. The caller closes the connection of an established tunnel.
func request(ctx context.Context, d *doctor, method, target, host string) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := dialProxy(ctx, d)
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep {
			conn.Close()
		}
	}()
	// SetDeadline fails only on a closed connection.
	end, _ := ctx.Deadline()
	conn.SetDeadline(end)
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", method, target, host, agent)
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
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxReply)), &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	r := &reply{Response: resp}
	if method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		// The client speaks first in a tunnel, so the reader has buffered nothing.
		keep, r.conn = true, conn
		return r, nil
	}
	defer resp.Body.Close()
	r.body, err = io.ReadAll(resp.Body)
	return r, err
}

// checkProxy checks whether robotsproxy answers. Every version of it answers a request for one of its own pages with a page or a refusal.
func checkProxy(ctx context.Context, d *doctor) cli.Diagnosis {
	at := d.proxy.Host
	if strings.HasSuffix(at, ":0") {
		return cli.Fail("name the port that it uses with --proxy", "listen has the port 0, which means any free port")
	}
	r, err := request(ctx, d, http.MethodGet, "/", at)
	if err != nil {
		return connectFailure(d, at, err)
	}
	if !r.fromRobotsproxy() {
		return cli.Fail("stop the program that uses the port, or choose another port for the proxy (listen)",
			"the program at %s is not robotsproxy: it answers %s %s", at, r.Proto, r.Status)
	}
	d.reachable = true
	if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		d.proxyDate, d.proxyDateAt = date, d.now()
	}
	// A proxy that refuses this page shows no CA either.
	if r.StatusCode == http.StatusOK {
		page, err := request(ctx, d, http.MethodGet, "/ca.pem", at)
		if err == nil && page.StatusCode == http.StatusOK && page.fromRobotsproxy() {
			if certs := castore.Certificates(page.body); len(certs) > 0 {
				d.servedCA = certs[0]
			}
		}
	}
	return cli.OK("robotsproxy answers at %s", d.page("/"))
}

// connectFailure explains why the proxy cannot be reached.
func connectFailure(d *doctor, at string, err error) cli.Diagnosis {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return cli.Fail("check the spelling of the name", "%s: %v", at, e)
	}
	_, notTrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, socket.ECONNREFUSED) && d.remote:
		return cli.Fail("check that the proxy runs there, and does not listen on loopback only", "nothing listens at %s", at)
	case errors.Is(err, socket.ECONNREFUSED):
		args := d.flags.Args()
		return cli.Fail("start it:\nrobotsproxy serve"+args+"\nor, for one command:\nrobotsproxy run"+args+" -- COMMAND",
			"nothing listens at %s", at)
	case notTrusted:
		return cli.Fail("make this machine trust the certificate of listen_tls", "%s: %v", at, err)
	}
	return cli.Fail("check that the proxy listens there, whether it speaks TLS (listen_tls), and that no firewall blocks it",
		"%s does not answer as a proxy: %v", at, err)
}

// checkHealth calls the admin listener if there is one.
func checkHealth(ctx context.Context, d *doctor) cli.Diagnosis {
	at := cmp.Or(d.cfg.Admin.Listen, d.cfg.Admin.MetricsListen)
	switch {
	case at == "":
		return cli.Skip("admin.listen is off")
	case !d.reachable:
		return cli.Skip(noAnswer)
	}
	lines, err := daemon.Health(ctx, at)
	text := strings.Join(lines, "\n")
	switch {
	case err != nil:
		return cli.Fail("see the proxy's log", "%v", strings.TrimPrefix(fmt.Sprint(err, ": ", text), "health: "))
	case len(lines) > 1:
		return cli.Warn("see the proxy's log", "http://%s/healthz: %s", at, text)
	}
	return cli.OK("http://%s/healthz: %s", at, text)
}

const noAnswer = "the proxy does not answer"

// checkHTTP sends a request through the proxy. A refusal because loopback is private also proves that the request has arrived.
func checkHTTP(ctx context.Context, d *doctor) cli.Diagnosis {
	if !d.reachable {
		return cli.Skip(noAnswer)
	}
	s, err := newTestServer(nil)
	if err != nil {
		return cli.Skip("%v", err)
	}
	defer s.close()
	at := s.Addr().String()
	r, err := request(ctx, d, http.MethodGet, "http://"+at+"/robots.txt", at)
	switch {
	case err != nil:
		return cli.Fail("check for a firewall in between, and see the proxy's log", "a request got no response: %v", err)
	case r.StatusCode == http.StatusOK && s.gotProxied.Load():
		return cli.OK("a request passes the proxy: it reached doctor's test server")
	}
	return explainRefusal(d, "a request", r)
}

// explainRefusal interprets an answer that is not the test server's.
func explainRefusal(d *doctor, what string, r *reply) cli.Diagnosis {
	said := r.Status
	if status := r.Header.Get("Proxy-Status"); status != "" {
		said += " (" + status + ")"
	}
	said = said[:min(len(said), humanize.MaxBrief)]
	switch token := r.errorType(); {
	case r.StatusCode == http.StatusProxyAuthRequired:
		return cli.Warn("use a URL with name and password, here and in the variables of clients:\n"+
			"robotsproxy doctor --proxy "+d.proxy.Scheme+"://NAME:PASSWORD@"+d.proxy.Host,
			"the proxy requires a name and a password, which are missing or wrong")
	case !r.fromRobotsproxy():
		return cli.Fail("check for another proxy in between", "%s was not answered by robotsproxy: %s", what, said)
	case token == "destination_ip_prohibited":
		return cli.OK("%s reaches the proxy, which refuses this machine's own addresses as it should", what)
	case slices.Contains([]string{"destination_unavailable", "connection_limit_reached", "tls_certificate_error", "dns_error"}, token):
		return cli.OK("%s reaches the proxy: %s", what, said)
	case token == "proxy_internal_error":
		return cli.Fail("see the proxy's log", "%s is refused: %s", what, said)
	}
	return cli.Warn("ask the operator of the proxy: clients, identity and hosts decide whom it serves",
		"%s reaches the proxy, but is refused: %s", what, said)
}

// checkHTTPS opens a tunnel to a test server. If the proxy may connect there, it checks the certificate.
func checkHTTPS(ctx context.Context, d *doctor) cli.Diagnosis {
	if !d.reachable {
		return cli.Skip(noAnswer)
	}
	s, err := newTestServer(nil)
	if err != nil {
		return cli.Skip("%v", err)
	}
	defer s.close()
	found, seen := checkTunnel(ctx, d, s.Addr().String())
	if found.Status == cli.StatusOK && !seen {
		found.Detail += "; use --site HOST to see which certificate clients get"
	}
	return found
}

// checkSite opens a tunnel to the origin of --site and checks its certificate.
func checkSite(ctx context.Context, d *doctor) []cli.Diagnosis {
	switch {
	case d.flags.site == "":
		return nil
	case !d.reachable:
		return []cli.Diagnosis{cli.Skip(noAnswer)}
	}
	// newDoctor has checked that the flag names an authority.
	to, _ := authorityOf(d.flags.site)
	found, seen := checkTunnel(ctx, d, to)
	if found.Status == cli.StatusOK && !seen {
		found.Status, found.Hint = cli.StatusWarn, "name a site with --site that the proxy can reach"
	}
	return []cli.Diagnosis{found}
}

// beginHTTP2 is what a client of HTTP/2 sends first, with empty settings (RFC 9113 3.4). A client that sent nothing after its TLS
// handshake would look to the proxy as if it did not trust the certificate.
const beginHTTP2 = h2.Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// checkTunnel opens a tunnel and checks the certificate in it; seen reports whether there was one.
func checkTunnel(ctx context.Context, d *doctor, to string) (found cli.Diagnosis, seen bool) {
	r, err := request(ctx, d, http.MethodConnect, to, to)
	if err != nil {
		return cli.Fail("check for a firewall in between, and see the proxy's log", "a tunnel got no response: %v", err), false
	}
	if r.conn == nil {
		return explainRefusal(d, "a tunnel", r), false
	}
	defer r.conn.Close()
	host, _, _ := net.SplitHostPort(to)
	roots := x509.NewCertPool()
	if d.ca != nil {
		roots.AddCert(d.ca)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	secure := tls.Client(r.conn, &tls.Config{ServerName: host, RootCAs: roots, Time: d.now, NextProtos: []string{"h2"}})
	err = secure.HandshakeContext(ctx)
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		// A server sends at least one certificate (RFC 8446 4.4.2.4).
		issuer := e.UnverifiedCertificates[0].Issuer
		if d.ca == nil {
			return cli.Warn("check that this is the proxy's CA, and make clients trust it",
				"the certificate in a tunnel is signed by %s", issuer), true
		}
		return cli.Fail("if that is the site's own CA, the proxy does not intercept the tunnel (tls.intercept, tls.tunnel). "+
			"Otherwise make the proxy use the CA on the disk:\n"+
			"reload it (kill -HUP) or restart it, or name its configuration or state directory with -c or --state",
			"the certificate in a tunnel is signed by %s, not by the CA in %s: %v", issuer, d.caFile, e.Err), true
	}
	switch {
	case err == nil:
		// The result is known already, so an error does not matter.
		io.WriteString(secure, beginHTTP2)
		return cli.OK("a tunnel passes the proxy, and its certificate is signed by the CA"), true
	case !d.cfg.TLS.Intercept && !d.remote:
		return cli.OK("a tunnel passes the proxy, which does not intercept it (tls.intercept)"), true
	}
	return cli.Warn("check tls.intercept and tls.tunnel: the proxy cannot judge the paths of requests in such a tunnel",
		"a tunnel passes the proxy, which does not intercept it: %v", err), true
}
