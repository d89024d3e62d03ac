package inbound

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// recordingConn keeps each write separately.
type recordingConn struct {
	net.Conn  // nil
	writes    []string
	deadlines []time.Time
	closed    bool
	fault     error // returned by writes
	most      int   // bytes per write; 0: all
}

func (w *recordingConn) Write(b []byte) (int, error) {
	if w.fault != nil {
		return 0, w.fault
	}
	if w.most > 0 && len(b) > w.most {
		w.writes = append(w.writes, string(b[:w.most]))
		return w.most, os.ErrDeadlineExceeded
	}
	w.writes = append(w.writes, string(b))
	return len(b), nil
}

func (w *recordingConn) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

func (w *recordingConn) Close() error {
	w.closed = true
	return nil
}

// frame returns the frames that f writes.
func frame(f func(*http2.Framer)) string {
	var b bytes.Buffer
	f(http2.NewFramer(&b, nil))
	return b.String()
}

// headOf and bodyOf return the frames of a response.
func headOf(stream uint32, endStream, endHeaders bool) string {
	return frame(func(f *http2.Framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("head of an answer"), EndStream: endStream, EndHeaders: endHeaders})
	})
}

func bodyOf(stream uint32, size int) string {
	return frame(func(f *http2.Framer) { f.WriteData(stream, true, make([]byte, size)) })
}

// TestHeadGoesWithItsBody checks that a write that ends with the head of a response is held and sent
// with the next write, and that no other write is held.
func TestHeadGoesWithItsBody(t *testing.T) {
	head, body, long := headOf(1, false, true), bodyOf(1, 10), bodyOf(1, maxHeld)
	other := headOf(3, false, true)
	ping := frame(func(f *http2.Framer) { f.WritePing(true, [8]byte{}) })
	reset := frame(func(f *http2.Framer) { f.WriteRSTStream(1, http2.ErrCodeCancel) })
	alike := frame(func(f *http2.Framer) { f.WriteData(1, false, []byte(head)) })
	half, bare := headOf(1, false, false), headOf(1, true, true)
	rest := frame(func(f *http2.Framer) { f.WriteContinuation(1, true, []byte("the rest")) })
	status := frame(func(f *http2.Framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, bareHeadSize), EndHeaders: true})
	})
	just, over := bodyOf(1, maxHeld-len(head)-9), bodyOf(1, maxHeld-len(head)-8)
	for _, tt := range []struct {
		name        string
		write, want []string // want: nothing is held back after these
	}{
		{"head, body", []string{head, body}, []string{head + body}},
		{"two heads, a body", []string{head, other, body}, []string{head + other + body}},
		{"head, long body", []string{head, long}, []string{head, long}},
		{"already together", []string{head + body}, []string{head + body}},
		{"as much as fits", []string{head, just}, []string{head + just}},
		{"more than fits", []string{head, over}, []string{head, over}},
		{"a head with its status alone", []string{status}, []string{status}},
		{"a body, the head of another stream, its body", []string{body + other, body}, []string{body + other + body}},
		{"a head with a separate CONTINUATION", []string{half, rest, body}, []string{half, rest, body}},
		{"a ping's answer and a head, a body", []string{ping + head, body}, []string{ping + head + body}},
		{"no body", []string{bare}, []string{bare}},
		{"half a head", []string{half}, []string{half}},
		{"a head in two parts", []string{head[:3], head[3:], body}, []string{head[:3], head[3:] + body}},
		{"a body that looks like a head", []string{alike}, []string{alike}},
		{"a reset after the head", []string{head, reset}, []string{head + reset}},
		{"no answer", []string{ping}, []string{ping}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &recordingConn{}
				c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
				c.heads.memory = plenty(t)
				for _, b := range tt.write {
					if n, err := c.Write([]byte(b)); n != len(b) || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
				if !slices.Equal(w.writes, tt.want) {
					t.Errorf("written: %q, want %q", w.writes, tt.want)
				}
				time.Sleep(2 * heldFor)
				synctest.Wait()
				if len(w.writes) != len(tt.want) {
					t.Errorf("later: %q", w.writes)
				}
			})
		})
	}
}

// TestHeadDoesNotWaitLong checks that the head of a response whose body is late is sent by itself in time.
func TestHeadDoesNotWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recordingConn{}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		head, own := headOf(1, false, true), time.Now().Add(time.Hour)
		if err := c.SetWriteDeadline(own); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			c.Write([]byte(head))
			time.Sleep(heldFor)
			synctest.Wait()
			if len(w.writes) != i+1 || w.writes[i] != head {
				t.Fatalf("%d: written: %q", i, w.writes)
			}
			if want := time.Now().Add(time.Minute); !slices.Contains(w.deadlines, want) || !w.deadlines[len(w.deadlines)-1].Equal(own) {
				t.Errorf("%d: deadlines %v, want %v, and then %v", i, w.deadlines, want, own)
			}
		}
	})
}

// TestHeldHeadWriteFails checks that the connection is closed if a held head cannot be written.
func TestHeldHeadWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recordingConn{fault: errors.New("broken")}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		if _, err := c.Write([]byte(headOf(1, false, true))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heldFor)
		synctest.Wait()
		w.fault = nil
		if _, err := c.Write([]byte(bodyOf(1, 1))); err == nil || len(w.writes) > 0 || !w.closed {
			t.Errorf("%v, and %q written; closed: %t", err, w.writes, w.closed)
		}
	})
}

// TestCloseDropsHeldHead checks that nothing is written after the connection is closed.
func TestCloseDropsHeldHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recordingConn{}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		c.Write([]byte(headOf(1, false, true)))
		c.Close()
		time.Sleep(2 * heldFor)
		synctest.Wait()
		if !w.closed || len(w.writes) > 0 {
			t.Errorf("closed: %t; %q written", w.closed, w.writes)
		}
	})
}

// TestCloseUnblocksWriters checks that Close ends writes that are blocked by a client that does not read.
func TestCloseUnblocksWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := newH2Conn(server, tls.ConnectionState{}, time.Hour)
		if _, err := c.Write([]byte(headOf(1, false, true))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heldFor)
		synctest.Wait() // the held head is being written
		done := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte(bodyOf(1, 1)))
			done <- err
		}()
		c.Close() // before or during the wait
		if err := <-done; err == nil {
			t.Error("the write succeeded")
		}
	})
}

// TestOrderAfterReleasedHead checks that a write during the release of a held head comes after the head.
func TestOrderAfterReleasedHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := newH2Conn(server, tls.ConnectionState{}, time.Hour)
		defer c.Close()
		head, body := headOf(1, false, true), bodyOf(1, 100)
		c.Write([]byte(head))
		time.Sleep(heldFor)
		synctest.Wait()
		go c.Write([]byte(body))
		got := make([]byte, len(head)+len(body))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != head+body {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestShortWrite checks that the parser follows what net/http writes again after a short write.
func TestShortWrite(t *testing.T) {
	// The head is held for a short time.
	synctest.Test(t, func(t *testing.T) {
		w := &recordingConn{most: 5}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		defer c.Close()
		body := bodyOf(1, 100)
		if n, err := c.Write([]byte(body)); n != 5 || err == nil {
			t.Fatalf("%d, %v", n, err)
		}
		w.most = 0
		c.Write([]byte(body[5:]))
		head := headOf(3, false, true)
		c.Write([]byte(head))
		c.Write([]byte(body))
		if want := []string{body[:5], body[5:], head + body}; !slices.Equal(w.writes, want) {
			t.Errorf("written: %q, want %q", w.writes, want)
		}
	})
}

// FuzzH2Conn checks that the output equals the input, wherever writes are split.
func FuzzH2Conn(f *testing.F) {
	f.Add([]byte(headOf(1, false, true)+bodyOf(1, 20)+headOf(3, true, true)), []byte{3, 10, 1})
	f.Add([]byte(headOf(1, false, true)+headOf(3, false, true)+bodyOf(3, 5000)), []byte{13, 13})
	f.Add([]byte("\x00\x00\x04\x09\x04\x00\x00\x00\x01head"), []byte{4}) // CONTINUATION, which counts in the memory budget
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		w := &recordingConn{}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		defer c.Close()
		c.heads.memory = plenty(t)
		rest := data
		for _, cut := range cuts {
			n := min(int(cut), len(rest))
			c.Write(rest[:n])
			rest = rest[n:]
		}
		c.Write(rest)
		c.release()
		c.mu.Lock() // for the timer, if it runs
		defer c.mu.Unlock()
		if got := strings.Join(w.writes, ""); got != string(data) {
			t.Errorf("%q written of %q", got, data)
		}
	})
}
