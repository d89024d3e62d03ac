package policy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// counted makes a gate of accounts, with the password "secret" at the costs
// given, whose runs of bcrypt are counted by cost.
func counted(t *testing.T, costs ...int) (*admission, *runs) {
	t.Helper()
	var clients []Client
	for _, cost := range costs {
		h, err := bcrypt.GenerateFromPassword([]byte("secret"), cost)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, Client{Name: fmt.Sprint("c", cost), PasswordHash: string(h)})
	}
	g, err := newAdmission(clients, false)
	if err != nil {
		t.Fatal(err)
	}
	r := &runs{}
	g.passwords.compare = func(hash, password []byte) error {
		if r.hold != nil {
			<-r.hold
		}
		now := r.now.Add(1)
		defer r.now.Add(-1)
		r.mu.Lock()
		r.most = max(r.most, now)
		r.mu.Unlock()
		cost, err := bcrypt.Cost(hash)
		if err != nil {
			t.Error(err)
		}
		r.n.Add(1)
		r.work.Add(1 << cost)
		return bcrypt.CompareHashAndPassword(hash, password)
	}
	return g, r
}

type runs struct {
	n, work, now atomic.Int64 // how many; their work, in rounds; at this moment
	hold         chan struct{}

	mu   sync.Mutex // guards most
	most int64      // at once
}

func login(name, password string) Login { return Login{Offered: true, Name: name, Password: password} }

func TestAThousandRequestsAreOneRun(t *testing.T) {
	for name, c := range map[string]struct {
		l    Login
		want error
	}{
		"right":        {login("c4", "secret"), nil},
		"wrong":        {login("c4", "wrong"), ErrLogin},
		"unknown name": {login("nobody", "secret"), ErrLogin},
	} {
		t.Run(name, func(t *testing.T) {
			g, r := counted(t, 4)
			var all sync.WaitGroup
			for range 1000 {
				all.Go(func() {
					if _, err := g.admit(t.Context(), "192.0.2.1", c.l); !errors.Is(err, c.want) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := r.n.Load(); n != 1 {
				t.Errorf("bcrypt ran %d times", n)
			}
		})
	}
}

// TestWrongLoginsCostTheSame: whether there is such a name cannot be told by
// how long the answer takes.
func TestWrongLoginsCostTheSame(t *testing.T) {
	g, r := counted(t, 4, 5, 7)
	for _, l := range []Login{
		login("c4", "wrong"), login("c5", "wrong"), login("c7", "wrong"), login("nobody", "wrong"), login("nobody", "secret"),
	} {
		r.work.Store(0)
		if _, err := g.admit(t.Context(), "192.0.2.1", l); !errors.Is(err, ErrLogin) {
			t.Error(err)
		}
		if work := r.work.Load(); work != 1<<7 {
			t.Errorf("%s: %d rounds, want %d", l.Name, work, 1<<7)
		}
	}
}

// TestTwoPasswords: both log the client in, each is remembered, and a wrong one costs the same for every name.
func TestTwoPasswords(t *testing.T) {
	g, r := counted(t, 4, 5)
	next, err := bcrypt.GenerateFromPassword([]byte("next"), 6)
	if err != nil {
		t.Fatal(err)
	}
	g.clients[1].PasswordHashNext = string(next)
	changed, err := newAdmission(g.clients, false)
	if err != nil {
		t.Fatal(err)
	}
	changed.keepLogins(g)
	changed.passwords.compare = g.passwords.compare
	for range 2 {
		for _, password := range []string{"secret", "next"} {
			if name, err := changed.admit(t.Context(), "192.0.2.1", login("c5", password)); name != "c5" || err != nil {
				t.Errorf("%s: %q, %v", password, name, err)
			}
		}
	}
	if n := r.n.Load(); n != 3 {
		t.Errorf("bcrypt ran %d times, want 1 and 2", n)
	}
	for _, l := range []Login{login("c4", "wrong"), login("c5", "wrong"), login("nobody", "next"), login("c4", "next")} {
		r.work.Store(0)
		if _, err := changed.admit(t.Context(), "192.0.2.1", l); !errors.Is(err, ErrLogin) {
			t.Errorf("%s %s: %v", l.Name, l.Password, err)
		}
		if work := r.work.Load(); work != 1<<5+1<<6 {
			t.Errorf("%s: %d rounds, want %d", l.Name, work, 1<<5+1<<6)
		}
	}
}

// TestWhatCannotBeRightCostsNothing: an impossible password is refused without bcrypt.
func TestWhatCannotBeRightCostsNothing(t *testing.T) {
	g, r := counted(t, 4)
	for _, l := range []Login{
		{Offered: true}, login("c4", ""), login("", "secret"), login("c4", strings.Repeat("x", 73)), login("c4", "a\nb"),
		login(strings.Repeat("x", maxName+1), "secret"),
	} {
		if _, err := g.admit(t.Context(), "192.0.2.1", l); !errors.Is(err, ErrLogin) {
			t.Errorf("%.20q: %v", l.Name, err)
		}
	}
	if n := r.n.Load(); n != 0 {
		t.Errorf("bcrypt ran %d times", n)
	}
}

func TestWrongLoginsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := counted(t, 4)
		for _, c := range []struct {
			after time.Duration
			runs  int64
		}{{0, 1}, {failedFor - 1, 1}, {1, 2}, {failedFor - 1, 2}, {failedFor, 3}} {
			<-time.After(c.after)
			if _, err := g.admit(t.Context(), "192.0.2.1", login("c4", "wrong")); !errors.Is(err, ErrLogin) {
				t.Error(err)
			}
			if n := r.n.Load(); n != c.runs {
				t.Errorf("%v later: %d runs, want %d", c.after, n, c.runs)
			}
		}
		if name, err := g.admit(t.Context(), "192.0.2.1", login("c4", "secret")); name != "c4" || err != nil {
			t.Errorf("the right one after wrong ones: %q, %v", name, err)
		}
		<-time.After(1000 * time.Hour)
		if _, err := g.admit(t.Context(), "192.0.2.1", login("c4", "secret")); err != nil || r.n.Load() != 4 {
			t.Errorf("a right one is forgotten: %d runs, %v", r.n.Load(), err)
		}
	})
}

func TestMistakesAreBounded(t *testing.T) {
	m := failedLogins{until: map[digest]time.Time{}}
	now := time.Now()
	for i := range 3 * maxFailed {
		d := digest{byte(i), byte(i >> 8)}
		m.add(d, now)
		if !m.has(d, now) {
			t.Fatal("not remembered")
		}
		if len(m.until) > maxFailed || len(m.order) != len(m.until) {
			t.Fatalf("%d remembered, in an order of %d", len(m.until), len(m.order))
		}
	}
	m.add(digest{0xff, 0xff}, now.Add(failedFor))
	if len(m.until) != 1 || len(m.order) != 1 {
		t.Errorf("%d are left of those whose time was over", len(m.until)-1)
	}
}

// TestGuessesAreFew: how many passwords are checked at once, and how many of one address wait.
func TestGuessesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := counted(t, 4)
		r.hold = make(chan struct{})
		var all sync.WaitGroup
		var busy atomic.Int64
		try := func(l Login) {
			if _, err := g.admit(t.Context(), "192.0.2.1", l); errors.Is(err, ErrTooManyLogins) {
				busy.Add(1)
			}
		}
		atOnce := max(1, runtime.GOMAXPROCS(0)/2)
		accepted := atOnce + maxChecksOfShare
		for i := range accepted {
			all.Go(func() { try(login("c4", fmt.Sprint(i))) })
		}
		synctest.Wait()
		try(login("c4", "one more"))
		try(login("c4", "secret"))
		if n := busy.Load(); n != 2 {
			t.Errorf("%d of 2 were told that too many wait", n)
		}
		all.Go(func() { try(login("c4", "0")) }) // waits for the run that there is
		synctest.Wait()
		close(r.hold)
		all.Wait()
		if n := r.n.Load(); n != int64(accepted) || busy.Load() != 2 {
			t.Errorf("%d runs, want %d; %d were told to wait", n, accepted, busy.Load())
		}
		if r.most > int64(atOnce) {
			t.Errorf("%d runs at once, want %d", r.most, atOnce)
		}
		if q := g.passwords.queue; len(g.passwords.running) != 0 || q.n != 0 || q.free != atOnce || len(q.of)+len(q.turns) != 0 {
			t.Errorf("checks are left: %v, %+v", g.passwords.running, q)
		}
	})
}

// TestWrongLoginsDelayTheirAddress: however many wrong passwords one address sends, the first login of another address is
// the next one to be checked, and loopback and an IPv6 /56 network are one address.
func TestWrongLoginsDelayTheirAddress(t *testing.T) {
	for name, attacker := range map[string]func(i int) string{
		"one address": func(int) string { return "192.0.2.66" },
		"loopback":    func(i int) string { return fmt.Sprintf("127.%d.1.1", i) },
		"a network":   func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, r := counted(t, 4)
				atOnce := max(1, runtime.GOMAXPROCS(0)/2)
				r.hold = make(chan struct{})
				ctx, leave := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range 200 {
					all.Go(func() { g.admit(ctx, attacker(i), login("c4", fmt.Sprint("guess", i))) })
				}
				synctest.Wait()
				done := make(chan error, 1)
				go func() {
					_, err := g.admit(t.Context(), "198.51.100.7", login("c4", "secret"))
					done <- err
				}()
				synctest.Wait()
				for range atOnce + 2 { // those that run, the attacker's next, and this one
					r.hold <- struct{}{}
					synctest.Wait()
				}
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("the right login still waits")
				}
				leave()
				close(r.hold)
				all.Wait()
			})
		})
	}
}

// TestWhoBeganAndLeftHoldsUpNobody: if a caller leaves, the next waiting caller takes
// over.
func TestWhoBeganAndLeftHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, r := counted(t, 4)
		for g.passwords.queue.free > 0 { // bcrypt is busy
			if err := g.passwords.queue.take(t.Context(), "others"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := g.admit(ctx, "192.0.2.1", login("c4", "secret"))
			left <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if name, err := g.admit(t.Context(), "192.0.2.1", login("c4", "secret")); name != "c4" || err != nil {
					t.Errorf("%q, %v", name, err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		g.passwords.queue.release()
		all.Wait()
		if n := r.n.Load(); n != 1 {
			t.Errorf("bcrypt ran %d times", n)
		}
	})
}

// A hash is accepted with its password alone. A password that cannot be right has no hash.
func TestHashPassword(t *testing.T) {
	t.Parallel() // a hash takes long
	for _, password := range []string{" a b:Đặng ", strings.Repeat("x", maxPassword)} {
		hash, err := HashPassword(password)
		if err != nil {
			t.Fatal(err)
		}
		g, err := newAdmission([]Client{{Name: "lab", PasswordHash: hash}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := g.admit(t.Context(), "192.0.2.1", login("lab", password)); name != "lab" || err != nil {
			t.Errorf("%q: %q, %v", password, name, err)
		}
		if _, err := g.admit(t.Context(), "192.0.2.1", login("lab", password[1:])); !errors.Is(err, ErrLogin) {
			t.Errorf("%q: another password: %v", password, err)
		}
		if again, _ := HashPassword(password); again == hash {
			t.Errorf("%q: the same salt twice", password)
		}
	}
	for _, password := range []string{"", "a\nb", "a\x00", "\x7f", strings.Repeat("x", maxPassword+1)} {
		if hash, err := HashPassword(password); err == nil || hash != "" {
			t.Errorf("%q has the hash %q, %v", password, hash, err)
		}
	}
}
