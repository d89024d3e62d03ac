package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The process that starts a command and the stage that becomes the command talk over a pair of
// sockets, in JSON: setup, ready with the sockets, order, and started. If the command cannot be
// executed after that, a failure follows. The pair is closed when the command runs.

// A setup is the first message to the stage.
type setup struct {
	// NetNS is the network namespace that the stage must not be in.
	NetNS      string
	AllowLocal []uint16
}

// A ready is the answer to a setup.
type ready struct {
	Failure *failure
	IPv6    bool

	// Sockets are the sockets whose descriptors come with the message, in this order.
	Sockets []insideSocket
}

// An order is the second message to the stage: what to run, and what it sees. All paths are
// absolute.
type order struct {
	// Path, Argv and Env are those of the command, and Dir is its working directory.
	Path      string
	Argv, Env []string
	Dir       string

	// Files is the directory that appears as InsideDir.
	Files string

	// Over has the paths of files that files of InsideDir cover, with the names of the latter.
	Over map[string]string

	// Hide has the directories that appear empty. Those that do not exist are ignored.
	Hide []string

	// Private is a directory for the command alone that is made within a hidden one; "": none.
	Private string

	// Cover has the sockets that do not appear. Those that do not exist are ignored.
	Cover []string

	// Show has the sockets that appear within hidden directories.
	Show []string

	// ReadOnly has the files and directories that cannot be changed. Those that do not exist are ignored.
	ReadOnly []string

	// User is whom the command runs as; nil: as the stage.
	User *account
}

// A started is the answer to an order. Only the failure to execute the command may follow, or else the end of the stream.
type started struct {
	Failure *failure

	// Notes say what is not as wanted, for the log.
	Notes []string
}

// A failure is an error of the stage.
type failure struct {
	Text string

	// Errno is the system error, which the failure wraps; zero: there is none.
	Errno syscall.Errno
}

func (f *failure) Error() string { return f.Text }

func (f *failure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

// failureOf returns err for a message; nil for nil.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error()}
	f.Errno, _ = errors.AsType[syscall.Errno](err)
	return f
}

// sendMessage sends a message without a line end. json.Decoder may leave a line end unread, and if the receiver
// then closes its socket, the sender gets ECONNRESET in place of the end of the stream.
func sendMessage(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// maxReady is the size in bytes of the largest message with descriptors, and maxDescriptors how many
// there may be.
const (
	maxReady       = 32 << 10
	maxDescriptors = 200
)

// sendReady sends r with the descriptors of its sockets.
func sendReady(c *net.UnixConn, r ready) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var fds []int
	for _, s := range r.Sockets {
		f, err := s.conn.File()
		if err != nil {
			return err
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(text, rights, nil)
	return err
}

// receiveReady receives a ready and the descriptors of its sockets.
func receiveReady(c *net.UnixConn) (r ready, files []*os.File, err error) {
	text, rights := make([]byte, maxReady), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oob, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return ready{}, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oob])
	if err != nil {
		return ready{}, nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return ready{}, nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	if err := json.Unmarshal(text[:n], &r); err != nil {
		return ready{}, files, err
	}
	if r.Failure == nil && len(files) != len(r.Sockets) {
		return ready{}, files, fmt.Errorf("%d descriptors for %d sockets", len(files), len(r.Sockets))
	}
	return r, files, nil
}
