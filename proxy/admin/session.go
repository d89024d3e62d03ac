package admin

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"
)

const (
	cookieName = "robotsproxy_session"
	maxSession = 12 * time.Hour // of a login
	maxEnded   = 1024           // sessions that were ended before their time and are remembered
)

// sessions knows who has logged in, by what it has signed: the cookie has a random
// name, when it ends, and an HMAC (RFC 2104) of both and the token, under a key that
// nobody outside the process knows. So a session ends with its time, with the process,
// with the token, or when its owner says so.
type sessions struct {
	mu    sync.Mutex // guards what follows
	key   [sha256.Size]byte
	ended map[[nameOctets]byte]time.Time // those that their owners have ended, until they would have
}

const (
	nameOctets   = 16
	signedOctets = nameOctets + 8 // and the end, in seconds since 1970
)

func newSessions() *sessions {
	s := &sessions{ended: map[[nameOctets]byte]time.Time{}}
	rand.Read(s.key[:]) // never fails (crypto/rand since Go 1.24)
	return s
}

// begin makes the value of a cookie.
func (s *sessions) begin(token string, now time.Time) string {
	b := make([]byte, nameOctets, signedOctets+sha256.Size)
	rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(now.Add(maxSession).Unix()))
	s.mu.Lock()
	defer s.mu.Unlock()
	return base64.RawURLEncoding.EncodeToString(s.sign(b, token))
}

// sign appends the HMAC. The caller holds mu.
func (s *sessions) sign(b []byte, token string) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(b) // always as long, so that the token begins where it does
	mac.Write([]byte(token))
	return mac.Sum(b)
}

// valid says whether a cookie is one of begin's, and not over.
func (s *sessions) valid(cookie, token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ok := s.read(cookie, token, now)
	return ok
}

// end has a cookie be valid no more.
func (s *sessions) end(cookie, token string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, until, ok := s.read(cookie, token, now)
	if !ok {
		return
	}
	if len(s.ended) >= maxEnded {
		for name, until := range s.ended {
			if !now.Before(until) {
				delete(s.ended, name)
			}
		}
	}
	if len(s.ended) >= maxEnded { // then all are ended
		rand.Read(s.key[:])
		clear(s.ended)
		return
	}
	s.ended[name] = until
}

// read gives what a valid cookie has. The caller holds mu.
func (s *sessions) read(cookie, token string, now time.Time) (name [nameOctets]byte, until time.Time, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil || len(b) != signedOctets+sha256.Size {
		return name, until, false
	}
	if !hmac.Equal(s.sign(b[:signedOctets:signedOctets], token), b) {
		return name, until, false
	}
	name = [nameOctets]byte(b)
	until = time.Unix(int64(binary.BigEndian.Uint64(b[nameOctets:])), 0)
	_, ended := s.ended[name]
	return name, until, !ended && now.Before(until)
}
