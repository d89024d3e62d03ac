// Package doctor implements the command doctor, which looks for reasons why clients do not use the
// proxy or do not trust its CA. It changes nothing.
package doctor

import (
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

// A doctor checks one proxy and the clients of this machine. The checks run in the order of checks;
// later ones use what earlier ones have stored here.
type doctor struct {
	flags *doctorFlags
	cfg   config.Config

	// Why cfg is invalid.
	configErr error
	getenv    func(string) string
	now       func() time.Time

	// Where requests are sent.
	proxy *url.URL

	// Its listening address, as host:port; the host may be a wildcard.
	listen string

	// It is not the configured one: files of this machine are not its files.
	remote bool

	// This process runs under robotsproxy run, and cfg is that run's.
	insideRun bool

	// The proxy answers.
	reachable bool

	// The Date of its answer; zero: none.
	proxyDate time.Time

	// When that answer came.
	proxyDateAt time.Time
	servedCA    *x509.Certificate

	// The CA that clients have to trust; nil: unknown.
	ca *x509.Certificate

	// Its file, for messages and variables.
	caFile string

	// With ca and its key; nil: the key is not on this machine.
	authority *mitm.Authority
}

type doctorFlags struct {
	cli.ConfigFlags
	proxy, site string
	clients     []string
	json        bool
}

const (
	// requestTimeout limits one answer of the proxy, or the response header of a CONNECT.
	requestTimeout = 10 * time.Second // for one answer of the proxy, the head of a tunnel included
	maxReply       = 64 << 10         // bytes read of an answer
	proxyName      = "robotsproxy"    // in Proxy-Status and Server
	agent          = "robotsproxy-doctor"
)

// page returns the URL of one of the proxy's own pages.
func (d *doctor) page(path string) string { return d.proxy.Scheme + "://" + d.proxy.Host + path }

// expandHint replaces the placeholders in a hint. Each command in the result is on a separate
// line, so that it can be copied.
func (d *doctor) expandHint(hint string) string {
	sum := sha256.Sum256(d.ca.Raw)
	store := filepath.Join(filepath.Dir(d.caFile), "ca.p12")
	return strings.NewReplacer(
		"{install} --java", "robotsproxy ca install --java"+d.flags.Args(), "{install}", "robotsproxy ca install"+d.flags.Args(),
		"{ca}", cli.ShellQuote(d.caFile), "{alias}", fmt.Sprintf("robotsproxy-%x", sum[:8]), "{store}", cli.ShellQuote(store),
		"{options}", cli.ShellQuote(runner.JavaTrust(store)),
	).Replace(hint)
}
