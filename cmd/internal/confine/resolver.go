package confine

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// A resolver answers the DNS queries of a confined process. It gives each name an address of the
// pool. Whether a name exists is found out by the proxy when it gets a request for it. Types other
// than A, AAAA and PTR have no data, so no client learns of Encrypted Client Hello or of a service
// binding.
type resolver struct {
	pool *pool

	// ipv6 says that names have AAAA records.
	ipv6 bool
}

// ServeDNS answers one query.
func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	// WriteMsg fails only if the client has disconnected.
	w.WriteMsg(r.answer(q))
}

// answer returns the answer to a query.
func (r *resolver) answer(q *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	if q.Opcode != dns.OpcodeQuery || len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return a.SetRcode(q, dns.RcodeNotImplemented)
	}
	a.SetReply(q)
	a.RecursionAvailable = true
	question := q.Question[0]
	if question.Qtype == dns.TypePTR {
		r.answerPTR(a, question)
		return a
	}
	name := strings.ToLower(strings.TrimSuffix(question.Name, "."))
	if !isHostname(name) {
		a.Rcode = dns.RcodeNameError
		return a
	}
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return a
	}
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	// RFC 6761 6.3: these names stand for loopback.
	if name != "localhost" && !strings.HasSuffix(name, ".localhost") {
		var ok bool
		if v4, v6, ok = r.pool.assign(name); !ok {
			a.Rcode = dns.RcodeServerFailure
			return a
		}
	}
	head := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: uint32(answerTTL.Seconds())}
	switch {
	case question.Qtype == dns.TypeA:
		a.Answer = append(a.Answer, &dns.A{Hdr: head, A: net.IP(v4.AsSlice())})
	case r.ipv6:
		a.Answer = append(a.Answer, &dns.AAAA{Hdr: head, AAAA: net.IP(v6.AsSlice())})
	}
	return a
}

// answerPTR answers a query for the name of an address.
func (r *resolver) answerPTR(a *dns.Msg, question dns.Question) {
	name, ok := "", false
	if addr, isAddr := reverseAddr(question.Name); isAddr {
		if addr.IsLoopback() {
			name, ok = "localhost", true
		} else {
			name, ok = r.pool.lookup(addr)
		}
	}
	if !ok {
		a.Rcode = dns.RcodeNameError
		return
	}
	head := dns.RR_Header{Name: question.Name, Rrtype: dns.TypePTR, Class: dns.ClassINET, Ttl: uint32(answerTTL.Seconds())}
	a.Answer = append(a.Answer, &dns.PTR{Hdr: head, Ptr: dns.Fqdn(name)})
}

// reverseAddr returns the address that a name below in-addr.arpa or ip6.arpa stands for.
func reverseAddr(name string) (netip.Addr, bool) {
	name = strings.ToLower(dns.Fqdn(name))
	labels, sep, group := strings.TrimSuffix(name, ".in-addr.arpa."), ".", 1
	if labels == name {
		if labels = strings.TrimSuffix(name, ".ip6.arpa."); labels == name {
			return netip.Addr{}, false
		}
		sep, group = ":", 4
	}
	digits := strings.Split(labels, ".")
	slices.Reverse(digits)
	var groups []string
	for part := range slices.Chunk(digits, group) {
		groups = append(groups, strings.Join(part, ""))
	}
	addr, err := netip.ParseAddr(strings.Join(groups, sep))
	return addr, err == nil
}

// isHostname reports whether a name in lower case is one that a URL can have: labels of letters,
// digits, "-" and "_", and no IP address.
func isHostname(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, notInHostname) {
			return false
		}
		last = label
	}
	// A URL whose last label has digits alone has an IP address.
	return strings.ContainsFunc(last, func(r rune) bool { return r < '0' || r > '9' })
}

func notInHostname(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}
