package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"robotsproxy/robots/testkit"
)

// RandomBytes returns n reproducible bytes that do not compress.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1, byte(n)}).Read(b)
	return b
}

// Digest returns the hex SHA-256.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TextPage serves a text.
func TextPage(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, text)
	}
}

// SizedPage serves the bytes with a Content-Length and supports HEAD and ranges.
func SizedPage(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}

// Zeros is an endless body.
type Zeros struct{}

func (Zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// RepeatedPage sends block n times with a Content-Length, without a copy of the whole body.
func RepeatedPage(block []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(block)*n))
		for range n {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

// ChunkedPage sends the bytes in flushed pieces without a Content-Length.
func ChunkedPage(body []byte, piece int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		for rest := body; len(rest) > 0; {
			n := min(piece, len(rest))
			w.Write(rest[:n])
			http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}
}

// Zipped returns the body compressed with gzip.
func Zipped(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(body)
	z.Close()
	return b.Bytes()
}

// ZippedPage serves bytes that are already gzip.
func ZippedPage(gz []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(gz)))
		w.Write(gz)
	}
}

// HeldFor is the timeout of requests that stay in flight for a whole test.
const HeldFor = 4 * testkit.Patience

// HeldPage sends first at once and second when release is closed.
func HeldPage(contentType, first, second string, release <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, first)
		http.NewResponseController(w).Flush()
		select {
		case <-release:
			io.WriteString(w, second)
		case <-r.Context().Done():
		case <-time.After(HeldFor):
		}
	}
}

// UploadPage reads the whole body and responds with its length and digest.
func UploadPage(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	io.WriteString(w, strconv.FormatInt(n, 10)+" "+hex.EncodeToString(sum.Sum(nil)))
}

// TrailerPage sends one announced and one unannounced trailer.
func TrailerPage(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Digest")
		w.Write(body)
		http.NewResponseController(w).Flush()
		w.Header().Set("X-Digest", Digest(body))
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "yes")
	}
}

// EchoPage switches to a private protocol and echoes every byte.
func EchoPage(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ServeUpgrade(t, w, "", func(rw *bufio.ReadWriter) {
			buf := make([]byte, 4096)
			for {
				n, err := rw.Read(buf)
				if err != nil {
					return
				}
				rw.Write(buf[:n])
				rw.Flush()
			}
		})
	}
}

// WebSocketPage implements the part of RFC 6455 that echoes short messages: the handshake and
// unfragmented frames.
func WebSocketPage(t testing.TB) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		accept := "Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
		ServeUpgrade(t, w, accept, func(rw *bufio.ReadWriter) {
			for {
				op, payload, err := readFrame(rw)
				if err != nil {
					return
				}
				rw.Write([]byte{0x80 | op, byte(len(payload))})
				rw.Write(payload)
				rw.Flush()
				// Close.
				if op == 8 {
					return
				}
			}
		})
	}
}

// readFrame reads one masked frame of up to 125 bytes.
func readFrame(r io.Reader) (op byte, payload []byte, err error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(head[1] & 0x7f)
	if n > 125 {
		return 0, nil, strconv.ErrRange
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	var mask [8]byte
	binary.BigEndian.PutUint32(mask[:], binary.BigEndian.Uint32(head[2:]))
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] & 0x0f, payload, nil
}

// ServeUpgrade sends a 101 response and serves the connection until talk returns.
func ServeUpgrade(t testing.TB, w http.ResponseWriter, more string, talk func(*bufio.ReadWriter)) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Errorf("origin cannot upgrade: %v", err)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testkit.Patience))
	rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + more + "\r\n")
	rw.Flush()
	talk(rw)
}
