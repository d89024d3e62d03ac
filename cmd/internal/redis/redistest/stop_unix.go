//go:build unix

package redistest

import "syscall"

// Stop makes the server hang: its connections stay open, but nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue lets a stopped server go on.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}
