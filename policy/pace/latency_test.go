package pace

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneSlowPath: the median of the latest paths slows the host down, not one slow path.
func TestOneSlowPath(t *testing.T) {
	type response struct {
		path string
		took time.Duration
		fine bool
	}
	const slow = 8 * time.Second
	each := func(n int, name string, took time.Duration) (all []response) {
		for i := range n {
			all = append(all, response{fmt.Sprint(name, i), took, true})
		}
		return all
	}
	for name, c := range map[string]struct {
		responses []response
		want      time.Duration
	}{
		"one of two":                  {append(each(1, "/", 0), each(5, "/slow", slow)[0]), 0},
		"one of three, many times":    {append(each(2, "/", 0), response{"/slow", slow, true}, response{"/slow", slow, true}, response{"/slow", slow, true}), 0},
		"two of three":                {append(each(1, "/", 0), each(2, "/slow", slow)...), slow},
		"all":                         {each(20, "/", slow), slow},
		"fewer than half of the last": {append(each(20, "/slow", slow), each(4, "/", 0)...), 0},
		"more than half of the last":  {append(each(20, "/slow", slow), each(3, "/", 0)...), slow},
		"a quick error of another":    {[]response{{"/slow", slow, true}, {"/", 0, false}, {"/other", 0, false}}, slow},
		"a slow error of another":     {[]response{{"/", 0, true}, {"/slow", slow, false}, {"/slower", slow, false}}, slow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, l := newExact(), adaptive(out(rule(1, 1, 0)))
				for _, r := range c.responses {
					s := mustWait(t, p, "", l)
					s.Sent()
					pass(r.took)
					s.Answered(r.path, r.fine)
					s.Release()
				}
				s := mustWait(t, p, "", l)
				if got := s.Held().Slowed; got != c.want {
					t.Errorf("slowed to %v, want %v", got, c.want)
				}
				s.Release()
			})
		})
	}
}

// TestOneSlowHostOfSeveral: hosts share a rate, and one of them is slow. Its requests are as far apart as its responses take, and
// the requests to the others keep the shared rate, whoever sends them.
func TestOneSlowHostOfSeveral(t *testing.T) {
	const each, took = 8, 5 * time.Second
	for _, slowHost := range []string{"slow.test", ""} { // "": the host has the name of the shared key
		for _, client := range []string{"a", "b"} {
			t.Run(slowHost+" "+client, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, l := newExact(), adaptive(every(time.Second))
					l.MaxConcurrent, l.MaxWait = 4, time.Hour
					slow, fine := named(l, slowHost), named(l, "fine.test")
					mustWait(t, p, "b", fine).send()
					answer(mustWait(t, p, "a", slow), took, true)
					pass(time.Second)
					var all sync.WaitGroup
					slows, fines := newLog(), newLog()
					for range each {
						all.Go(func() {
							s := mustWait(t, p, "a", slow)
							slows.send(s)
							pass(took)
							s.Answered("/", true)
							s.Release()
						})
						all.Go(func() { s := mustWait(t, p, client, fine); fines.send(s); s.Release() })
						synctest.Wait()
					}
					all.Wait()
					spaced(t, slows.sent(), took, took)
					if at := fines.sent(); len(at) != each || at[each-1] > 2*each*time.Second {
						t.Errorf("the other host was asked at %v", at)
					}
					both := append(slows.sent(), fines.sent()...)
					slices.Sort(both)
					spaced(t, both, time.Second, took)
					if s, _ := p.Host(slow.Key, slowHost); s.Slowed != took {
						t.Errorf("%+v", s)
					}
				})
			})
		}
	}
}
