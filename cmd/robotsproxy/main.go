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

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/confine"
)

func main() {
	confine.Stage()           // does not return in the process that becomes a confined command
	log.SetOutput(io.Discard) // net/http's Transport logs there, line by line, what origins send without a request
	os.Exit(cli.Execute(context.Background(), rootCommand(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
