package policy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	// maxChecks bounds how many different Logins are checked or wait for it.
	maxChecks = 64
	// maxWrong bounds how many wrong Logins are remembered, wrongFor how long.
	maxWrong = 4096
	wrongFor = 30 * time.Second
	// hashLen is what a bcrypt hash has in octets: $2b$10$, 22 of salt, 31 of hash.
	hashLen = 60
)

// An account is a Client's password.
type account struct {
	client *Client
	hash   []byte
	cost   int
	known  atomic.Pointer[digest] // of the Login that was found right; there is but one
}

// knows says whether the Login was found right before.
func (a *account) knows(d *digest) bool {
	if a == nil {
		return false
	}
	known := a.known.Load()
	return known != nil && hmac.Equal(known[:], d[:])
}

// passwords checks Logins with bcrypt, and remembers what it found: a right one
// for good, one to an account; wrong ones for a while. What is kept is an HMAC
// under a key of this process's own, and nothing that could be turned back.
//
// bcrypt is meant to be slow, so that guessing must not take the machine: few
// run at once, few wait, and those who offer the same wait for one run.
//
// How long an answer takes tells nothing of which names there are: a wrong
// Login costs one run of the highest cost there is, whatever its name. That a
// Login is looked up by its HMAC, in a map, gives nothing away either: who does
// not know the key cannot choose digests that begin alike.
type passwords struct {
	cost    int                               // the highest of all accounts
	compare func(hash, password []byte) error // bcrypt's, but in tests
	slots   chan struct{}                     // one for each run
	digests *sync.Pool                        // of *digester

	mu     sync.Mutex // guards what follows
	checks map[digest]chan struct{}
	wrong  mistakes
}

func newPasswords(highest int) *passwords {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails (crypto/rand since Go 1.24)
	return &passwords{
		cost:    highest,
		compare: bcrypt.CompareHashAndPassword,
		slots:   make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		digests: &sync.Pool{New: func() any { return &digester{mac: hmac.New(sha256.New, key)} }},
		checks:  map[digest]chan struct{}{},
		wrong:   mistakes{until: map[digest]time.Time{}},
	}
}

// right says whether a Login is right for an account; for none it never is.
func (p *passwords) right(ctx context.Context, a *account, l Login) (bool, error) {
	d := p.digest(a != nil, l)
	if a.knows(&d) {
		return true, nil
	}
	for {
		p.mu.Lock()
		over, running := p.checks[d]
		right, wrong := a.knows(&d), p.wrong.has(d, time.Now())
		full := len(p.checks) >= maxChecks
		mine := !running && !right && !wrong && !full
		if mine {
			p.checks[d] = make(chan struct{})
		}
		p.mu.Unlock()
		switch {
		case right || wrong:
			return right, nil
		case mine:
			return p.check(ctx, a, l.Password, d)
		case !running:
			return false, ErrTooManyLogins
		}
		select {
		case <-over: // and found out, unless who began it has left
		case <-ctx.Done():
			return false, left(ctx)
		}
	}
}

func left(ctx context.Context) error {
	return fmt.Errorf("wait for the check of a password: %w", context.Cause(ctx))
}

// check waits its turn, asks bcrypt, and remembers the answer.
func (p *passwords) check(ctx context.Context, a *account, password string, d digest) (right bool, err error) {
	asked := false
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case right:
			a.known.Store(&d)
		case asked:
			p.wrong.add(d, time.Now())
		}
		close(p.checks[d])
		delete(p.checks, d)
	}()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false, left(ctx)
	}
	right = p.run(a, []byte(password))
	asked = true
	return right, nil
}

// run asks bcrypt. A wrong password for a cheaper hash is made to cost as much
// as one for the dearest, or for no account: each step of cost doubles the work,
// so that runs of c, c, c+1, ... h-1 are together one of h.
func (p *passwords) run(a *account, password []byte) bool {
	if a == nil {
		p.compare(nobodys(p.cost), password) // right for no password that anybody knows
		return false
	}
	if p.compare(a.hash, password) == nil {
		return true
	}
	for cost := a.cost; cost < p.cost; cost++ {
		p.compare(nobodys(cost), password)
	}
	return false
}

// nobodys is a well-formed hash of a cost that was made of no password.
func nobodys(cost int) []byte {
	h := fmt.Appendf(nil, "$2b$%02d$", cost)
	return append(h, strings.Repeat(".", hashLen-len(h))...)
}

// A digest stands for a Login.
type digest [sha256.Size]byte

// A digester is what making a digest needs, kept so that none is allocated.
type digester struct {
	mac  hash.Hash
	text []byte
}

// digest is that of a Login. Whether there is an account for it, here, belongs
// to it: a password that is wrong from one network may be right from another.
func (p *passwords) digest(account bool, l Login) digest {
	m := p.digests.Get().(*digester)
	defer p.digests.Put(m)
	kind := byte('0')
	if account {
		kind = '1'
	}
	m.text = append(append(append(append(m.text[:0], kind), l.Name...), ':'), l.Password...)
	m.mac.Reset()
	m.mac.Write(m.text)
	return digest(m.mac.Sum(m.text[:0]))
}

// mistakes remembers wrong Logins for a while.
type mistakes struct {
	until map[digest]time.Time
	order []digest // of until, the oldest first
}

func (m *mistakes) has(d digest, now time.Time) bool {
	until, ok := m.until[d]
	return ok && now.Before(until)
}

// add remembers one more that it has not, and forgets those whose time is over.
func (m *mistakes) add(d digest, now time.Time) {
	for len(m.order) > 0 && (len(m.order) >= maxWrong || !m.has(m.order[0], now)) {
		delete(m.until, m.order[0])
		m.order = m.order[1:]
	}
	m.until[d] = now.Add(wrongFor)
	m.order = append(m.order, d)
}
