// Package doctor implements the command doctor, which looks for reasons why clients do not use the proxy or do not trust its CA. It
// changes nothing.
package doctor

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/runner"
	"robotsproxy/proxy/mitm"
)

// A doctor checks one proxy and the clients of this machine. The checks run in the order of checks; later ones use what earlier ones
// have stored here.
type doctor struct {
	flags *doctorFlags
	cfg   config.Config

	// configErr says why cfg is invalid.
	configErr error
	getenv    func(string) string
	now       func() time.Time

	// proxy is where requests are sent.
	proxy *url.URL

	// listen is the proxy's listening address, as host:port. The host may be a wildcard.
	listen string

	// remote says that the proxy is not the configured one, so that files of this machine are not its files.
	remote bool

	// insideRun says that this process runs under robotsproxy run, and that cfg is that run's.
	insideRun bool

	// reachable says that the proxy answers.
	reachable bool

	// proxyDate is the Date of the proxy's answer, which came at proxyDateAt; zero without a Date.
	proxyDate, proxyDateAt time.Time

	// servedCA is the CA that the proxy shows; nil if it shows none.
	servedCA *x509.Certificate

	// ca is the CA that clients have to trust; nil if it is unknown. caFile is its file or URL, for messages and variables.
	ca     *x509.Certificate
	caFile string

	// authority is ca with its key; nil if the key is not on this machine.
	authority *mitm.Authority
}

// A check examines one thing and may have several results.
type check struct {
	name string
	run  runCheck
}

type runCheck func(context.Context, *doctor) []cli.Diagnosis

type doctorFlags struct {
	cli.ConfigFlags
	proxy, site string
	clients     []string
	json        bool
}

const (
	// requestTimeout bounds one answer of the proxy, or the response header of a CONNECT.
	requestTimeout = 10 * time.Second

	// maxReply is how many bytes of an answer are read.
	maxReply = 64 << 10

	// proxyName is the proxy's name in Proxy-Status, Server and Via. agent is that of doctor in User-Agent.
	proxyName = "robotsproxy"
	agent     = "robotsproxy-doctor"
)

// page returns the URL of one of the proxy's own pages.
func (d *doctor) page(path string) string { return d.proxy.Scheme + "://" + d.proxy.Host + path }

// inState returns the path of a name in the state directory, "" if that directory is unknown. checkState reports that.
func (d *doctor) inState(name string) string {
	state, err := d.cfg.State(d.getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(state, name)
}

// expandHint replaces the placeholders in a hint. Each command in the result is on a separate line, so that it can be copied.
func (d *doctor) expandHint(hint string) string {
	sum := sha256.Sum256(d.ca.Raw)
	store := filepath.Join(filepath.Dir(d.caFile), "ca.p12")
	return strings.NewReplacer(
		"{install} --java", "robotsproxy ca install --java"+d.flags.Args(), "{install}", "robotsproxy ca install"+d.flags.Args(),
		"{ca}", cli.ShellQuote(d.caFile), "{alias}", fmt.Sprintf("robotsproxy-%x", sum[:8]), "{store}", cli.ShellQuote(store),
		"{options}", cli.ShellQuote(runner.JavaTrust(store)),
	).Replace(hint)
}
