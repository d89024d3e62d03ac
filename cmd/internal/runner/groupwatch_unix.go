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

// probeWait is how long one process of a group may receive a signal after another one.
const probeWait = 100 * time.Millisecond

// A probe is a process in the process group of this one that any signal ends. How it ends tells a signal to the
// whole group, sent by a terminal or by kill, from a signal to this process alone. The nil probe has received none.
//
// The probe is cat, waiting for input that never comes. This program would not do: before its runtime handles a
// signal, it may already see the end of its input; and killall robotsproxy would end it too.
type probe struct {
	cmd *exec.Cmd

	// stdin is the input of cmd. Its end ends the probe, also if this process is killed.
	stdin io.Closer

	// ended is closed when the probe has ended.
	ended chan struct{}
}

// startProbe starts a probe; nil if that is not possible.
func startProbe() *probe {
	p := &probe{cmd: exec.Command("cat"), ended: make(chan struct{})}
	// A core dump for SIGQUIT must not replace that of the child.
	p.cmd.Dir = "/"
	stdin, err := p.cmd.StdinPipe()
	if err != nil || p.cmd.Start() != nil {
		return nil
	}
	p.stdin = stdin
	go func() {
		defer close(p.ended)
		// Wait fails if a signal has ended the probe.
		p.cmd.Wait()
	}()
	return p
}

// end ends the probe, even a stopped one.
func (p *probe) end() {
	if p == nil {
		return
	}
	// Both fail only if the probe has ended.
	p.stdin.Close()
	p.cmd.Process.Signal(syscall.SIGCONT)
	<-p.ended
}

// saw reports whether the probe has received s, as this process just has. It ends the probe.
func (p *probe) saw(s os.Signal) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
	case <-time.After(probeWait):
	}
	p.end()
	return statusOf(p.cmd.ProcessState) == cli.ExitSignal+int(s.(syscall.Signal))
}

// A groupWatch tells which signals are sent to the whole process group. Only one goroutine may use it.
type groupWatch struct {
	// probe is for the next signal.
	probe *probe

	// last is the last signal that was sent to the group, and lastAt when it was received; nil: there was none.
	last   os.Signal
	lastAt time.Time
}

func newGroupWatch() *groupWatch { return &groupWatch{probe: startProbe()} }

// saw reports whether s, which this process has just received, was sent to the whole group. Equal signals within
// probeWait count as one: timeout(1) sends one to its command and one to the group.
func (g *groupWatch) saw(s os.Signal) bool {
	// SIGWINCH ends no probe, and does no harm to a child that receives it twice.
	if s == syscall.SIGWINCH {
		return false
	}
	p := g.probe
	g.probe = startProbe()
	if s == g.last && time.Since(g.lastAt) < probeWait {
		p.end()
		return true
	}
	if !p.saw(s) {
		return false
	}
	g.last, g.lastAt = s, time.Now()
	return true
}

// end ends the probe.
func (g *groupWatch) end() { g.probe.end() }

// inGroup reports whether a process is in the process group of this one.
func inGroup(pid int) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && group == unix.Getpgrp()
}
