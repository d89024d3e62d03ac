// Command robotsproxy is a forward proxy that makes the scrapers behind it keep to robots.txt and to a polite pace. The scrapers
// need no change.
//
// The commands are packages below cmd/internal. This package joins them to one tree.
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
	// Stage does not return in the process that becomes a confined command.
	confine.Stage()
	// Without this, net/http's Transport would log each line that an origin sends without a request.
	log.SetOutput(io.Discard)
	status := cli.Execute(context.Background(), rootCommand(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	onTerminal := cli.IsTerminal(os.Stdin) || cli.IsTerminal(os.Stdout) || cli.IsTerminal(os.Stderr)
	if status == cli.ExitSignal+int(syscall.SIGINT) && onTerminal {
		interruptSelf()
	}
	os.Exit(status)
}

// interruptSelf ends this process by SIGINT, where that is possible. Only then does an interactive shell end the loop that this
// command is in; it shows the same status.
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
