package proxy

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

// A wire keeps what is written, each write by itself.
type wire struct {
	net.Conn  // nil
	writes    []string
	deadlines []time.Time
	closed    bool
	fault     error // of writes
	most      int   // bytes of a write; 0: all
}

func (w *wire) Write(b []byte) (int, error) {
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

func (w *wire) SetWriteDeadline(t time.Time) error {
	w.deadlines = append(w.deadlines, t)
	return nil
}

func (w *wire) Close() error {
	w.closed = true
	return nil
}

// frame makes frames by f.
func frame(f func(*http2.Framer)) string {
	var b bytes.Buffer
	f(http2.NewFramer(&b, nil))
	return b.String()
}

// headOf and bodyOf are an answer's frames.
func headOf(stream uint32, endStream, endHeaders bool) string {
	return frame(func(f *http2.Framer) {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte("head of an answer"), EndStream: endStream, EndHeaders: endHeaders})
	})
}

func bodyOf(stream uint32, size int) string {
	return frame(func(f *http2.Framer) { f.WriteData(stream, true, make([]byte, size)) })
}

// A write that ends with the head of an answer goes out with the next one, and no other waits.
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
		write, want []string // after which nothing is held back
	}{
		{"head, body", []string{head, body}, []string{head + body}},
		{"heads of two, a body", []string{head, other, body}, []string{head + other + body}},
		{"head, long body", []string{head, long}, []string{head, long}},
		{"as one already", []string{head + body}, []string{head + body}},
		{"as much as fits", []string{head, just}, []string{head + just}},
		{"more than fits", []string{head, over}, []string{head, over}},
		{"a head with its status alone", []string{status}, []string{status}},
		{"the body of one, the head of another, its body", []string{body + other, body}, []string{body + other + body}},
		{"a head whose rest comes by itself", []string{half, rest, body}, []string{half, rest, body}},
		{"a ping's answer and a head, a body", []string{ping + head, body}, []string{ping + head + body}},
		{"no body", []string{bare}, []string{bare}},
		{"half a head", []string{half}, []string{half}},
		{"a head in two parts", []string{head[:3], head[3:], body}, []string{head[:3], head[3:] + body}},
		{"a body that looks like a head", []string{alike}, []string{alike}},
		{"a reset behind the head", []string{head, reset}, []string{head + reset}},
		{"no answer", []string{ping}, []string{ping}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{}
				c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
				for _, b := range tt.write {
					if n, err := c.Write([]byte(b)); n != len(b) || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
				if !slices.Equal(w.writes, tt.want) {
					t.Errorf("went out: %q, want %q", w.writes, tt.want)
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

// The head of an answer whose body does not come goes out by itself, in time.
func TestHeadDoesNotWaitLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
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
				t.Fatalf("%d: went out: %q", i, w.writes)
			}
			if want := time.Now().Add(time.Minute); !slices.Contains(w.deadlines, want) || !w.deadlines[len(w.deadlines)-1].Equal(own) {
				t.Errorf("%d: deadlines %v, want %v, and then %v", i, w.deadlines, want, own)
			}
		}
	})
}

// A head that was held back and cannot be sent is the connection's end.
func TestHeldHeadIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{fault: errors.New("broken")}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		if _, err := c.Write([]byte(headOf(1, false, true))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heldFor)
		synctest.Wait()
		w.fault = nil
		if _, err := c.Write([]byte(bodyOf(1, 1))); err == nil || len(w.writes) > 0 || !w.closed {
			t.Errorf("%v, and %q went out; closed: %t", err, w.writes, w.closed)
		}
	})
}

// Nothing goes out of a connection that is closed.
func TestClosedWithAHeadHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		c.Write([]byte(headOf(1, false, true)))
		c.Close()
		time.Sleep(2 * heldFor)
		synctest.Wait()
		if !w.closed || len(w.writes) > 0 {
			t.Errorf("closed: %t; %q went out", w.closed, w.writes)
		}
	})
}

// A client that takes nothing holds up what waits to be written, and Close ends that.
func TestCloseEndsWhatIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := newH2Conn(server, tls.ConnectionState{}, time.Hour)
		if _, err := c.Write([]byte(headOf(1, false, true))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heldFor)
		synctest.Wait() // it is being released
		done := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte(bodyOf(1, 1)))
			done <- err
		}()
		c.Close() // before or while that waits
		if err := <-done; err == nil {
			t.Error("written all the same")
		}
	})
}

// What is written while a head is being released comes after it.
func TestOrderBehindAReleasedHead(t *testing.T) {
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

// What net/http writes again, after a part of it, is followed as it goes out.
func TestShortWrite(t *testing.T) {
	w := &wire{most: 5}
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
		t.Errorf("went out: %q, want %q", w.writes, want)
	}
}

// FuzzH2Conn: whatever is written, wherever it is cut, goes out as it is.
func FuzzH2Conn(f *testing.F) {
	f.Add([]byte(headOf(1, false, true)+bodyOf(1, 20)+headOf(3, true, true)), []byte{3, 10, 1})
	f.Add([]byte(headOf(1, false, true)+headOf(3, false, true)+bodyOf(3, 5000)), []byte{13, 13})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		w := &wire{}
		c := newH2Conn(w, tls.ConnectionState{}, time.Minute)
		defer c.Close()
		rest := data
		for _, cut := range cuts {
			n := min(int(cut), len(rest))
			c.Write(rest[:n])
			rest = rest[n:]
		}
		c.Write(rest)
		c.release()
		c.mu.Lock() // of the timer, if it goes
		defer c.mu.Unlock()
		if got := strings.Join(w.writes, ""); got != string(data) {
			t.Errorf("%q went out of %q", got, data)
		}
	})
}
