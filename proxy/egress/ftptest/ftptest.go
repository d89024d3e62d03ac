// Package ftptest is an FTP server on loopback for tests. It serves files from memory,
// records every command, and can send wrong replies or data.
//
// It supports reading (RFC 959, 2389, 2428, 3659), not writing. Set the exported fields of a
// Server before Start and do not change them later.
package ftptest

import (
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"
)

// Modified is the modification time of every file.
var Modified = time.Date(2024, time.March, 1, 12, 30, 45, 0, time.UTC)

// A Command is one command that a Server received.
type Command struct {
	// Session is the number of the control connection, from 1.
	Session   int
	Verb, Arg string
	At        time.Time
}

// String returns the command as it was sent.
func (c Command) String() string { return strings.TrimSuffix(c.Verb+" "+c.Arg, " ") }

// A Server is an FTP server. Start it, Close it.
type Server struct {
	// Files has the content of each file by its path from the login directory, such as "pub/a.txt". A name that ends in
	// "/" is a directory.
	Files map[string]string

	// Greeting is sent instead of 220.
	Greeting string

	// Features are the reply to FEAT; nil: the default; empty: FEAT is unknown.
	Features []string

	// PassiveIP is the address in replies to PASV; "": the server's own.
	PassiveIP string

	// Reply returns the reply to send instead of the server's own. "" means the server's
	// own reply, Hangup means to close the connection. Many goroutines may call it.
	Reply func(verb, arg string) string
	// Transfer replaces the data of RETR, LIST or MLSD and returns the reply that ends
	// the transfer. nil sends everything and replies 226.
	Transfer func(data net.Conn, content string) (last string)

	listener net.Listener
	sessions sync.WaitGroup

	mu       sync.Mutex
	commands []Command
	conns    map[net.Conn]bool

	// ended signals that a connection has ended.
	ended  sync.Cond
	count  int
	closed bool
}

// Hangup as a reply closes the control connection.
const Hangup = "hangup"

// Start listens on a free port of 127.0.0.1.
func (s *Server) Start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.listener, s.conns, s.ended.L = l, make(map[net.Conn]bool), &s.mu
	s.sessions.Go(s.accept)
	return nil
}

// Addr returns the address on which the server listens, as host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends all sessions and waits for them.
func (s *Server) Close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.sessions.Wait()
}

// Commands returns the commands in their order. If verbs are given, it returns only those
// commands.
func (s *Server) Commands(verbs ...string) []Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Command
	for _, c := range s.commands {
		if len(verbs) == 0 || slices.Contains(verbs, c.Verb) {
			all = append(all, c)
		}
	}
	return all
}

// Lines returns Commands as text.
func (s *Server) Lines(verbs ...string) []string {
	var lines []string
	for _, c := range s.Commands(verbs...) {
		lines = append(lines, c.String())
	}
	return lines
}

// Wait returns when no control or data connection is open, so that Commands has every
// command of earlier connections.
func (s *Server) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.conns) > 0 {
		s.ended.Wait()
	}
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		if !s.hold(c) {
			return
		}
		s.mu.Lock()
		s.count++
		n := s.count
		s.mu.Unlock()
		s.sessions.Go(func() {
			defer s.drop(c)
			x := &session{server: s, number: n, conn: c, text: textproto.NewConn(c)}
			x.run()
		})
	}
}

// hold registers a connection, so that Close closes it. It returns false after Close.
func (s *Server) hold(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	s.conns[c] = true
	return true
}

func (s *Server) drop(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	c.Close()
	s.ended.Broadcast()
}

func (s *Server) note(session int, verb, arg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, Command{session, verb, arg, time.Now()})
}

// isDir reports whether a name in Files, without the slashes at its ends, is a directory.
func (s *Server) isDir(name string) bool {
	for f := range s.Files {
		if name == "" || strings.HasPrefix(f, name+"/") {
			return true
		}
	}
	return name == ""
}

// list returns a directory's entries in the form of LIST or MLSD.
func (s *Server) list(dir string, machine bool) string {
	if dir != "" {
		dir += "/"
	}
	// The size of a directory is -1.
	sizes := map[string]int{}
	for f, content := range s.Files {
		rest, below := strings.CutPrefix(f, dir)
		switch name, _, deeper := strings.Cut(rest, "/"); {
		case !below || name == "":
		case deeper:
			sizes[name] = -1
		default:
			sizes[name] = len(content)
		}
	}
	var names []string
	for name := range sizes {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	if machine {
		b.WriteString("type=cdir;modify=20240301123045; .\r\n")
	} else {
		fmt.Fprintf(&b, "total %d\r\n", len(names))
	}
	for _, name := range names {
		size := sizes[name]
		switch {
		case machine && size < 0:
			fmt.Fprintf(&b, "type=dir;modify=20240301123045; %s\r\n", name)
		case machine:
			fmt.Fprintf(&b, "type=file;size=%d;modify=20240301123045; %s\r\n", size, name)
		case size < 0:
			fmt.Fprintf(&b, "drwxr-xr-x   2 ftp      ftp          4096 Mar 01  2024 %s\r\n", name)
		default:
			fmt.Fprintf(&b, "-rw-r--r--   1 ftp      ftp      %8d Mar 01  2024 %s\r\n", size, name)
		}
	}
	return b.String()
}
