package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"robotsproxy/robots"
	"robotsproxy/robots/cache"
)

// emptyCache knows nothing.
type emptyCache struct{}

func (emptyCache) Lookup(context.Context, cache.Query, robots.Dialect) (*cache.Entry, error) {
	return nil, errors.New("nothing is known")
}

func made(t *testing.T, clients ...Client) *Engine {
	t.Helper()
	e, err := New(Options{Cache: emptyCache{}, Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func renewed(t *testing.T, e *Engine, clients ...Client) *Engine {
	t.Helper()
	next, err := e.Renew(Options{Cache: emptyCache{}, Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// TestRenewCountsOn: what was sent today counts, whatever has become of the entry, and
// what is given back to the Engine before counts there no more either.
func TestRenewCountsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab := func(perDay int64) Client {
			return Client{Name: "lab-a", Networks: loopback, Quota: Quota{Requests: perDay}}
		}
		other := Client{Name: "lab-b", Networks: loopback, Quota: Quota{Requests: 2}}
		e := made(t, lab(3))
		first, err := e.Take(t.Context(), &Request{Client: "lab-a"})
		if err != nil {
			t.Fatal(err)
		}
		e.Take(t.Context(), &Request{Client: "lab-a"})
		if _, err := renewed(t, e, lab(2)).Take(t.Context(), &Request{Client: "lab-a"}); !errors.Is(err, ErrQuota) {
			t.Errorf("a lowered quota: %v", err)
		}
		raised := renewed(t, e, lab(3), other)
		if _, err := raised.Take(t.Context(), &Request{Client: "lab-a"}); err != nil {
			t.Errorf("the third of three: %v", err)
		}
		if _, err := e.Take(t.Context(), &Request{Client: "lab-a"}); !errors.Is(err, ErrQuota) {
			t.Errorf("by the Engine of before, a fourth: %v", err)
		}
		first.GiveBack()
		if _, err := raised.Take(t.Context(), &Request{Client: "lab-a"}); err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		back := renewed(t, renewed(t, renewed(t, raised, other), lab(0)), lab(3))
		if _, err := back.Take(t.Context(), &Request{Client: "lab-a"}); !errors.Is(err, ErrQuota) {
			t.Errorf("gone, and there again: %v", err)
		}
		<-time.After(24 * time.Hour)
		if left := renewed(t, renewed(t, raised, other), other).meters.all; len(left) != 0 {
			t.Errorf("yesterday's is kept: %v", left)
		}
		if _, err := back.Take(t.Context(), &Request{Client: "lab-a"}); err != nil {
			t.Errorf("the next day: %v", err)
		}
	})
}

// TestRenewKnowsPasswords: an unchanged password is not checked again. Any other is
// checked, and one that was wrong may become correct.
func TestRenewKnowsPasswords(t *testing.T) {
	hash := func(password string) string {
		h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return string(h)
	}
	lab := Client{Name: "lab-a", PasswordHash: hash("secret")}
	login := func(e *Engine, password string) error {
		_, err := e.Admit(t.Context(), "127.0.0.1", Login{Offered: true, Name: "lab-a", Password: password})
		return err
	}
	e := made(t, lab)
	runs := 0
	e.admission.passwords.compare = func(hash, password []byte) error {
		runs++
		return bcrypt.CompareHashAndPassword(hash, password)
	}
	if err := login(e, "secret"); err != nil || runs != 1 {
		t.Fatalf("%v, %d runs", err, runs)
	}
	if err := login(e, "another"); !errors.Is(err, ErrLogin) || runs != 2 {
		t.Fatalf("%v, %d runs", err, runs)
	}
	same := renewed(t, e, Client{Name: "lab-b", Networks: loopback}, lab)
	if err := login(same, "secret"); err != nil || runs != 2 {
		t.Errorf("the same: %v, %d runs", err, runs)
	}
	changed := renewed(t, same, Client{Name: "lab-a", PasswordHash: hash("another")})
	if err := login(changed, "secret"); !errors.Is(err, ErrLogin) {
		t.Errorf("the password of before: %v", err)
	}
	if err := login(changed, "another"); err != nil {
		t.Errorf("the new one: %v", err)
	}
	if changed.admission.passwords.queue != e.admission.passwords.queue {
		t.Error("two gates check passwords at once")
	}
}

// TestReadmit: whether a client that was admitted once is still admitted.
func TestReadmit(t *testing.T) {
	hash := func(password string) string {
		h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return string(h)
	}
	mine, others := hash("a"), hash("b")
	far := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	byLogin, byNetwork, nobody := []Client{{Name: "lab-a", PasswordHash: mine}}, []Client{{Name: "lab-a", Networks: loopback}}, []Client(nil)
	for i, c := range []struct {
		before, after []Client
		want          string
		err           error
	}{
		{byLogin, byLogin, "lab-a", nil},
		{byLogin, []Client{{Name: "lab-a", PasswordHash: mine, Networks: loopback}}, "lab-a", nil},
		{byLogin, []Client{{Name: "lab-a", PasswordHash: mine, Networks: far}}, "", ErrStranger},
		{byLogin, []Client{{Name: "lab-a", PasswordHash: others}}, "", ErrLogin},
		{byLogin, []Client{{Name: "lab-b", PasswordHash: mine}}, "", ErrLogin},
		{byLogin, []Client{{Name: "lab-a", PasswordHash: mine, PasswordHashNext: others}}, "lab-a", nil},
		{byLogin, []Client{{Name: "lab-a", PasswordHash: others, PasswordHashNext: mine}}, "lab-a", nil},
		// Its own password is no longer one of them.
		{[]Client{{Name: "lab-a", PasswordHash: mine, PasswordHashNext: others}}, []Client{{Name: "lab-a", PasswordHash: others}}, "", ErrLogin},
		{byLogin, byNetwork, "lab-a", nil}, // from its network it need not log in any more
		{byLogin, nobody, "127.0.0.1", nil},
		{byNetwork, byNetwork, "lab-a", nil},
		{byNetwork, []Client{{Name: "lab-b", Networks: loopback}}, "lab-b", nil},
		{byNetwork, []Client{{Name: "lab-a", Networks: far}}, "", ErrStranger},
		{byNetwork, byLogin, "", ErrLogin},
		{byNetwork, nobody, "127.0.0.1", nil},
		{nobody, byNetwork, "lab-a", nil},
		{nobody, byLogin, "", ErrLogin},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e := made(t, c.before...)
			name := "127.0.0.1"
			if len(c.before) > 0 {
				name = "lab-a"
			}
			l := Login{Offered: true, Name: "lab-a", Password: "a"}
			if _, err := e.Admit(t.Context(), "127.0.0.1", l); err != nil {
				t.Fatal(err)
			}
			got, err := renewed(t, e, c.after...).Readmit(e.Pass(name, "127.0.0.1", l))
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%q, %v, want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}
