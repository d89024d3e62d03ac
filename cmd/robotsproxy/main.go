// Command robotsproxy is a forward proxy that makes the scrapers behind it keep
// to robots.txt and to a polite pace, without a change to them.
//
// The commands are the packages below cmd/internal: version, cli, castore, confine, daemon,
// checkcmd, auditcmd, identity, runner, doctor and manual. This package joins them to one tree.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/confine"
)

func main() {
	// Does not return in the process that becomes a confined command.
	confine.Stage()
	// net/http's Transport logs there, line by line, what origins send without a request.
	log.SetOutput(io.Discard)
	status := cli.Execute(context.Background(), rootCommand(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if status == cli.ExitSignal+int(syscall.SIGINT) && (cli.IsTerminal(os.Stdin) || cli.IsTerminal(os.Stdout) || cli.IsTerminal(os.Stderr)) {
		interruptSelf()
	}
	os.Exit(status)
}

// interruptSelf ends this process by SIGINT, where that is possible. An interactive shell shows the same status then, but
// only then does it end the loop that this command is in.
func interruptSelf() {
	if signal.Ignored(syscall.SIGINT) {
		return
	}
	signal.Reset(syscall.SIGINT)
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Signal(syscall.SIGINT) == nil {
		// Another thread may receive the signal.
		<-time.After(time.Second)
	}
}
