package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redis/go-redis/v9"

	"robotsproxy/proxy/socket"
)

var (
	errAlone   = errors.New("redis: the store is unavailable")
	errOther   = errors.New("redis: the server is another one than before")
	errEmptied = errors.New("redis: the store was emptied")
	errReply   = errors.New("redis: unexpected reply")

	// errTooMuch ends a connection whose server sends more than it was asked for.
	errTooMuch = errors.New("redis: a reply is longer than what was asked for")
)

// A Cause is why a replica is alone, or was the last time. The set is closed.
type Cause uint8

const (
	Starting       Cause = iota // the server has not been called yet
	Ended                       // Run has returned
	Refused                     // nothing listens at the address, or the server cannot be reached
	NoAddress                   // the name has no address
	TimedOut                    // no reply within a second
	Disconnected                // the connection was closed
	Password                    // wrong or missing
	Forbidden                   // the server's access list forbids the commands
	Full                        // the server's memory is full
	NotSaving                   // the server rejects writes because it cannot save to its disk
	Loading                     // the server is still loading its saved data
	ReadOnly                    // the server is a read-only replica
	NoMaster                    // the Sentinels know no master of that name
	Cluster                     // the server is part of a Redis Cluster
	TooManyClients              // the server accepts no more connections
	Busy                        // the server is busy with a script or a function
	Untrusted                   // the TLS handshake failed: because of the certificate, or because the server does not speak TLS
	OtherServer                 // a connection led to another server than the earlier ones
	Emptied                     // the server has lost its data
	NoDatabase                  // the server has no database with that number
	Unknown                     // the server replies with any other error
	NotRedis                    // the replies are not in the Redis protocol
	TooMuch                     // a reply is longer than what was asked for
	causeCount
)

// causes contains the name and the text of each Cause.
var causes = [causeCount]struct{ name, words string }{
	Starting:       {"starting", "not connected yet"},
	Ended:          {"ended", "this replica is shutting down"},
	Refused:        {"refused", "the server cannot be reached"},
	NoAddress:      {"no-address", "the server's name does not resolve"},
	TimedOut:       {"timed-out", "no reply within 1 s"},
	Disconnected:   {"cut-off", "the connection was closed"},
	Password:       {"password", "the password is wrong or missing"},
	Forbidden:      {"forbidden", "the server's access list (ACL) forbids the proxy's commands"},
	Full:           {"full", "the server's memory is full"},
	NotSaving:      {"not-saving", "the server rejects writes because it cannot save to its disk"},
	Loading:        {"loading", "the server is still loading its data"},
	ReadOnly:       {"read-only", "the server is a read-only replica"},
	NoMaster:       {"no-master", "Sentinel knows no master of that name"},
	Cluster:        {"cluster", "the server is part of a Redis Cluster, which the proxy does not support"},
	TooManyClients: {"crowded", "the server accepts no more connections"},
	Busy:           {"busy", "the server is busy with a script"},
	Untrusted:      {"untrusted", "the TLS handshake failed"},
	OtherServer:    {"another", "the server is another one than before"},
	Emptied:        {"emptied", "the server has lost its data"},
	NoDatabase:     {"no-database", "the server has no database with that number"},
	NotRedis:       {"strange", "the reply is not Redis protocol"},
	TooMuch:        {"too-much", "a reply is longer than any that the proxy asks for"},
	Unknown:        {"unclear", "the server replied with an error"},
}

// String returns the text, for a log or a page.
func (c Cause) String() string { return causes[c.known()].words }

// Name returns the short name, for the label of a metric.
func (c Cause) Name() string { return causes[c.known()].name }

func (c Cause) known() Cause {
	if c < causeCount {
		return c
	}
	return Unknown
}

// Error lets [Probe] return a Cause as an error.
func (c Cause) Error() string { return c.String() }

// refusals are the prefixes of a server's errors.
var refusals = []struct {
	prefix string
	cause  Cause
}{
	{"WRONGPASS", Password}, {"NOAUTH", Password}, {"invalid password", Password},
	{"AUTH", Password}, {"Client sent AUTH", Password},
	// A script is longer than what unauthenticated clients may send.
	{"Protocol error: unauthenticated", Password},
	{"NOPERM", Forbidden},
	{"OOM", Full},
	{"MISCONF", NotSaving}, {"NOREPLICAS", NotSaving},
	{"LOADING", Loading},
	{"READONLY", ReadOnly}, {"MASTERDOWN", ReadOnly},
	{"MOVED", Cluster}, {"ASK", Cluster}, {"CLUSTERDOWN", Cluster}, {"CROSSSLOT", Cluster},
	{"max number of clients", TooManyClients},
	{"BUSY", Busy},
	{"DB index is out of range", NoDatabase},
}

// causeOf returns the Cause in the error of a call.
func causeOf(err error) Cause {
	switch {
	case errors.Is(err, errOther):
		return OtherServer
	case errors.Is(err, errEmptied):
		return Emptied
	case errors.Is(err, errTooMuch):
		return TooMuch
	}
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			return r.cause
		}
	}
	switch {
	case errors.Is(err, redis.Nil):
		return NoMaster
	case is[redis.Error](err):
		return Unknown
	}
	return networkCause(err)
}

// is reports whether err is an error of type T, or wraps one.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// networkCause is causeOf for an error that the server did not send.
func networkCause(err error) Cause {
	var dns *net.DNSError
	var network net.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &dns) && !dns.IsTimeout:
		return NoAddress
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err), is[*tls.CertificateVerificationError](err), is[x509.HostnameError](err):
		return Untrusted
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &network) && network.Timeout():
		return TimedOut
	case errors.Is(err, socket.ECONNREFUSED), errors.Is(err, syscall.ENOENT),
		errors.As(err, &dial) && dial.Op == "dial":
		return Refused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, redis.ErrClosed), errors.Is(err, socket.ECONNRESET), errors.Is(err, socket.EPIPE):
		return Disconnected
	}
	return NotRedis
}
