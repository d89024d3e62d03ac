package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// pair returns both ends of a TCP connection. Their buffers are small, but larger than a loopback packet.
func pair(t testing.TB) (ours, peer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	testkit.Must(t, err)
	s, err := l.Accept()
	testkit.Must(t, err)
	ours, peer = c.(*net.TCPConn), s.(*net.TCPConn)
	t.Cleanup(func() {
		ours.Close()
		peer.Close()
	})
	testkit.Must(t, errors.Join(ours.SetWriteBuffer(256<<10), peer.SetReadBuffer(256<<10)))
	return ours, peer
}

var past = time.Unix(1, 0)

// much is more than the buffers of a pair hold.
const much = 16 << 20

var port = regexp.MustCompile(`:\d+`)

// outcome is the result of a call, with ports removed from the error.
type outcome struct {
	n    int
	err  string
	is   error // the known error that err wraps
	late bool  // err is a timeout
}

func outcomeOf(n int, err error) outcome {
	o := outcome{n: n}
	if err == nil {
		return o
	}
	o.err = port.ReplaceAllString(err.Error(), "")
	for _, e := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			o.is = e
		}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok {
		o.late = timeout.Timeout()
	}
	return o
}

const tcp = " tcp 127.0.0.1->127.0.0.1: "

var (
	endOfFile   = outcome{err: "EOF", is: io.EOF}
	readReset   = outcome{err: "read" + tcp + "read: connection reset by peer", is: syscall.ECONNRESET}
	readLate    = outcome{err: "read" + tcp + "i/o timeout", is: os.ErrDeadlineExceeded, late: true}
	readClosed  = outcome{err: "read" + tcp + "use of closed network connection", is: net.ErrClosed}
	writeBroken = outcome{err: "write" + tcp + "write: broken pipe", is: syscall.EPIPE}
	writeLate   = outcome{err: "write" + tcp + "i/o timeout", is: os.ErrDeadlineExceeded, late: true}
	writeClosed = outcome{err: "write" + tcp + "use of closed network connection", is: net.ErrClosed}
)

// reset makes the peer reset the connection and waits until ours has noticed.
func reset(ours net.Conn, peer *net.TCPConn) {
	peer.SetLinger(0)
	peer.Close()
	ours.Read(make([]byte, 1))
}

// soon calls f after 20 ms, usually while another call is blocked.
func soon(f func()) { time.AfterFunc(20*time.Millisecond, f) }

// TestReadAsNet checks that Read has the same results as in package net, including error texts.
func TestReadAsNet(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(ours net.Conn, peer *net.TCPConn)
		into int
		want outcome
	}{
		{"available bytes", func(_ net.Conn, peer *net.TCPConn) { peer.Write([]byte("abc")) }, 8, outcome{n: 3}},
		{"a part of the available bytes", func(_ net.Conn, peer *net.TCPConn) { peer.Write([]byte("abc")) }, 2, outcome{n: 2}},
		{"later bytes", func(_ net.Conn, peer *net.TCPConn) { soon(func() { peer.Write([]byte("abc")) }) }, 8, outcome{n: 3}},
		{"into an empty buffer", func(ours net.Conn, _ *net.TCPConn) { ours.SetReadDeadline(past) }, 0, outcome{}},
		{"the end", func(_ net.Conn, peer *net.TCPConn) { peer.CloseWrite() }, 8, endOfFile},
		{"a reset", func(_ net.Conn, peer *net.TCPConn) { peer.SetLinger(0); peer.Close() }, 8, readReset},
		{"deadline during the call", func(ours net.Conn, _ *net.TCPConn) { ours.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) }, 8, readLate},
		{"deadline before the call", func(ours net.Conn, peer *net.TCPConn) { peer.Write([]byte("abc")); ours.SetReadDeadline(past) }, 8, readLate},
		{"closed during the call", func(ours net.Conn, _ *net.TCPConn) { soon(func() { ours.Close() }) }, 8, readClosed},
		{"closed before the call", func(ours net.Conn, _ *net.TCPConn) { ours.Close() }, 8, readClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			read := func(ours net.Conn, peer *net.TCPConn) outcome {
				tt.do(ours, peer)
				return outcomeOf(ours.Read(make([]byte, tt.into)))
			}
			ours, peer := pair(t)
			if got := read(ours, peer); got != tt.want {
				t.Errorf("package net: %+v, want %+v", got, tt.want)
			}
			ours, peer = pair(t)
			if got := read(New(ours), peer); got != tt.want {
				t.Errorf("a Conn: %+v, want %+v", got, tt.want)
			}
		})
	}
}

// begun calls then once the write has started.
func begun(then func(ours net.Conn)) func(net.Conn, *net.TCPConn) func() {
	return func(ours net.Conn, peer *net.TCPConn) func() {
		var all sync.WaitGroup
		all.Go(func() {
			peer.Read(make([]byte, 1)) // the write has started
			then(ours)
		})
		return all.Wait
	}
}

// before calls f before the write.
func before(f func(ours net.Conn, peer *net.TCPConn)) func(net.Conn, *net.TCPConn) func() {
	return func(ours net.Conn, peer *net.TCPConn) func() {
		f(ours, peer)
		return func() {}
	}
}

// TestWriteAsNet checks that Write and WriteBoth, and the next write, have the same results as in
// package net, including error texts.
func TestWriteAsNet(t *testing.T) {
	for _, tt := range []struct {
		name       string
		do         func(ours net.Conn, peer *net.TCPConn) (wait func())
		bytes      int
		want, next outcome // in want, n is 1 for a part of the bytes
	}{
		{"all at once", before(func(net.Conn, *net.TCPConn) {}), 1000, outcome{n: 1000}, outcome{n: 1}},
		{"nothing", before(func(net.Conn, *net.TCPConn) {}), 0, outcome{}, outcome{n: 1}},
		{"nothing to a peer that has reset", before(reset), 0, writeBroken, writeBroken},
		{"more than the peer reads at once", func(_ net.Conn, peer *net.TCPConn) func() {
			var all sync.WaitGroup
			all.Go(func() { io.CopyN(io.Discard, peer, much) })
			return all.Wait
		}, much, outcome{n: much}, outcome{n: 1}},
		{"deadline during the call", begun(func(ours net.Conn) { ours.SetWriteDeadline(past) }), much, some(writeLate), writeLate},
		{"deadline before the call", before(func(ours net.Conn, _ *net.TCPConn) { ours.SetWriteDeadline(past) }), 1000, writeLate, writeLate},
		{"closed during the call", begun(func(ours net.Conn) { ours.Close() }), much, some(writeClosed), writeClosed},
		{"closed before the call", before(func(ours net.Conn, _ *net.TCPConn) { ours.Close() }), 1000, writeClosed, writeClosed},
		{"a peer that has reset", before(reset), 1000, writeBroken, writeBroken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(who string, ours net.Conn, peer *net.TCPConn, write func([]byte) (int, error)) {
				t.Helper()
				wait := tt.do(ours, peer)
				got := outcomeOf(write(make([]byte, tt.bytes)))
				wait()
				if got.err != "" && 0 < got.n && got.n < tt.bytes {
					got.n = 1
				}
				if got != tt.want {
					t.Errorf("%s: %+v, want %+v", who, got, tt.want)
				}
				if next := outcomeOf(ours.Write([]byte("x"))); next != tt.next {
					t.Errorf("%s, the next: %+v, want %+v", who, next, tt.next)
				}
			}
			ours, peer := pair(t)
			check("package net", ours, peer, ours.Write)
			ours, peer = pair(t)
			conn := New(ours).(*Conn)
			check("a Conn", conn, peer, conn.Write)
			for _, cut := range []int{0, 100, tt.bytes / 2, tt.bytes} {
				ours, peer = pair(t)
				conn = New(ours).(*Conn)
				check("both parts", conn, peer, func(b []byte) (int, error) {
					cut := min(cut, len(b))
					return conn.WriteBoth(b[:cut], b[cut:])
				})
			}
		})
	}
}

// some returns o for a write of a part of the bytes.
func some(o outcome) outcome {
	o.n = 1
	return o
}

// TestWriteBoth checks that the bytes arrive complete and in order, wherever they are split.
func TestWriteBoth(t *testing.T) {
	for _, size := range [][2]int{{0, 5}, {5, 0}, {5, 7}, {100, 4 << 20}, {4 << 20, 100}, {3 << 20, 3 << 20}} {
		ours, peer := pair(t)
		both := make([]byte, size[0]+size[1])
		for i := range both {
			both[i] = byte(i % 251)
		}
		var got []byte
		var read sync.WaitGroup
		read.Go(func() { got, _ = io.ReadAll(peer) })
		n, err := New(ours).(*Conn).WriteBoth(both[:size[0]], both[size[0]:])
		testkit.Must(t, ours.CloseWrite())
		read.Wait()
		if n != len(both) || err != nil || !bytes.Equal(got, both) {
			t.Errorf("%d: %d bytes written, %v; %d arrived, or they differ", size, n, err, len(got))
		}
	}
}

func TestTryRead(t *testing.T) {
	needsDirect(t)
	tcp, peer := pair(t)
	ours := New(tcp).(*Conn)
	b := make([]byte, 8)
	if n, err := ours.TryRead(b); n != 0 || err != ErrWouldBlock {
		t.Errorf("without data: %d, %v", n, err)
	}
	testkit.Must(t, ours.SetReadDeadline(past))
	if n, err := ours.TryRead(b); n != 0 || err != ErrWouldBlock {
		t.Errorf("after the deadline: %d, %v", n, err)
	}
	peer.Write([]byte("abc"))
	if n, err := ours.Read(b[:2]); string(b[:n]) != "ab" || err != nil { // the deadline is removed
		t.Errorf("%q, %v", b[:n], err)
	}
	if n, err := ours.TryRead(b); string(b[:n]) != "c" || err != nil {
		t.Errorf("with data: %q, %v", b[:n], err)
	}
	reset(ours, peer)
	if n, err := ours.TryRead(b); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

// TestManyWriters checks that concurrent writes are not interleaved.
func TestManyWriters(t *testing.T) {
	const part, each = 1 << 20, 4
	tcp, peer := pair(t)
	ours := New(tcp)
	var writes sync.WaitGroup
	for _, letter := range "abc" {
		b := bytes.Repeat([]byte(string(letter)), part)
		writes.Go(func() {
			for range each {
				if _, err := ours.Write(b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var got []byte
	var read sync.WaitGroup
	read.Go(func() { got, _ = io.ReadAll(peer) })
	writes.Wait()
	testkit.Must(t, tcp.CloseWrite())
	read.Wait()
	if len(got) != 3*each*part {
		t.Fatalf("%d bytes", len(got))
	}
	for i := 0; i < len(got); i += part {
		if n := bytes.Count(got[i:i+part], got[i:i+1]); n != part {
			t.Errorf("%d bytes of one write are contiguous", n)
		}
	}
}

// TestManyReaders checks that concurrent reads return each byte once.
func TestManyReaders(t *testing.T) {
	tcp, peer := pair(t)
	ours := New(tcp)
	var reads sync.WaitGroup
	var mu sync.Mutex
	var counts [256]int
	for range 3 {
		reads.Go(func() {
			b := make([]byte, 700)
			for {
				n, err := ours.Read(b)
				mu.Lock()
				for _, c := range b[:n] {
					counts[c]++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	sent := make([]byte, 4<<20)
	for i := range sent {
		sent[i] = byte(i)
	}
	_, err := peer.Write(sent)
	testkit.Must(t, errors.Join(err, peer.CloseWrite()))
	reads.Wait()
	for c, n := range counts {
		if n != len(sent)/256 {
			t.Errorf("byte %d arrived %d times", c, n)
		}
	}
}

// TestSplice checks that Splice copies everything up to the end.
func TestSplice(t *testing.T) {
	from, fromPeer := pair(t)
	to, toPeer := pair(t)
	sent := bytes.Repeat([]byte("splice"), 1<<18)
	var all sync.WaitGroup
	all.Go(func() {
		fromPeer.Write(sent)
		fromPeer.CloseWrite()
	})
	var got []byte
	all.Go(func() { got, _ = io.ReadAll(toPeer) })
	n, err := New(from).(*Conn).Splice(New(to).(*Conn))
	testkit.Must(t, to.CloseWrite())
	all.Wait()
	if n != int64(len(sent)) || err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes, %v; %d arrived, or they differ", n, err, len(got))
	}
}

func TestNewReturnsOthersUnchanged(t *testing.T) {
	c, other := net.Pipe()
	defer c.Close()
	defer other.Close()
	if got := New(c); got != c {
		t.Errorf("a %T", got)
	}
}

// thereAndBack writes at one end, reads at the other, and checks that there is nothing more to read.
func thereAndBack(t testing.TB) func() {
	tcp, peerTCP := pair(t)
	ours, peer := New(tcp).(*Conn), New(peerTCP).(*Conn)
	b, a := make([]byte, 1<<10), make([]byte, 1<<10)
	return func() {
		_, werr := ours.WriteBoth(a[:100], a[100:])
		_, rerr := io.ReadFull(peer, b)
		_, gerr := peer.TryRead(b)
		if werr != nil || rerr != nil || gerr != ErrWouldBlock {
			t.Fatal(werr, rerr, gerr)
		}
	}
}

// BenchmarkConn measures 1 KiB written at one end and read at the other, and a TryRead that finds nothing.
func BenchmarkConn(b *testing.B) {
	once := thereAndBack(b)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}

// needsDirect skips a test of what only direct reads and writes do.
func needsDirect(t *testing.T) {
	t.Helper()
	if !Direct {
		t.Skip("this build reads and writes by package net")
	}
}
