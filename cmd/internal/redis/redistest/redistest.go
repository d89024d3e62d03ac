// Package redistest runs a real redis-server, or Valkey, for a test: on a loopback
// port of its own, with an empty directory, until the test ends.
package redistest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

const (
	// startTime is how long a server may take until it answers.
	startTime = 20 * time.Second

	// starts is how often one is started whose port was taken meanwhile.
	starts = 5

	// The ports of servers are below the range for outgoing connections. Otherwise an
	// outgoing connection to a stopped server could take its port, or connect to itself.
	// The ports above are for the end-to-end tests, which run at the same time.
	firstPort, ports = 10_000, 12_000
)

// A Server is the process of a server, running or not.
type Server struct {
	// Addr is host:port, the same after a Restart.
	Addr string

	t    testing.TB
	bin  string
	args []string
	dir  string

	// cmd is nil if the server does not run.
	cmd *exec.Cmd

	// ended is closed when cmd has ended.
	ended chan struct{}
}

// Binaries returns the servers on this machine. If there is none, the test is skipped and
// says so; with REQUIRE_PEERS=1 it fails. Under -short it is skipped.
func Binaries(t testing.TB) []string {
	t.Helper()
	testkit.Long(t, "real peers")
	var all []string
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			all = append(all, path)
		}
	}
	if len(all) > 0 {
		return all
	}
	testkit.Missing(t, "redis-server, or valkey-server,")
	return nil
}

// Start runs the first of the servers on this machine with these arguments beside
// those for its place.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartBinary(t, Binaries(t)[0], args...)
}

// StartBinary is Start for one of [Binaries].
func StartBinary(t testing.TB, bin string, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, bin: bin, args: args, dir: t.TempDir()}
	t.Cleanup(s.Kill)
	for range starts {
		if s.Addr = FreeAddr(t); s.run() {
			return s
		}
	}
	t.Fatalf("%s %v ends before it answers", bin, args)
	return nil
}

// FreeAddr returns a loopback address on which nothing listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// URL is what store.redis is set to.
func (s *Server) URL() string { return "redis://" + s.Addr }

// run starts the server, and reports whether it answers. If it does not, it has ended.
func (s *Server) run() bool {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	place := []string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no"}
	s.cmd = exec.Command(s.bin, append(place, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended, cmd := make(chan struct{}), s.cmd
	s.ended = ended
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	for began := time.Now(); !s.answers(); {
		if time.Since(began) > startTime {
			s.t.Fatalf("%s does not answer on %s", s.bin, s.Addr)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ended:
			s.cmd = nil
			return false
		}
	}
	return true
}

// answers reports whether a Redis server answers at the address, even if it asks for a
// password.
func (s *Server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}

// Kill ends the server at once, as a crash would. A server that was ended stays so.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Restart starts the server again at the same address, with only what it had written to
// its directory.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if !s.run() {
		s.t.Fatalf("%s does not start again", s.bin)
	}
}
