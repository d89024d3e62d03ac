package audit

import (
	"slices"
	"strings"
	"time"

	"robotsproxy/policy"
)

const (
	// maxFairClients is the number of clients that a FairLimit counts apart in a second; later ones count as
	// one. It bounds memory, at about 100 bytes a client.
	maxFairClients = 4096
	// fairInterval is how long a FairLimit counts together.
	fairInterval = time.Second
)

// others is the key of all clients that are not counted apart.
const others = "(others)"

// A FairLimit limits what all clients together add to the audit. If they want more than there is, those that want
// the least get all of it, and each of the others gets the same. Strangers (policy.IsStranger) and other clients have
// a limit each: whoever has many addresses takes nothing from the clients of the configuration.
//
// What one client may have in a second depends on what the clients wanted in the seconds before. In the
// first second of an attack, the attackers can have it all. One goroutine at a time may use a FairLimit.
type FairLimit struct {
	// PerSecond is what each kind of clients may add in a second; at least 1.
	PerSecond int

	// Burst is what they may add at first, and save at most; at least PerSecond.
	Burst int

	// start is when the current second began.
	start            time.Time
	strangers, named fairTotal
}

// A fairTotal is the state of a FairLimit for one kind of clients.
type fairTotal struct {
	// left is what they may still add.
	left int

	// most is what one of them may add in the current second.
	most int

	// demand has the demands by ShareKey.
	demand map[string]demand
}

// A demand is what a client wants, at most Burst.
type demand struct {
	// now is the demand in the current second.
	now int

	// recent is that in the second before; or half of that two seconds before, and so on, if that is more.
	recent int
}

// Take reports whether client, as policy.Engine.Admit returns it, may add n.
func (f *FairLimit) Take(client string, n int, now time.Time) bool {
	if passed := now.Sub(f.start); passed >= fairInterval {
		// More seconds make no difference.
		seconds := int(min(passed/fairInterval, time.Duration(f.Burst)))
		f.strangers.next(f, seconds)
		f.named.next(f, seconds)
		f.start = now
	}
	all := &f.named
	if policy.IsStranger(client) {
		all = &f.strangers
	}
	return all.take(policy.ShareKey(client), n, f.Burst)
}

func (t *fairTotal) take(share string, n, burst int) bool {
	d, known := t.demand[share]
	switch {
	case !known && len(t.demand) >= maxFairClients:
		share = others
		d = t.demand[share]
	case !known:
		// The clone does not keep the whole request header in memory.
		share = strings.Clone(share)
	}
	allowed := d.now < t.most && t.left > 0
	d.now = min(burst, d.now+n)
	t.demand[share] = d
	if allowed {
		t.left -= n
	}
	return allowed
}

// next begins another second, after so many.
func (t *fairTotal) next(f *FairLimit, seconds int) {
	if t.demand == nil {
		t.left, t.most, t.demand = f.Burst, f.Burst, map[string]demand{}
		return
	}
	t.left = min(f.Burst, t.left+seconds*f.PerSecond)
	var wanted []int
	for share, d := range t.demand {
		d = demand{recent: max(d.now, d.recent/2) >> (seconds - 1)}
		if d.recent == 0 {
			delete(t.demand, share)
			continue
		}
		t.demand[share] = d
		wanted = append(wanted, d.recent)
	}
	t.most = fairShare(wanted, t.left, f.Burst)
}

// fairShare returns how much each client may have, so that those who wanted less have all of it and the sum is at most total.
// It leaves a share for a client that wanted nothing. It returns enough if there is enough for all, and at least 1.
func fairShare(wanted []int, total, enough int) int {
	slices.Sort(wanted)
	for i, n := range wanted {
		clients := len(wanted) - i
		if n*clients > total {
			return max(1, total/(clients+1))
		}
		total -= n
	}
	return enough
}
