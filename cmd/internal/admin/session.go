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
	sessionLifetime = 12 * time.Hour // from login to the end of the session
	maxRevoked      = 1024           // revoked sessions that are remembered
)

// sessions issues and checks session cookies without storing them. A cookie has a random ID,
// its expiry time, and an HMAC (RFC 2104) of both and of admin.token under a key that never
// leaves the process. A session therefore ends when it expires, when the process ends, when
// the token changes or when it is revoked.
type sessions struct {
	// mu guards the fields below.
	mu  sync.Mutex
	key [sha256.Size]byte

	// revoked has the expiry times of revoked sessions, by their IDs.
	revoked map[[sessionIDBytes]byte]time.Time
}

const (
	sessionIDBytes = 16
	// signedBytes is the length of the ID and of the expiry time in Unix seconds.
	signedBytes = sessionIDBytes + 8
)

func newSessions() *sessions {
	s := &sessions{revoked: map[[sessionIDBytes]byte]time.Time{}}
	// rand.Read never fails (since Go 1.24).
	rand.Read(s.key[:])
	return s
}

// create returns the cookie value of a new session.
func (s *sessions) create(token string, now time.Time) string {
	b := make([]byte, sessionIDBytes, signedBytes+sha256.Size)
	rand.Read(b)
	b = binary.BigEndian.AppendUint64(b, uint64(now.Add(sessionLifetime).Unix()))
	s.mu.Lock()
	defer s.mu.Unlock()
	return base64.RawURLEncoding.EncodeToString(s.sign(b, token))
}

// sign appends the HMAC of b and token to b. The caller holds mu.
func (s *sessions) sign(b []byte, token string) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	// b has a fixed length, so token cannot run into it.
	mac.Write(b)
	mac.Write([]byte(token))
	return mac.Sum(b)
}

// valid reports whether a cookie comes from create and is neither expired nor revoked.
func (s *sessions) valid(cookie, token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, ok := s.parse(cookie, token, now)
	return ok
}

// revoke ends the session of a valid cookie.
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
	// If there is no room, a new key revokes all sessions.
	if len(s.revoked) >= maxRevoked {
		rand.Read(s.key[:])
		clear(s.revoked)
		return
	}
	s.revoked[name] = until
}

// parse returns the ID and the expiry time of a cookie, and whether it is valid. The caller
// holds mu.
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
