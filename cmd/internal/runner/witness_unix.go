//go:build unix

package runner

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"robotsproxy/cmd/internal/cli"
)

// witnessWait is how long one process of a group may receive a signal after another one.
const witnessWait = 100 * time.Millisecond

// A witness is a process in the process group of this one that any signal ends. How it ends tells a signal to the
// whole group, sent by a terminal or by kill, from a signal to this process alone. The nil witness has received none.
//
// The witness is cat, waiting for input that never comes. This program would not do: before its runtime handles a
// signal, it may already see the end of its input; and killall robotsproxy would end it too.
type witness struct {
	cmd   *exec.Cmd
	stdin io.Closer     // its end ends the witness, also if this process is killed
	ended chan struct{} // closed when the witness has ended
}

// startWitness starts a witness; nil if that is not possible.
func startWitness() *witness {
	w := &witness{cmd: exec.Command("cat"), ended: make(chan struct{})}
	w.cmd.Dir = "/" // a core dump for SIGQUIT must not replace that of the child
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := w.cmd.Start(); err != nil {
		return nil
	}
	w.stdin = stdin
	go func() {
		defer close(w.ended)
		w.cmd.Wait() // fails if a signal has ended the witness
	}()
	return w
}

// end ends the witness, even a stopped one.
func (w *witness) end() {
	if w == nil {
		return
	}
	// Both fail only if the witness has ended.
	w.stdin.Close()
	w.cmd.Process.Signal(syscall.SIGCONT)
	<-w.ended
}

// saw reports whether the witness has received s, as this process just has. It ends the witness.
func (w *witness) saw(s os.Signal) bool {
	if w == nil {
		return false
	}
	select {
	case <-w.ended:
	case <-time.After(witnessWait):
	}
	w.end()
	return statusOf(w.cmd.ProcessState) == cli.ExitSignal+int(s.(syscall.Signal))
}

// A groupWatch tells which signals are sent to the whole process group. Only one goroutine may use it.
type groupWatch struct {
	witness *witness // of the next signal
	last    os.Signal
	lastAt  time.Time // when last was sent to the group
}

func newGroupWatch() *groupWatch { return &groupWatch{witness: startWitness()} }

// saw reports whether s, which this process has just received, was sent to the whole group. Equal signals within
// witnessWait count as one: timeout(1) sends one to its command and one to the group.
func (g *groupWatch) saw(s os.Signal) bool {
	if s == syscall.SIGWINCH {
		return false // it ends no witness, and does no harm to a child that receives it twice
	}
	w := g.witness
	g.witness = startWitness()
	if s == g.last && time.Since(g.lastAt) < witnessWait {
		w.end()
		return true
	}
	if !w.saw(s) {
		return false
	}
	g.last, g.lastAt = s, time.Now()
	return true
}

// end ends the witness.
func (g *groupWatch) end() { g.witness.end() }

// inGroup reports whether a process is in the process group of this one.
func inGroup(pid int) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && group == unix.Getpgrp()
}
