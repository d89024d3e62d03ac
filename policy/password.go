package policy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
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
	// maxName is the length of a client's name that can log in, in bytes.
	maxName = 512
	// maxPassword is how many bytes bcrypt reads of a password: the beginning of a longer one would suffice.
	maxPassword = 72
	// maxFailed and failedFor bound how many failed Logins are remembered, and how long.
	maxFailed = 4096
	failedFor = 30 * time.Second
	// hashCost is the cost of new hashes. One check takes about 50 ms.
	hashCost = 10
	// hashLen is the length of a bcrypt hash in bytes: 7 of $2b$10$, 22 of salt, 31 of hash.
	hashLen = 60
)

// HashPassword returns the bcrypt hash of a password, for [Client].PasswordHash. It returns an error if
// the password is one with which no client can log in.
func HashPassword(password string) (string, error) {
	switch {
	case password == "":
		return "", errors.New("the password is empty")
	case len(password) > maxPassword:
		return "", fmt.Errorf("the password has %d bytes: it must have at most %d", len(password), maxPassword)
	case !(Login{Name: "x", Password: password}).wellFormed():
		return "", errors.New("the password contains a control character, such as a second line")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	return string(hash), err
}

// wellFormed reports whether l could be a client's Login. A name contains no colon, and neither part
// contains control characters (RFC 7617 2); bcrypt would cut a password at NUL.
func (l Login) wellFormed() bool {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	return l.Name != "" && len(l.Name) <= maxName && l.Password != "" && len(l.Password) <= maxPassword &&
		!strings.Contains(l.Name, ":") && !strings.ContainsFunc(l.Name, control) && !strings.ContainsFunc(l.Password, control)
}

// An account is a Client with a password.
type account struct {
	client *Client

	// passwords are the client's one or two.
	passwords []*password
}

// A password is one of an account's.
type password struct {
	hash string

	// cost is that of the hash.
	cost int

	// login is the digest of the right Login; nil: none was verified yet.
	login atomic.Pointer[digest]
}

// newAccount returns the account of a client with a password. It returns an error if a hash is none of bcrypt.
func newAccount(c *Client) (*account, error) {
	a := &account{client: c}
	for _, hash := range []string{c.PasswordHash, c.PasswordHashNext} {
		if hash == "" {
			continue
		}
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || len(hash) != hashLen {
			return nil, fmt.Errorf("policy: the password hash of client %q is not a bcrypt hash", c.Name)
		}
		a.passwords = append(a.passwords, &password{hash: hash, cost: cost})
	}
	return a, nil
}

// work is what a wrong Login costs, in rounds of bcrypt.
func (a *account) work() (rounds uint64) {
	for _, p := range a.passwords {
		rounds += 1 << p.cost
	}
	return rounds
}

// verified returns the password of a Login that was found right before, or nil.
func (a *account) verified(d *digest) *password {
	if a == nil {
		return nil
	}
	for _, p := range a.passwords {
		if known := p.login.Load(); known != nil && hmac.Equal(known[:], d[:]) {
			return p
		}
	}
	return nil
}

// passwords checks Logins with bcrypt and remembers the results: for each account the right Login,
// and for a while the failed ones. It stores HMACs under a random key of this process, from which a
// Login cannot be recovered.
//
// bcrypt is slow by design, so guesses must not take the whole machine: few checks run at once, in a checkQueue, and equal
// Logins share one check.
//
// The time of a response does not reveal which names exist: a wrong Login costs as much as with the account
// that costs most, whatever its name. To look up a Login by its HMAC in a map reveals nothing either: without the key
// nobody can choose digests with a common prefix.
type passwords struct {
	// work is the greatest of all accounts.
	work uint64

	// compare is bcrypt.CompareHashAndPassword, except in tests.
	compare func(hash, password []byte) error

	// queue runs one check at once for each two processors.
	queue *checkQueue

	// shareOf returns the share of the queue for an address.
	shareOf func(address string) string

	// digests is a pool of *digester.
	digests *sync.Pool

	// mu guards the fields below.
	mu      sync.Mutex
	running map[digest]chan struct{}
	failed  failedLogins
}

func newPasswords(work uint64, shareOf func(address string) string) *passwords {
	key := make([]byte, sha256.Size)
	// Read never fails (crypto/rand since Go 1.24).
	rand.Read(key)
	return &passwords{
		work:    work,
		compare: bcrypt.CompareHashAndPassword,
		queue:   newCheckQueue(max(1, runtime.GOMAXPROCS(0)/2)),
		shareOf: shareOf,
		digests: &sync.Pool{New: func() any { return &digester{mac: hmac.New(sha256.New, key)} }},
		running: map[digest]chan struct{}{},
		failed:  failedLogins{until: map[digest]time.Time{}},
	}
}

// verify reports whether a Login, from an address, is right for an account. It never is for a nil account.
func (p *passwords) verify(ctx context.Context, address string, a *account, l Login) (bool, error) {
	d := p.digest(a != nil, l)
	if a.verified(&d) != nil {
		return true, nil
	}
	for {
		p.mu.Lock()
		done, running := p.running[d]
		right, wrong := a.verified(&d) != nil, p.failed.has(d, time.Now())
		mine := !running && !right && !wrong
		if mine {
			p.running[d] = make(chan struct{})
		}
		p.mu.Unlock()
		switch {
		case right || wrong:
			return right, nil
		case mine:
			return p.check(ctx, address, a, l.Password, d)
		}
		select {
		// The check has a result then, unless its client disconnected or it was refused.
		case <-done:
		case <-ctx.Done():
			return false, waitError(ctx)
		}
	}
}

// check waits for its turn, runs bcrypt and remembers the result.
func (p *passwords) check(ctx context.Context, address string, a *account, offered string, d digest) (right bool, err error) {
	asked := false
	var is *password
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case right:
			is.login.Store(&d)
		case asked:
			p.failed.add(d, time.Now())
		}
		close(p.running[d])
		delete(p.running, d)
	}()
	if err := p.queue.take(ctx, p.shareOf(address)); err != nil {
		return false, err
	}
	defer p.queue.release()
	if ctx.Err() != nil {
		return false, waitError(ctx)
	}
	is = p.run(a, []byte(offered))
	asked = true
	return is != nil, nil
}

// run runs bcrypt, and returns the password that was offered, or nil. A wrong one takes the same time for every account and
// for none: each step of cost doubles the work, so the missing work is one run for each of its binary digits.
func (p *passwords) run(a *account, offered []byte) *password {
	missing := p.work
	if a != nil {
		for _, known := range a.passwords {
			if p.compare([]byte(known.hash), offered) == nil {
				return known
			}
		}
		missing -= a.work()
	}
	for cost := bcrypt.MinCost; cost <= bcrypt.MaxCost+1; cost++ {
		if missing&(1<<cost) != 0 {
			// No known password matches a dummyHash.
			p.compare(dummyHash(min(cost, bcrypt.MaxCost)), offered)
		}
	}
	return nil
}

// dummyHash returns a well-formed hash of a cost that matches no known password.
func dummyHash(cost int) []byte {
	h := fmt.Appendf(nil, "$2b$%02d$", cost)
	return append(h, strings.Repeat(".", hashLen-len(h))...)
}

// A digest is the HMAC of a Login.
type digest [sha256.Size]byte

// A digester holds the buffers that making a digest needs, for reuse.
type digester struct {
	mac  hash.Hash
	text []byte
}

// digest returns the digest of a Login. It depends on whether the Login has an account at the client's
// address: a password that is wrong from one network may be right from another.
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

// failedLogins remembers failed Logins for a while.
type failedLogins struct {
	until map[digest]time.Time

	// order has the keys of until, the oldest first.
	order []digest
}

func (f *failedLogins) has(d digest, now time.Time) bool {
	until, ok := f.until[d]
	return ok && now.Before(until)
}

// add adds a digest that it does not contain, and drops expired ones.
func (f *failedLogins) add(d digest, now time.Time) {
	for len(f.order) > 0 && (len(f.order) >= maxFailed || !f.has(f.order[0], now)) {
		delete(f.until, f.order[0])
		f.order = f.order[1:]
	}
	f.until[d] = now.Add(failedFor)
	f.order = append(f.order, d)
}
