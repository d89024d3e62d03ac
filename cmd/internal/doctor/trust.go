package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/runner"
	"robotsproxy/proxy/mitm"
)

const (
	clientTimeout = 30 * time.Second // for one run of a client; a JVM that compiles takes a while on a busy machine
	notThere      = 77               // exit status of a script whose library is not installed
	maxStderr     = 64 << 10         // octets of what a client says that are kept
)

// A client is a program that people fetch pages with, and how it is run against an
// https:// URL. Whether it trusts the certificate there is seen by the server.
type client struct {
	name    string
	command string                                        // looked for on PATH
	args    func(url, dir string) []string                // dir is an empty one, for files
	vars    []string                                      // which name the file of its roots; the first that is set counts
	mend    string                                        // where none of them is set; see fill
	instead func(context.Context, *doctor) *cli.Diagnosis // looks in another way where it cannot be run; nil, or giving nil: it can
}

// checkTrust finds out which clients trust the CA: each is sent, in this environment,
// to a server of doctor's own that has a certificate of that CA.
func (d *doctor) checkTrust(ctx context.Context) []cli.Diagnosis {
	wanted := d.wanted()
	switch {
	case len(wanted) == 0:
		return []cli.Diagnosis{cli.Skip("no client is asked about")}
	case d.ca == nil:
		return []cli.Diagnosis{cli.Skip("no CA is known that they would have to trust")}
	case d.authority == nil:
		return d.withoutKey(slices.ContainsFunc(wanted, func(c client) bool { return c.name == systemClient }))
	}
	stranger, forget, err := strangeCA()
	if err != nil {
		return []cli.Diagnosis{cli.Skip("%v", err)}
	}
	defer forget()
	return each(wanted, func(c client) cli.Diagnosis {
		found := d.try(ctx, c, stranger)
		found.Check = c.name
		return found
	})
}

// wanted are the clients to be looked at.
func (d *doctor) wanted() []client {
	if len(d.flags.clients) == 0 {
		return tried
	}
	return slices.DeleteFunc(slices.Clone(tried), func(c client) bool { return !slices.Contains(d.flags.clients, c.name) })
}

// withoutKey is what can be told without the CA's key: of the system alone, if that
// is wanted.
func (d *doctor) withoutKey(system bool) []cli.Diagnosis {
	rest := cli.Skip("clients are tried with the CA's key, and that of %s is not in the state directory here: "+
		"on the proxy's own machine name that with --state, or the configuration with -c", d.caFile)
	if !system {
		return []cli.Diagnosis{rest}
	}
	found := cli.Fine("trusts the CA")
	if _, err := d.ca.Verify(x509.VerifyOptions{CurrentTime: d.now()}); err != nil {
		found = cli.Fail("fetch "+d.caFile+", compare its fingerprint with whoever runs the proxy, and have the system trust it", "does not trust the CA: %v", err)
	}
	found.Check = systemClient
	return []cli.Diagnosis{found, rest}
}

// strangeCA makes a CA that nobody trusts, and what takes it away again.
func strangeCA() (*mitm.Authority, func(), error) {
	dir, err := os.MkdirTemp("", "robotsproxy-doctor-*")
	if err != nil {
		return nil, nil, err
	}
	forget := func() { os.RemoveAll(dir) }
	a, err := mitm.LoadOrCreate(filepath.Join(dir, "ca"))
	if err != nil {
		forget()
		return nil, nil, err
	}
	return a, forget, nil
}

// each does a few things at once, and gives what came of them in their order.
func each[T, R any](all []T, do func(T) R) []R {
	found := make([]R, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { found[i] = do(one) })
	}
	wg.Wait()
	return found
}

// try runs a client against a server with a certificate of the CA, and, where it is
// content with that, against one of a CA that nobody can trust.
func (d *doctor) try(ctx context.Context, c client, stranger *mitm.Authority) cli.Diagnosis {
	if c.command != "" {
		if _, err := exec.LookPath(c.command); err != nil {
			return d.absent("%s is not installed", c.command)
		}
	}
	if c.instead != nil {
		if found := c.instead(ctx, d); found != nil {
			return *found
		}
	}
	got, err := d.visit(ctx, c, d.authority)
	switch {
	case err != nil:
		return cli.Skip("could not be tried: %v", err)
	case got.absent:
		return d.absent("%s is not installed", c.name)
	case !got.connected:
		return cli.Fail("try it by hand; doctor has taken the proxy variables away for it", "could not be tried: %s", got.said)
	case !got.asked:
		return cli.Fail(d.mendTrust(c), "does not trust the CA: %s", got.said)
	}
	if got, err := d.visit(ctx, c, stranger); err == nil && got.asked {
		return cli.Warn("look for a setting that switches verification off", "takes any certificate: it would trust a false one as well")
	}
	return cli.Fine("trusts the CA")
}

// absent is of a client that is not installed: a failure where it was asked for.
func (d *doctor) absent(format string, args ...any) cli.Diagnosis {
	if len(d.flags.clients) > 0 {
		return cli.Fail("install it, or leave it out of --client", format, args...)
	}
	return cli.Skip(format, args...)
}

// mendTrust is what makes a client trust the CA.
func (d *doctor) mendTrust(c client) string {
	for _, name := range c.vars {
		file := d.getenv(name)
		switch {
		case file == "":
		case slices.Contains(castore.RootFiles, file):
			return name + " names " + file + ", which has the system's roots:\n" + d.fill("{install}\nor\nexport "+name+"={ca}")
		default:
			return name + " names " + file + ", which has not got it: add it there, or\n" + d.fill("export "+name+"={ca}")
		}
	}
	return d.fill(c.mend)
}

// fill puts the CA and its place into what is to be done. A command there is alone on
// its line, to be copied.
func (d *doctor) fill(mend string) string {
	sum := sha256.Sum256(d.ca.Raw)
	store := filepath.Join(filepath.Dir(d.caFile), "ca.p12")
	return strings.NewReplacer(
		"{install} --java", "robotsproxy ca install --java"+d.flags.Again(), "{install}", "robotsproxy ca install"+d.flags.Again(),
		"{ca}", cli.ShellQuote(d.caFile), "{alias}", fmt.Sprintf("robotsproxy-%x", sum[:8]), "{store}", cli.ShellQuote(store),
		"{options}", cli.ShellQuote(runner.JavaTrust(store)),
	).Replace(mend)
}

// A visit is what came of running a client once.
type visit struct {
	connected bool   // to the server
	asked     bool   // it for something, having accepted its certificate
	absent    bool   // its library is not installed
	said      string // on standard error, in a line
}

// visit runs c, in this environment but past any proxy, against a server that has a
// certificate of a.
func (d *doctor) visit(ctx context.Context, c client, a *mitm.Authority) (visit, error) {
	s, err := openTrap(a)
	if err != nil {
		return visit{}, err
	}
	defer s.close()
	if c.command == "" {
		err := goClient(ctx, s.Addr().String())
		return visit{connected: s.connected.Load(), asked: err == nil, said: fmt.Sprint(err)}, nil
	}
	dir, err := os.MkdirTemp("", "robotsproxy-doctor-*")
	if err != nil {
		return visit{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command, c.args("https://"+s.Addr().String()+"/", dir)...)
	cmd.Env = directEnv(os.Environ())
	cmd.WaitDelay = time.Second
	var said firstOctets
	cmd.Stderr = &said
	err = cmd.Run()
	v := visit{connected: s.connected.Load(), asked: s.asked.Load(), said: gist(said.Bytes())}
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == notThere && !v.connected {
		v.absent = true
	}
	if ctx.Err() != nil {
		v.said = fmt.Sprintf("it has not ended after %s", clientTimeout)
	} else if v.said == "" && err != nil {
		v.said = err.Error()
	}
	return v, nil
}

// goClient is this program as a client: it trusts what the system does, or what the
// environment names in its place.
func goClient(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// directEnv is an environment in which nothing leads through a proxy, and Python
// takes no module from the working directory for a library.
func directEnv(parent []string) []string {
	env := slices.DeleteFunc(slices.Clone(parent), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy") && name != "NODE_USE_ENV_PROXY" && name != "PERL_LWP_ENV_PROXY"
	})
	return append(env, "no_proxy=*", "NO_PROXY=*", "GIT_TERMINAL_PROMPT=0", "PYTHONSAFEPATH=1")
}

// firstOctets keeps the beginning of what is written to it.
type firstOctets struct{ bytes.Buffer }

func (b *firstOctets) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxStderr-b.Len())])
	return len(p), nil
}

// gist is the first line that speaks of certificates, else the last with something
// in it, cut.
func gist(text []byte) string {
	var line string
	for next := range strings.Lines(string(text)) {
		if next = strings.TrimSpace(next); next == "" {
			continue
		}
		line = next
		if strings.Contains(strings.ToLower(line), "certif") {
			break
		}
	}
	return line[:min(len(line), castore.MaxSaid)]
}

// A trap is a server on loopback that has a certificate of an authority, and notes
// whether anybody was content with it. It is the listener of its own server.
type trap struct {
	net.Listener
	server           http.Server
	authority        *mitm.Authority
	connected, asked atomic.Bool
}

// openTrap listens. The caller closes it.
func openTrap(a *mitm.Authority) (*trap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &trap{Listener: l, authority: a}
	t.server.ReadHeaderTimeout = askTimeout
	t.server.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.asked.Store(true) })
	t.server.ErrorLog = log.New(io.Discard, "", 0) // clients that leave
	go t.server.Serve(t)                           // ends with close
	return t, nil
}

// close ends the server, and the connections to it.
func (t *trap) close() { t.server.Close() }

// Accept gives a connection on which the handshake has been done. They come one
// after the other: there is one client.
func (t *trap) Accept() (net.Conn, error) {
	for {
		conn, err := t.Listener.Accept()
		if err != nil {
			return nil, err
		}
		t.connected.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		secure, err := t.authority.Handshake(ctx, conn, "127.0.0.1")
		cancel()
		if err == nil {
			return secure, nil
		}
		conn.Close()
	}
}
