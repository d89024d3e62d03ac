// Package confine runs a command that reaches no network but through the proxy: in a user, a network
// and a mount namespace of its own.
//
// The promise is that no IP packet of the command or its descendants leaves except through the proxy.
// The network namespace has no interface but its own loopback. The sockets that listen there belong
// to the process that called [Start], which connects to other machines in its own namespace. Unix
// sockets, which a network namespace does not close, are hidden by the mount namespace, and a filter
// of system calls closes the ways that both leave open. The files are those of the machine: a
// command may change each file that its user may change.
//
// A step that fails ends the start. Nothing is left out silently, and the command does not run.
//
// Only Linux has this. On other systems Start and [Check] return an error.
package confine

import (
	"os/exec"
	"os/user"
)

// Options say how a command is confined.
type Options struct {
	// Command has Path, Args, Stdin, Stdout and Stderr. It is not started itself.
	Command *exec.Cmd

	// AllowLocal has the TCP ports of loopback outside that are reachable on loopback inside.
	AllowLocal []uint16

	// ShowSocket has the Unix sockets that are not hidden.
	ShowSocket []string

	// User is whom the command runs as, which needs root; nil: as this process.
	User *user.User
}

// A Trust is what a confined command trusts.
type Trust struct {
	// Bundle has the certificates as PEM, and Java the same ones as PKCS #12 without a password.
	Bundle []byte
	Java   []byte

	// CA is the certificate of the proxy's CA as DER.
	CA []byte
}

// InsideDir is where a confined command finds the files of its run.
const InsideDir = "/run/robotsproxy"
