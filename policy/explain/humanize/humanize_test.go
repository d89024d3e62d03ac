package humanize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestWriting(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Number(0), "0"}, {Number(999), "999"}, {Number(1000), "1,000"}, {Number(int64(1234567)), "1,234,567"}, {Number(-123456), "-123,456"},
		{Count(1, "rule"), "1 rule"}, {Count(0, "rule"), "0 rules"}, {Count(uint64(2000), "rule"), "2,000 rules"},
		{Bytes(1023), "1023 B"}, {Bytes(1024), "1.0 KiB"}, {Bytes(1<<20 - 1), "1.0 MiB"}, {Bytes(int64(5 << 30)), "5.0 GiB"},
		{Word("a"), "a"}, {Word("a b"), `"a b"`}, {Word("a\x1b"), `"a\x1b"`},
		{Brief("a b"), "a b"}, {Brief(`a"b`), `"a\"b"`}, {Escape(`a "b" \ ` + "\x1b\xff"), `a "b" \ \x1b\xff`},
		{Prose(strings.Repeat("\n", 400)), strings.Repeat(`\n`, MaxBrief-3) + "…"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat("x", 20):                  strings.Repeat("x", 20),
		strings.Repeat("x", 21):                  strings.Repeat("x", 17) + "…",
		strings.Repeat("x", 16) + "üüü":          strings.Repeat("x", 16) + "…",
		strings.Repeat("\xbf", 21):               strings.Repeat("\xbf", 13) + "…",
		strings.Repeat("x", 15) + "\U0001f600xx": strings.Repeat("x", 15) + "…",
	} {
		if got := Clip(in, 20); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "0 s", -time.Second: "0 s", time.Microsecond: "1 ms", 250 * time.Millisecond: "250 ms", 3260 * time.Millisecond: "3.2 s", 9999 * time.Millisecond: "9.9 s",
		12*time.Second + 700*time.Millisecond: "12 s", 80 * time.Second: "1 min 20 s", 12*time.Minute + 5*time.Second: "12 min", 2*time.Hour + 5*time.Minute: "2 h 5 min",
		50 * time.Hour: "2 d 2 h", 2000 * 24 * time.Hour: "2,000 d",
	} {
		if got := Duration(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

func TestError(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, dial := new(net.Dialer).DialContext(gone, "tcp", "192.0.2.1:80")
	for err, want := range map[error]string{
		fmt.Errorf("tls handshake: %w", context.DeadlineExceeded): "tls handshake: timed out",
		fmt.Errorf("dial tcp: %w", os.ErrDeadlineExceeded):        "dial tcp: timed out",
		fmt.Errorf("read body: %w", io.ErrUnexpectedEOF):          "read body: the connection was closed before the end",
		fmt.Errorf("no response from the origin: %w", io.EOF):     "no response from the origin: the connection was closed",
		context.Canceled: "the client disconnected",
		fmt.Errorf("read body: %w", context.Canceled): "read body: the client disconnected",
		dial: "dial tcp 192.0.2.1:80: the client disconnected",
		errors.New("connect: connection refused"): "connect: connection refused",
	} {
		if got := Error(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
