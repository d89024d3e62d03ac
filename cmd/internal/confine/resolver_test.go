package confine

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// ask returns the answer to a query for one type of a name.
func ask(r *resolver, name string, kind uint16) *dns.Msg {
	q := new(dns.Msg)
	q.Question = []dns.Question{{Name: name, Qtype: kind, Qclass: dns.ClassINET}}
	q.RecursionDesired = true
	return r.answer(q)
}

// addrOf returns the address in an answer, which has to have one.
func addrOf(t *testing.T, m *dns.Msg) netip.Addr {
	t.Helper()
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
		t.Fatalf("no address in\n%v", m)
	}
	var addr netip.Addr
	switch rr := m.Answer[0].(type) {
	case *dns.A:
		addr, _ = netip.AddrFromSlice(rr.A.To4())
	case *dns.AAAA:
		addr, _ = netip.AddrFromSlice(rr.AAAA)
	}
	return addr
}

func TestResolverAddresses(t *testing.T) {
	t.Parallel()
	r := &resolver{pool: newPool(16, time.Now), ipv6: true}
	v4, v6 := addrOf(t, ask(r, "Www.Example.", dns.TypeA)), addrOf(t, ask(r, "www.example.", dns.TypeAAAA))
	for _, addr := range []netip.Addr{v4, v6} {
		if name, _ := r.pool.lookup(addr); name != "www.example" {
			t.Errorf("%v: %q", addr, name)
		}
		reverse, err := dns.ReverseAddr(addr.String())
		if err != nil {
			t.Fatal(err)
		}
		if m := ask(r, reverse, dns.TypePTR); len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "www.example." {
			t.Errorf("PTR of %v:\n%v", addr, m)
		}
	}
	if m := ask(r, "Www.Example.", dns.TypeA); m.Answer[0].Header().Name != "Www.Example." || m.Answer[0].Header().Ttl != 60 {
		t.Errorf("answer:\n%v", m)
	}
	for name, want := range map[string]string{"localhost.": "127.0.0.1", "a.LOCALHOST.": "127.0.0.1"} {
		if got := addrOf(t, ask(r, name, dns.TypeA)); got.String() != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	if got := addrOf(t, ask(r, "localhost.", dns.TypeAAAA)); got != netip.IPv6Loopback() {
		t.Errorf("localhost: %v", got)
	}
	if len(r.pool.names) != 1 {
		t.Errorf("names in the pool: %v", r.pool.names)
	}
}

// Nothing but addresses and names has data. HTTPS and SVCB in particular have none, and neither has
// AAAA without IPv6.
func TestResolverNoData(t *testing.T) {
	t.Parallel()
	r := &resolver{pool: newPool(16, time.Now)}
	for _, kind := range []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeMX, dns.TypeTXT, dns.TypeSRV, dns.TypeNS, dns.TypeANY, dns.TypeAAAA} {
		if m := ask(r, "www.example.", kind); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
			t.Errorf("%s:\n%v", dns.TypeToString[kind], m)
		}
	}
}

func TestResolverErrors(t *testing.T) {
	t.Parallel()
	r := &resolver{pool: newPool(1, time.Now), ipv6: true}
	for _, c := range []struct {
		name string
		kind uint16
		want int
	}{
		{".", dns.TypeA, dns.RcodeNameError},
		{"192.0.2.1.", dns.TypeA, dns.RcodeNameError},
		{`a\000b.example.`, dns.TypeA, dns.RcodeNameError},
		{"a b.example.", dns.TypeA, dns.RcodeNameError},
		{strings.Repeat("a.", 130), dns.TypeA, dns.RcodeNameError},
		{"1.2.0.192.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError},
		{"0.1.18.198.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError},
		{"in-addr.arpa.", dns.TypePTR, dns.RcodeNameError},
		{"x.ip6.arpa.", dns.TypePTR, dns.RcodeNameError},
		{"www.example.", dns.TypePTR, dns.RcodeNameError},
		{"one.example.", dns.TypeA, dns.RcodeSuccess},
		{"two.example.", dns.TypeA, dns.RcodeServerFailure},
	} {
		if m := ask(r, c.name, c.kind); m.Rcode != c.want {
			t.Errorf("%s: %s, want %s", c.name, dns.RcodeToString[m.Rcode], dns.RcodeToString[c.want])
		}
	}
	q := new(dns.Msg)
	q.Opcode = dns.OpcodeUpdate
	if m := r.answer(q); m.Rcode != dns.RcodeNotImplemented {
		t.Errorf("an update:\n%v", m)
	}
	if m := ask(r, "1.0.0.127.in-addr.arpa.", dns.TypePTR); len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "localhost." {
		t.Errorf("PTR of loopback:\n%v", m)
	}
}

// Whatever a confined process sends, it gets an answer that can be packed.
func FuzzResolver(f *testing.F) {
	for _, name := range []string{"www.example.", "1.0.18.198.in-addr.arpa.", "localhost."} {
		m := new(dns.Msg)
		m.SetQuestion(name, dns.TypeA)
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		q := new(dns.Msg)
		if q.Unpack(packet) != nil {
			return
		}
		r := &resolver{pool: newPool(4, time.Now), ipv6: true}
		if _, err := r.answer(q).Pack(); err != nil {
			t.Errorf("%v\n%v", err, q)
		}
	})
}
