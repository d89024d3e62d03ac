package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"robotsproxy/robots"
)

// SOCKS5: RFC 1928, and RFC 1929 for user and password. It is spoken here
// because golang.org/x/net/proxy gives a server's reason as text alone, and
// whether the origin or the parent is to blame depends on it.
const (
	socksVersion   = 5
	socksNoAuth    = 0
	socksPassword  = 2
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksAuthForm  = 1   // the version that RFC 1929 has of its own
	maxSocksField  = 255 // octets of a name, a user, a password
	socksSucceeded = 0
)

// socksReplies are the replies of RFC 1928 6.
var socksReplies = map[byte]struct {
	text   string
	origin bool // the server did its part, and the origin could not be reached
}{
	1: {"general failure", false},
	2: {"not allowed by its rules", false},
	3: {"network unreachable", true},
	4: {"host unreachable", true},
	5: {"connection refused", true},
	6: {"TTL expired", true},
	7: {"command not supported", false},
	8: {"address type not supported", false},
}

// askSocks makes conn a tunnel to o. It reads no octet beyond the server's
// part, so that what follows is the origin's.
func (p *parent) askSocks(conn net.Conn, o robots.Origin) error {
	if err := p.greetSocks(conn); err != nil {
		return p.fault(err)
	}
	if _, err := conn.Write(append([]byte{socksVersion, socksConnect, 0}, socksAddress(o)...)); err != nil {
		return p.fault(err)
	}
	var head [5]byte // version, reply, 0, type of address, its first octet
	if _, err := io.ReadFull(conn, head[:2]); err != nil {
		return p.unanswered(err)
	}
	switch reply, known := socksReplies[head[1]]; {
	case head[0] != socksVersion:
		return p.fault(errNotSocks)
	case head[1] == socksSucceeded:
	case reply.origin:
		return fmt.Errorf("%w: %s: %s", ErrBeyondParent, p.name, reply.text)
	case known:
		return p.fault(errors.New(reply.text))
	default:
		return p.fault(fmt.Errorf("reply %d", head[1]))
	}
	if _, err := io.ReadFull(conn, head[2:]); err != nil {
		return p.fault(err)
	}
	rest := map[byte]int{socksIPv4: 4, socksIPv6: 16, socksName: 1 + int(head[4])}[head[3]]
	if rest == 0 {
		return p.fault(errNotSocks)
	}
	if _, err := io.CopyN(io.Discard, conn, int64(rest-1+2)); err != nil { // the port besides
		return p.fault(err)
	}
	return nil
}

var errNotSocks = errors.New("it does not speak SOCKS5")

// greetSocks agrees with the server on who we are.
func (p *parent) greetSocks(conn net.Conn) error {
	hello := []byte{socksVersion, 1, socksNoAuth}
	if p.user != nil {
		hello = []byte{socksVersion, 2, socksNoAuth, socksPassword}
	}
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	switch {
	case answer[0] != socksVersion:
		return errNotSocks
	case answer[1] == socksNoAuth:
		return nil
	case answer[1] != socksPassword || p.user == nil:
		return errors.New("it takes no way of ours to say who we are")
	}
	password, _ := p.user.Password()
	name := p.user.Username()
	login := append([]byte{socksAuthForm, byte(len(name))}, name...)
	login = append(append(login, byte(len(password))), password...)
	if _, err := conn.Write(login); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if answer[1] != socksSucceeded {
		return errors.New("it does not take our credentials")
	}
	return nil
}

// socksAddress is o as a request has it: names stay names.
func socksAddress(o robots.Origin) []byte {
	var b []byte
	switch addr, err := netip.ParseAddr(o.Host); {
	case err != nil:
		b = append([]byte{socksName, byte(len(o.Host))}, o.Host...) // 253 octets at most: see robots.ParseOrigin
	case addr.Is4():
		b = append([]byte{socksIPv4}, addr.AsSlice()...)
	default:
		b = append([]byte{socksIPv6}, addr.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(b, o.Port)
}
