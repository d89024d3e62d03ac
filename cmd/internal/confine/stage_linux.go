package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageArgument is the argument by which this program knows that it is a stage.
const stageArgument = "confinement-stage"

// stageFD is the stage's end of the pair of sockets.
const stageFD = 3

// Stage does the work of the stage, if this process is one, and then becomes the command. Else it
// returns at once. Every program that calls Start must call Stage first.
func Stage() {
	if len(os.Args) != 2 || os.Args[1] != stageArgument {
		return
	}
	// The error could not be reported over the sockets.
	if err := runStage(); err != nil {
		fmt.Fprintln(os.Stderr, "robotsproxy: confinement:", err)
	}
	os.Exit(1)
}

func runStage() error {
	// Capabilities and the filter of system calls belong to a thread.
	runtime.LockOSThread()
	f := os.NewFile(stageFD, "sockets")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return errors.New("only robotsproxy run may start this")
	}
	control, ok := c.(*net.UnixConn)
	if !ok {
		return errors.New("only robotsproxy run may start this")
	}
	in := json.NewDecoder(control)
	var s setup
	if err := in.Decode(&s); err != nil {
		// The other process has ended.
		return nil
	}
	ready, err := prepare(s)
	ready.Failure = failureOf(err)
	if err := sendReady(control, ready); err != nil {
		return err
	}
	var o order
	if err := in.Decode(&o); err != nil {
		return nil
	}
	notes, err := o.prepare()
	if err != nil {
		return sendMessage(control, started{Failure: failureOf(err)})
	}
	if err := sendMessage(control, started{Notes: notes}); err != nil {
		return err
	}
	err = syscall.Exec(o.Path, o.Argv, o.Env)
	return sendMessage(control, failureOf(err))
}

// prepare sets up the network.
func prepare(s setup) (r ready, err error) {
	if here, err := os.Readlink("/proc/self/ns/net"); err != nil || here == s.NetNS {
		return ready{}, errors.New("the stage has no network namespace of its own")
	}
	r.Sockets, r.IPv6, err = setUpNetwork(s.AllowLocal)
	return r, err
}

// prepare makes this process ready to execute the command: it sets up what the command sees and gives
// up all privileges.
func (o *order) prepare() (notes []string, err error) {
	if notes, err = o.mount(); err != nil {
		return nil, err
	}
	if err := dropPrivileges(o.User); err != nil {
		return nil, err
	}
	if err := unix.CloseRange(stageFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close inherited descriptors: %w", err)
	}
	return notes, nil
}
