// Command robotsproxy is a forward proxy that makes the scrapers behind it keep
// to robots.txt and to a polite pace, without a change to them.
//
// Each subcommand has a file of its own; wire.go is the page where the packages
// become one proxy. What is printed and with which status the process ends is
// decided here and nowhere else.
package main

import (
	"context"
	"io"
	"log"
	"os"
)

func main() {
	log.SetOutput(io.Discard) // none of ours: net/http's Transport quotes there what origins send unasked, a line each
	os.Exit(execute(context.Background(), rootCommand(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
