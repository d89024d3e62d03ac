package redis

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// The maximum sizes of a reply, in bytes of the memory that go-redis takes for it: the strings, and
// elementSize for each element of an array.
const (
	// maxReply is the maximum size of most replies, and of a message. The longest are those of
	// take.lua, with nine meters of up to 20 buckets of about 40 bytes, and the messages of backOffChannel.
	maxReply = 2 * maxBackOffMessage

	// maxBackOffMessage is the maximum length of a message of backOffChannel in bytes. A longer one is not the proxy's.
	maxBackOffMessage = 4 << 10

	// maxDescription is the maximum size of the server's description of itself, its modules and
	// its Sentinels.
	maxDescription = 64 << 10

	// newsRead is how many entries of the news are read at once.
	newsRead = 250

	// maxNewsEntry is the maximum size of an entry of the news, which contains the name of a host.
	maxNewsEntry = 2 << 10

	// elementSize is the memory in bytes that go-redis takes for each element of an array or a map.
	elementSize = 32

	// maxDepth bounds arrays in arrays. The news have five.
	maxDepth = 8

	// maxLine is the maximum length of a line in bytes.
	maxLine = maxReply
)

// maxReplies are the commands with longer replies than maxReply.
var maxReplies = map[string]int{
	"getrange":      maxReply + frameSize + maxEntry,
	"hmget":         maxReply + max(maxMembers*(maxMember+elementSize), stopsRead*(maxStop+elementSize)),
	"zrangebyscore": maxReply + stopsRead*(maxStopKey+3*elementSize),
	"xread":         maxReply + newsRead*maxNewsEntry,
	"hello":         maxDescription,
	"info":          maxDescription,
	"sentinel":      maxDescription,
}

// boundDialer returns a function that dials as o says, and fails connections whose server sends more
// than it was asked for. go-redis itself takes as much memory as the server demands.
func boundDialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := redis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		b := &boundConn{Conn: c}
		b.most.Store(maxReply)
		// Without TLS, go-redis uses the syscall.Conn to find out whether an idle connection was closed.
		if raw, ok := c.(syscall.Conn); ok {
			return struct {
				*boundConn
				syscall.Conn
			}{b, raw}, nil
		}
		return b, nil
	}
}

// A boundConn is a connection to a server that fails as soon as the server begins a reply that is
// larger than the last command permits. One goroutine at a time may read, and one may write.
type boundConn struct {
	net.Conn

	// most is the maximum size of a reply in bytes.
	most    atomic.Int64
	replies replyCounter

	// failed is the error that replies has returned.
	failed error
}

// Write writes commands. go-redis writes a command with a long reply alone, and from its beginning.
func (c *boundConn) Write(b []byte) (int, error) {
	most := maxReply
	if long, ok := maxReplies[string(commandName(b))]; ok {
		most = long
	}
	c.most.Store(int64(most))
	return c.Conn.Write(b)
}

// Read returns nothing of a reply that is too large: go-redis would take the memory for a string or
// an array when it has read the length.
func (c *boundConn) Read(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.Conn.Read(b)
	if c.failed = c.replies.add(b[:n], int(c.most.Load())); c.failed != nil {
		c.Conn.Close()
		return 0, c.failed
	}
	return n, err
}

// commandName returns the name of the command at the beginning of b, as go-redis spells it: it
// follows the number of arguments and its own length. It returns nil if no command begins there.
func commandName(b []byte) []byte {
	args, b, _ := bytes.Cut(b, []byte("\r\n"))
	size, b, _ := bytes.Cut(b, []byte("\r\n"))
	name, _, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || !bytes.HasPrefix(args, []byte("*")) || !bytes.HasPrefix(size, []byte("$")) {
		return nil
	}
	return name
}

// A replyCounter counts the size of each reply in a stream in the Redis protocol.
type replyCounter struct {
	// line is the beginning of an incomplete line.
	line []byte

	// skip is how many bytes are left of a string, with its CRLF.
	skip int

	// open has the number of elements that follow in the present array, after those of the arrays around it.
	open []int

	// left is how many bytes of memory the rest of the present reply may take.
	left int
}

// add counts the next part of the stream. A reply that begins in it may have the size most.
func (r *replyCounter) add(b []byte, most int) error {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			b = b[n:]
			if r.skip -= n; r.skip == 0 {
				r.ended()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		part := b[:end]
		if end == 0 {
			part = b
		}
		b = b[len(part):]
		if len(r.line)+len(part) > maxLine {
			return errTooMuch
		}
		if r.line = append(r.line, part...); end == 0 {
			return nil
		}
		if len(r.open) == 0 {
			r.left = most
		}
		if err := r.header(bytes.TrimSpace(r.line)); err != nil {
			return err
		}
		r.line = r.line[:0]
	}
	return nil
}

// header counts the line with which a reply, or an element of one, begins.
func (r *replyCounter) header(line []byte) error {
	if len(line) == 0 {
		return errReply
	}
	n, kind := 0, line[0]
	switch kind {
	case '+', '-', ':', '_', ',', '#', '(':
	case '$', '!', '=', '*', '~', '>', '%':
		var err error
		if n, err = strconv.Atoi(string(line[1:])); err != nil {
			return errReply
		}
	default:
		return errReply
	}
	// The sums below cannot overflow.
	if n > r.left {
		return errTooMuch
	}
	depth := len(r.open)
	switch r.left -= len(line); kind {
	case '$', '!', '=':
		if n >= 0 {
			r.left, r.skip = r.left-n, n+len("\r\n")
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		if n > 0 {
			r.left, r.open = r.left-n*elementSize, append(r.open, n)
		}
	}
	if r.left < 0 || len(r.open) > maxDepth {
		return errTooMuch
	}
	if r.skip == 0 && len(r.open) == depth {
		r.ended()
	}
	return nil
}

// ended ends a reply, or an element and with it each array of which it is the last one.
func (r *replyCounter) ended() {
	for last := len(r.open) - 1; last >= 0; last-- {
		if r.open[last]--; r.open[last] > 0 {
			return
		}
		r.open = r.open[:last]
	}
}
