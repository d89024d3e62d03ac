package e2e

import (
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// Names is the DNS server of all proxies under test.
var Names = &nameServer{hosts: map[string][]netip.Addr{}, asked: map[string]int{}}

// A nameServer resolves the *.test names that Point sets and answers NXDOMAIN for other names.
type nameServer struct {
	udp, tcp *dns.Server

	// Guards the fields below.
	mu    sync.Mutex
	hosts map[string][]netip.Addr

	// queries, by name.
	asked map[string]int
}

// start listens for UDP and TCP on the same loopback port.
func (s *nameServer) start() error {
	packets, listener, err := onePort()
	if err != nil {
		return err
	}
	if err := packets.(*net.UDPConn).SetReadBuffer(queries); err != nil {
		return err
	}
	s.udp = &dns.Server{PacketConn: packets, Handler: s}
	s.tcp = &dns.Server{Listener: listener, Handler: s}
	for _, server := range []*dns.Server{s.udp, s.tcp} {
		up := make(chan struct{})
		server.NotifyStartedFunc = func() { close(up) }
		go server.ActivateAndServe()
		<-up
	}
	return nil
}

// queries is the size of the receive buffer in bytes. The kernel drops queries beyond it, and a
// proxy repeats a lost query only after seconds.
const queries = 4 << 20

// onePort finds a port that is free for both UDP and TCP.
func onePort() (packets net.PacketConn, listener net.Listener, err error) {
	for range 20 {
		packets, err = net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		listener, err = net.Listen("tcp", packets.LocalAddr().String())
		if err == nil {
			return packets, listener, nil
		}
		packets.Close()
	}
	return nil, nil, err
}

func (s *nameServer) stop() {
	s.udp.Shutdown()
	s.tcp.Shutdown()
}

func (s *nameServer) addr() string { return s.udp.PacketConn.LocalAddr().String() }

// Point sets the addresses of a name.
func (s *nameServer) Point(name string, addrs ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[dns.Fqdn(strings.ToLower(name))] = addrs
}

// Asked returns how many queries for a name arrived.
func (s *nameServer) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[dns.Fqdn(strings.ToLower(name))]
}

// ServeDNS answers A and AAAA queries. A known name without an address of the requested
// family gets an empty answer.
func (s *nameServer) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg).SetReply(query)
	if len(query.Question) != 1 {
		reply.Rcode = dns.RcodeFormatError
		w.WriteMsg(reply)
		return
	}
	q := query.Question[0]
	s.mu.Lock()
	name := strings.ToLower(q.Name)
	addrs, known := s.hosts[name]
	s.asked[name]++
	s.mu.Unlock()
	if !known {
		reply.Rcode = dns.RcodeNameError
	}
	head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}
	for _, a := range addrs {
		switch {
		case q.Qtype == dns.TypeA && a.Is4():
			reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
		case q.Qtype == dns.TypeAAAA && a.Is6():
			reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	w.WriteMsg(reply)
}
