package runner

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/explain/humanize"
)

// untrusted returns those of the hosts, which may have a port, that got no request over HTTPS. If a
// host got one, the client trusts the certificate, and has left a tunnel unused for another reason, as
// browsers do.
func (s *summary) untrusted(hosts []string) []string {
	return slices.DeleteFunc(hosts, func(host string) bool {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		return slices.ContainsFunc(s.Hosts, func(h hostSummary) bool { return h.Host == host && h.HTTPS })
	})
}

// printUntrusted prints the hosts for which the command argv did not trust the proxy's certificate, or
// may not have, each once; and what to do. It reports whether there was any.
func printUntrusted(w io.Writer, argv []string, u daemon.Untrusted) bool {
	if len(u.Rejected)+len(u.Closed)+len(u.Unused) == 0 {
		return false
	}
	name := commandName(argv)
	print := func(hosts []string, did, what string) {
		for _, host := range hosts[:min(len(hosts), maxSummary)] {
			fmt.Fprintf(w, "robotsproxy: %s %s %s through the proxy %s\n", humanize.Printable(name), did, humanize.Printable(host), what)
		}
		if more := len(hosts) - maxSummary; more > 0 {
			fmt.Fprintf(w, "robotsproxy: and to %s\n", count(int64(more), "more host"))
		}
	}
	print(u.Rejected, "connected to", "but did not trust the proxy's certificate")
	print(u.Closed, "connected to",
		"and closed the connection during the TLS handshake, probably because it does not trust the proxy's certificate")
	print(u.Unused, "opened a tunnel to", "and closed it without a request, perhaps because it does not trust the proxy's certificate")
	try := otherTrust
	if c := clientNamed(name); c != nil {
		try = cmp.Or(c.trust, try)
	}
	fmt.Fprintf(w, "  What to do: %s\n", try)
	return true
}

// printKept prints the variables that run has not set because of the user's values.
func printKept(w io.Writer, kept []string) {
	if len(kept) == 0 {
		return
	}
	fmt.Fprintf(w, "robotsproxy: kept your %s, because the file has certificates of your own; "+
		"programs that read it may not trust the proxy's certificate\n", strings.Join(kept, ", "))
	fmt.Fprintln(w, "  What to do: unset it for the run, or add the output of robotsproxy ca show --pem to the file")
}
