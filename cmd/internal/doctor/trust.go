package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/mitm"
)

// checkTrust checks which clients trust the CA: it runs each, in this environment, against a server with a certificate of that CA.
func checkTrust(ctx context.Context, d *doctor) []cli.Diagnosis {
	wanted := selectedClients(d)
	switch {
	case len(wanted) == 0:
		return []cli.Diagnosis{cli.Skip("no client is selected (--client)")}
	case d.ca == nil:
		return []cli.Diagnosis{cli.Skip("the CA is unknown")}
	case d.authority == nil:
		return checkSystemTrust(d, slices.ContainsFunc(wanted, func(c client) bool { return c.name == systemClient }))
	}
	untrusted, forget, err := newUntrustedCA()
	if err != nil {
		return []cli.Diagnosis{cli.Skip("%v", err)}
	}
	defer forget()
	found := parallel(wanted, func(c client) cli.Diagnosis {
		found := checkClient(ctx, d, c, untrusted)
		found.Check = c.name
		return found
	})
	if !slices.ContainsFunc(found, func(f cli.Diagnosis) bool { return f.Status == cli.StatusOK }) {
		return found
	}
	// Since one client is set up, the others may just be on this machine.
	for i, c := range wanted {
		if found[i].Status == cli.StatusFail && !isRequested(d, c) {
			found[i].Status = cli.StatusWarn
		}
	}
	return found
}

// isRequested reports whether --client names a client, or a variable prepares it for some CA or proxy.
func isRequested(d *doctor, c client) bool {
	if len(d.flags.clients) > 0 || slices.ContainsFunc(c.vars, func(name string) bool { return d.getenv(name) != "" }) {
		return true
	}
	options := d.getenv("JAVA_TOOL_OPTIONS") + d.getenv("JDK_JAVA_OPTIONS")
	return c.command == "java" && (strings.Contains(options, javaTrustOption) || strings.Contains(options, javaProxyOption))
}

// selectedClients returns the clients to test.
func selectedClients(d *doctor) []client {
	if len(d.flags.clients) == 0 {
		return testedClients
	}
	return slices.DeleteFunc(slices.Clone(testedClients), func(c client) bool { return !slices.Contains(d.flags.clients, c.name) })
}

// checkSystemTrust checks what can be checked without the CA's key: the system's trust store, if it is selected.
func checkSystemTrust(d *doctor, system bool) []cli.Diagnosis {
	rest := cli.Skip("to test clients, doctor needs the CA's key, and that of %s is not in the state directory of this machine: "+
		"on the proxy's own machine, name the state directory with --state or the configuration with -c", d.caFile)
	if !system {
		return []cli.Diagnosis{rest}
	}
	found := cli.OK("trusts the CA")
	if _, err := d.ca.Verify(x509.VerifyOptions{CurrentTime: d.now()}); err != nil {
		found = cli.Fail("download "+d.caFile+", compare its fingerprint with the one that the operator of the proxy has, "+
			"and make the system trust it", "does not trust the CA: %v", err)
	}
	found.Check = systemClient
	return []cli.Diagnosis{found, rest}
}

// newUntrustedCA makes a CA that nobody trusts, and a function that deletes it.
func newUntrustedCA() (*mitm.Authority, func(), error) {
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

// parallel calls do for all elements concurrently and returns the results in their order.
func parallel[T, R any](all []T, do func(T) R) []R {
	found := make([]R, len(all))
	var wg sync.WaitGroup
	for i, single := range all {
		wg.Go(func() { found[i] = do(single) })
	}
	wg.Wait()
	return found
}

// checkClient runs a client against a server with a certificate of the CA and, if it accepts that, against one with a certificate of
// an untrusted CA.
func checkClient(ctx context.Context, d *doctor, c client, untrusted *mitm.Authority) cli.Diagnosis {
	if c.command != "" {
		if _, err := exec.LookPath(c.command); err != nil {
			return notInstalled(d, "%s is not installed", c.command)
		}
	}
	if c.inspect != nil {
		if found := c.inspect(ctx, d); found != nil {
			return *found
		}
	}
	got, err := runClient(ctx, c, d.authority)
	switch {
	case err != nil:
		return cli.Skip("could not be tested: %v", err)
	case got.notInstalled:
		return notInstalled(d, "%s is not installed", c.name)
	case !got.connected, got.late && !got.gotRequest:
		return cli.Fail("run it by hand without proxy variables, as doctor did", "could not be tested: %s", got.stderr)
	case !got.gotRequest:
		return cli.Fail(trustHint(d, c), "does not trust the CA: %s", got.stderr)
	}
	if got, err := runClient(ctx, c, untrusted); err == nil && got.gotRequest {
		return cli.Warn("find the setting that disables verification", "accepts every certificate, even a false one")
	}
	return cli.OK("trusts the CA")
}

// notInstalled returns the result for a client that is not installed: a failure if --client names it.
func notInstalled(d *doctor, format string, args ...any) cli.Diagnosis {
	if len(d.flags.clients) > 0 {
		return cli.Fail("install it, or remove it from --client", format, args...)
	}
	return cli.Skip(format, args...)
}

// trustHint returns what makes a client trust the CA.
func trustHint(d *doctor, c client) string {
	for _, name := range c.vars {
		file := d.getenv(name)
		switch {
		case file == "":
		case slices.Contains(castore.SystemRootFiles, file):
			return name + " names " + file + ", which contains the system's roots:\n" + d.expandHint("{install}\nor\nexport "+name+"={ca}")
		default:
			return name + " names " + file + ", which does not contain the CA: add it there, or\n" + d.expandHint("export "+name+"={ca}")
		}
	}
	return d.expandHint(c.hint)
}

// A clientRun is the result of running a client once.
type clientRun struct {
	// The client connected to the server, and sent a request, so that it accepted the certificate.
	connected, gotRequest bool

	// The client's library is not installed, or the client did not end in time.
	notInstalled, late bool

	// stderr is one line of its standard error.
	stderr string
}

// runClient runs c, in this environment but without a proxy, against a server with a certificate of a.
func runClient(ctx context.Context, c client, a *mitm.Authority) (clientRun, error) {
	s, err := newTestServer(a)
	if err != nil {
		return clientRun{}, err
	}
	defer s.close()
	if c.command == "" {
		err := goClient(ctx, s.Addr().String())
		return clientRun{connected: s.connected.Load(), gotRequest: err == nil, stderr: fmt.Sprint(err)}, nil
	}
	dir, err := os.MkdirTemp("", "robotsproxy-doctor-*")
	if err != nil {
		return clientRun{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.command, c.args("https://"+s.Addr().String()+"/", dir)...)
	cmd.Env = directEnv(os.Environ())
	cmd.WaitDelay = time.Second
	var said headBuffer
	cmd.Stderr = &said
	err = cmd.Run()
	v := clientRun{connected: s.connected.Load(), gotRequest: s.gotRequest.Load(), stderr: summary(said.Bytes())}
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == exitNoLibrary && !v.connected {
		v.notInstalled = true
	}
	if v.late = ctx.Err() != nil; v.late {
		v.stderr = fmt.Sprintf("did not end within %s", clientTimeout)
	} else if v.stderr == "" && err != nil {
		v.stderr = err.Error()
	}
	return v, nil
}

// goClient is this program as a client: it trusts the system's roots, or those that the environment names.
func goClient(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// directEnv returns an environment that leads through no proxy, and in which Python loads no module from the working directory.
func directEnv(parent []string) []string {
	env := slices.DeleteFunc(slices.Clone(parent), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return strings.HasSuffix(strings.ToLower(name), "_proxy") && name != "NODE_USE_ENV_PROXY" && name != "PERL_LWP_ENV_PROXY"
	})
	return append(env, "no_proxy=*", "NO_PROXY=*", "GIT_TERMINAL_PROMPT=0", "PYTHONSAFEPATH=1")
}

// headBuffer keeps the first maxStderr bytes written to it.
type headBuffer struct{ bytes.Buffer }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxStderr-b.Len())])
	return len(p), nil
}

// summary returns the first line that mentions certificates, else the last non-empty line, cut.
func summary(text []byte) string {
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
	return line[:min(len(line), humanize.MaxBrief)]
}
