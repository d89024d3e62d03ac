// Package dnstest is a DNS server on loopback for tests. It knows only the names that the
// test configures.
package dnstest

import (
	"maps"
	"net"
	"sync"

	"github.com/miekg/dns"
)

// A Server answers questions for A and AAAA over UDP. Any number of goroutines
// may use it. Start it, Close it.
type Server struct {
	server *dns.Server
	done   chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	answers map[string][][]string

	// asked counts the questions for A by name, and mute has the names without a reply for AAAA.
	asked map[string]int
	mute  map[string]bool
}

// Start listens on a free port of 127.0.0.1. Each name (with its final dot) has a list of
// answers, which are returned one after the other; the last one is repeated. An answer is
// a list of addresses.
func Start(answers map[string][][]string) (*Server, error) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{answers: map[string][][]string{}, asked: map[string]int{}, mute: map[string]bool{}, done: make(chan struct{})}
	maps.Copy(s.answers, answers)
	ready := make(chan struct{})
	s.server = &dns.Server{PacketConn: socket, Handler: s, NotifyStartedFunc: func() { close(ready) }}
	go func() {
		defer close(s.done)
		s.server.ActivateAndServe()
	}()
	<-ready
	return s, nil
}

// Close stops the server.
func (s *Server) Close() {
	s.server.Shutdown()
	<-s.done
}

// Addr returns the address on which the server listens, as host:port.
func (s *Server) Addr() string { return s.server.PacketConn.LocalAddr().String() }

// Point sets the answer for name, with its final dot, from now on.
func (s *Server) Point(name string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = [][]string{addrs}
}

// WithholdIPv6 makes the server answer no query for the AAAA records of name, with its final dot.
func (s *Server) WithholdIPv6(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute[name] = true
}

// Asked returns how often the A records of name were requested.
func (s *Server) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// ServeDNS answers one query.
func (s *Server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	question := q.Question[0]
	reply := new(dns.Msg)
	reply.SetReply(q)
	addrs, known, silent := s.answer(question)
	if silent {
		return
	}
	if !known {
		reply.Rcode = dns.RcodeNameError
	}
	for _, text := range addrs {
		header := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET}
		switch ip := net.ParseIP(text); {
		case question.Qtype == dns.TypeA && ip.To4() != nil:
			reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: ip})
		case question.Qtype == dns.TypeAAAA && ip.To4() == nil:
			reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: header, AAAA: ip})
		}
	}
	w.WriteMsg(reply)
}

// answer returns the next answer to a query.
func (s *Server) answer(q dns.Question) (addrs []string, known, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.asked[q.Name]
	if q.Qtype == dns.TypeA {
		s.asked[q.Name]++
	}
	answers, known := s.answers[q.Name]
	if !known {
		return nil, false, false
	}
	return answers[min(turn, len(answers)-1)], true, s.mute[q.Name] && q.Qtype == dns.TypeAAAA
}
