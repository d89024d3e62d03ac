package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"robotsproxy/robots/testkit"
)

// said is an error reply of a server.
type said string

func (s said) Error() string { return string(s) }
func (said) RedisError()     {}

func TestCauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want Cause
	}{
		{said("WRONGPASS invalid username-password pair or user is disabled."), Password},
		{said("NOAUTH Authentication required."), Password},
		{said("NOAUTH HELLO must be called with the client already authenticated"), Password},
		{fmt.Errorf("failed to authenticate: %w", said("ERR invalid password")), Password},
		{said("ERR AUTH <password> called without any password configured for the default user."), Password},
		{said("ERR Client sent AUTH, but no password is set"), Password},
		{said("ERR Protocol error: unauthenticated multibulk length"), Password},
		{said("ERR Protocol error: unauthenticated bulk length"), Password},
		{said("NOPERM this user has no permissions to run the 'evalsha' command"), Forbidden},
		{said("OOM command not allowed when used memory > 'maxmemory'."), Full},
		{said("MISCONF Redis is configured to save RDB snapshots"), NotSaving},
		{said("LOADING Redis is loading the dataset in memory"), Loading},
		{said("READONLY You can't write against a read only replica."), ReadOnly},
		{said("MASTERDOWN Link with MASTER is down"), ReadOnly},
		{said("MOVED 1 127.0.0.1:7000"), Cluster},
		{said("CROSSSLOT Keys in request don't hash to the same slot"), Cluster},
		{said("ERR max number of clients reached"), TooManyClients},
		{said("BUSY Redis is busy running a script."), Busy},
		{said("ERR DB index is out of range"), NoDatabase},
		{said("ERR \x1b[31m"), Unknown},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Refused},
		{&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, Refused},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, NoAddress},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, TimedOut},
		{context.DeadlineExceeded, TimedOut},
		{redis.ErrPoolTimeout, TimedOut},
		{io.EOF, Disconnected},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Disconnected},
		{redis.ErrClosed, Disconnected},
		{tls.RecordHeaderError{}, Untrusted},
		{&tls.CertificateVerificationError{Err: errors.New("x")}, Untrusted},
		{fmt.Errorf("x: %w", errOther), OtherServer},
		{errEmptied, Emptied},
		{errReply, NotRedis},
		{errors.New(`redis: can't parse "HTTP/1.1 400 Bad Request"`), NotRedis},
		{fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil)), NoMaster},
		{fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})), Refused},
	} {
		if got := causeOf(c.err); got != c.want {
			t.Errorf("%q: %v, want %v", c.err, got, c.want)
		}
	}
}

// Each cause has its own text, and a name that is valid as a label value. An invalid one
// has those of Unknown.
func TestCausesAreTold(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for c := range causeCount {
		for _, s := range []string{c.String(), c.Name()} {
			if s == "" || seen[s] {
				t.Errorf("Cause %d is %q", c, s)
			}
			seen[s] = true
		}
		if strings.Trim(c.Name(), "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("%q is no label", c.Name())
		}
	}
	if causeCount.String() != Unknown.String() || causeCount.Name() != Unknown.Name() {
		t.Error("no words for what is no Cause")
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, url string
		want      Cause
	}{
		{"nobody listens", "redis://127.0.0.1:1", Refused},
		{"no socket", "unix:///nowhere/redis.sock", Refused},
		{"no address", "redis://redis.invalid", NoAddress},
		{"no Sentinel", "redis://127.0.0.1:1?master_name=m", Refused},
		{"no TLS", "rediss://" + web(t), Untrusted},
		{"no Redis", "redis://" + web(t), NotRedis},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, c.url, 3)
			goesAlone(t, c.want, r)
			t.Run("is not asked often", func(t *testing.T) {
				testkit.Long(t, "real clock")
				began := time.Now()
				before := r.Stats().Failures[c.want.Name()]
				<-time.After(4 * probeEvery)
				n := r.Stats().Failures[c.want.Name()] - before
				if took := time.Since(began); n > uint64(took/probeEvery)+1 {
					t.Errorf("asked %d times in %v", n, took)
				}
			})
		})
	}
}

// web listens like a server that is not Redis.
func web(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}
