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
	cookieName      = "robotsproxy_session"
	sessionLifetime = 12 * time.Hour // of a login
	maxRevoked      = 1024           // sessions that were ended before their time and are remembered
)

// sessions knows who has logged in, by what it has signed: the cookie has a random
// name, when it ends, and an HMAC (RFC 2104) of both and the token, under a key that
// nobody outside the process knows. So a session ends with its time, with the process,
// with the token, or when its owner says so.
type sessions struct {
	mu      sync.Mutex // guards what follows
	key     [sha256.Size]byte
	revoked map[[sessionIDBytes]byte]time.Time // those that their owners have ended, until they would have
}

const (
	sessionIDBytes = 16
	signedBytes    = sessionIDBytes + 8 // and the end, in seconds since 1970
)

func newSessions() *sessions {
	s := &sessions{revoked: map[[sessionIDBytes]byte]time.Time{}}
	rand.Read(s.key[:]) // never fails (crypto/rand since Go 1.24)
	return s
}

// begin makes the value of a cookie.
func (s *sessions) create(token string, now time.Time) string {
	b := make([]byte, sessionIDBytes, signedBytes+sha256.Size)
	rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(now.Add(sessionLifetime).Unix()))
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
	_, _, ok := s.parse(cookie, token, now)
	return ok
}

// end has a cookie be valid no more.
func (s *sessions) revoke(cookie, token string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, until, ok := s.parse(cookie, token, now)
	if !ok {
		return
	}
	if len(s.revoked) >= maxRevoked {
		for name, until := range s.revoked {
			if !now.Before(until) {
				delete(s.revoked, name)
			}
		}
	}
	if len(s.revoked) >= maxRevoked { // then all are ended
		rand.Read(s.key[:])
		clear(s.revoked)
		return
	}
	s.revoked[name] = until
}

// read gives what a valid cookie has. The caller holds mu.
func (s *sessions) parse(cookie, token string, now time.Time) (name [sessionIDBytes]byte, until time.Time, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil || len(b) != signedBytes+sha256.Size {
		return name, until, false
	}
	if !hmac.Equal(s.sign(b[:signedBytes:signedBytes], token), b) {
		return name, until, false
	}
	name = [sessionIDBytes]byte(b)
	until = time.Unix(int64(binary.BigEndian.Uint64(b[sessionIDBytes:])), 0)
	_, ended := s.revoked[name]
	return name, until, !ended && now.Before(until)
}
