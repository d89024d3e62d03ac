package pacefile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/osfile"
	"robotsproxy/policy/pace"
	"robotsproxy/policy/pace/limiter"
	"robotsproxy/policy/pace/storetest"
)

// open opens n Tables on a new file. They are closed at the end of the test.
func open(t testing.TB, n int) []*Table {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pace")
	var all []*Table
	for range n {
		table, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, table)
	}
	return all
}

func TestStore(t *testing.T) {
	storetest.Store(t, func(t *testing.T, n int) (stores []pace.Store) {
		for _, table := range open(t, n) {
			running(t, table, pace.New(pace.Options{}))
			stores = append(stores, table)
		}
		return stores
	})
}

// running runs a Table until the end of the test.
func running(t *testing.T, table *Table, p *pace.Pacer) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pacers returns n Pacers that share a file.
func pacers(t *testing.T, n int) (all []*pace.Pacer) {
	for _, table := range open(t, n) {
		p := pace.New(pace.Options{Store: table})
		running(t, table, p)
		all = append(all, p)
	}
	return all
}

func TestPacers(t *testing.T) { storetest.Pacers(t, synctest.Test, pacers) }

func TestPacersInRealTime(t *testing.T) { storetest.Pacers(t, nil, pacers) }

// BenchmarkRequest measures what the file costs a request: the slot, its use and its return.
func BenchmarkRequest(b *testing.B) {
	table := open(b, 1)[0]
	p := pace.New(pace.Options{Store: table})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx, p) }()
	storetest.Requests(b, p)
	stop()
	<-ended
}

// request returns a request for a slot of a key under a gap.
func request(key string, gap time.Duration) pace.SlotRequest {
	return pace.SlotRequest{
		Key:           key,
		Limiters:      []pace.Limiter{{Limit: limiter.Limit{PerSecond: 1 / gap.Seconds(), Burst: 1, Gap: gap}}},
		MaxConcurrent: 1000, MaxWait: 24 * time.Hour, Window: time.Millisecond,
	}
}

// reserve reserves a slot, which may begin later.
func reserve(t *testing.T, table *Table, a pace.SlotRequest) pace.Reservation {
	t.Helper()
	r, err := table.Reserve(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCredit tests that processes that take slots in advance together keep the rate and the concurrency limit.
func TestCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, burst, most = 5000, 100, 40
		a := pace.SlotRequest{
			Key: "a.test", Limiters: []pace.Limiter{{Limit: limiter.Limit{PerSecond: perSecond, Burst: burst}}}, MaxConcurrent: most,
		}
		tables := open(t, 3)
		for _, table := range tables {
			running(t, table, pace.New(pace.Options{}))
		}
		type holder struct {
			table *Table
			lease any
		}
		var held []holder
		began, sent, ahead := time.Now(), 0, 0
		for range 2000 {
			for _, table := range tables {
				if r := reserve(t, table, a); !r.At.IsZero() {
					if r.Lease.(*lease).Number == 0 {
						ahead++
					}
					sent++
					held = append(held, holder{table, r.Lease})
				}
				if len(held) > most {
					t.Fatalf("%d concurrency slots in use, %d permitted", len(held), most)
				}
				if limit := burst + perSecond*time.Since(began).Seconds(); float64(sent) > limit+1e-6 {
					t.Fatalf("%d slots after %v", sent, time.Since(began))
				}
			}
			for len(held) > most/2 {
				held[0].table.Report(pace.Report{Key: a.Key, Lease: held[0].lease})
				held = held[1:]
			}
			time.Sleep(500 * time.Microsecond)
		}
		if sent < perSecond/2 || ahead == 0 {
			t.Errorf("%d slots in %v, %d of them in advance", sent, time.Since(began), ahead)
		}
		for _, h := range held {
			h.table.Report(pace.Report{Key: a.Key, Lease: h.lease})
		}
		time.Sleep(time.Second)
		for i := range most {
			if r := reserve(t, tables[i%3], a); r.At.IsZero() && !r.Full {
				t.Fatalf("Reserve = %+v", r)
			}
			time.Sleep(20 * time.Millisecond) // what is taken in advance is given back
		}
		if r := reserve(t, tables[0], a); !r.Full {
			t.Errorf("Reserve = %+v, want it full", r)
		}
	})
}

// TestCreditAndLowerConcurrency tests that what was taken in advance gives no slot under a lower concurrency limit.
func TestCreditAndLowerConcurrency(t *testing.T) {
	table := open(t, 1)[0]
	a := pace.SlotRequest{Key: "a.test", Limiters: []pace.Limiter{{Limit: limiter.Limit{PerSecond: 5000, Burst: 100}}}, MaxConcurrent: 40}
	reserve(t, table, a)
	if table.credits[a.Key] == nil {
		t.Fatal("nothing was taken in advance")
	}
	a.MaxConcurrent = 1
	if r := reserve(t, table, a); !r.Full {
		t.Errorf("Reserve = %+v, want it full", r)
	}
}

// TestConcurrencySlotsTakeTurns tests that a process with many requests leaves concurrency slots to another one.
func TestConcurrencySlotsTakeTurns(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := pace.Limits{Key: "a.test", PerSecond: 1000, Burst: 1000, MaxConcurrent: most, MaxQueue: 1000, MaxWait: time.Minute}
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
				defer stop()
				var inFlight, sent [2]atomic.Int32
				var all sync.WaitGroup
				for i, p := range pacers(t, 2) {
					for range []int{20, 1}[i] {
						all.Go(func() {
							for ctx.Err() == nil {
								s, err := p.Wait(ctx, "", l)
								if err != nil {
									continue
								}
								if s.Ready(ctx) == nil {
									s.Sent()
									if n := inFlight[0].Load() + inFlight[1].Load(); n >= int32(most) {
										t.Errorf("%d requests in flight", n+1)
									}
									inFlight[i].Add(1)
									time.Sleep(time.Second)
									sent[i].Add(1)
									inFlight[i].Add(-1)
								}
								s.Release()
							}
						})
					}
				}
				all.Wait()
				if few, many := sent[1].Load(), sent[0].Load(); few < 60 || many < few/2 {
					t.Errorf("%d requests of the process with many, %d of the other one", many, few)
				}
			})
		})
	}
}

// TestGapAfterCredit tests that the gap of one process counts from what another one sends in advance.
func TestGapAfterCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := open(t, 2)
		fast := pace.SlotRequest{Key: "a.test", Limiters: []pace.Limiter{{Limit: limiter.Limit{PerSecond: 5000, Burst: 100}}}, MaxConcurrent: 40}
		reserve(t, tables[0], fast)
		time.Sleep(advance - time.Millisecond)
		ahead := reserve(t, tables[0], fast)
		if ahead.Lease.(*lease).Number != 0 {
			t.Fatal("the slot was not taken in advance")
		}
		if r := reserve(t, tables[1], request("a.test", 100*time.Millisecond)); r.At.Sub(ahead.At) < 100*time.Millisecond {
			t.Errorf("a slot %v after the last request", r.At.Sub(ahead.At))
		}
	})
}

// TestLeaseOfAnEndedProcess tests that the concurrency slot of a process that was killed is free after a while, and that
// of one that runs is not.
func TestLeaseOfAnEndedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := open(t, 2)
		running(t, tables[1], pace.New(pace.Options{}))
		a := request("a.test", time.Millisecond)
		a.MaxConcurrent = 1
		reserve(t, tables[0], a) // nothing renews it
		if r := reserve(t, tables[1], a); !r.Full {
			t.Errorf("Reserve = %+v while the slot is in use", r)
		}
		time.Sleep(leaseTime)
		if r := reserve(t, tables[1], a); r.At.IsZero() {
			t.Errorf("Reserve = %+v after the lease", r)
		}
		time.Sleep(10 * leaseTime)
		if r := reserve(t, tables[0], a); !r.Full {
			t.Errorf("Reserve = %+v while the lease is renewed", r)
		}
	})
}

// TestClockSetBack tests that a clock that is set back delays no request for longer.
func TestClockSetBack(t *testing.T) {
	table := open(t, 1)[0]
	a := request("a.test", time.Minute)
	now := clockNow()
	ahead := clock{now.Time, now.wall + int64(24*time.Hour)}
	if r, err := table.reserve(&a, ahead); err != nil || r.At.IsZero() {
		t.Fatalf("Reserve = %+v, %v", r, err)
	}
	r, err := table.reserve(&a, now)
	if d := r.At.Sub(now.Time); err != nil || d < time.Minute || d > time.Minute+time.Second {
		t.Errorf("the next slot is in %v, %v; want a minute", d, err)
	}
}

// forgetSeed gives the file a seed that is always the same, for a test of keys that share a page.
func forgetSeed(t *testing.T, table *Table) {
	t.Helper()
	clear(table.head[seedAt:][:seedSize])
	if _, err := table.file.WriteAt(table.head[:], 0); err != nil {
		t.Fatal(err)
	}
}

// sharedPage returns n keys that share a page.
func sharedPage(table *Table, n int) (keys []string) {
	want := pageOf(table.nameOf("key 0", nil))
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("key ", i); pageOf(table.nameOf(key, nil)) == want {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestFullPage tests that a page without space serves other hosts, at the expense of those that would wait longest.
func TestFullPage(t *testing.T) {
	table := open(t, 1)[0]
	forgetSeed(t, table)
	keys := sharedPage(table, 3*rows)
	for i, key := range keys[:2*rows] {
		r := reserve(t, table, request(key, time.Hour))
		if r.At.IsZero() {
			t.Fatalf("host %d: Reserve = %+v", i, r)
		}
		table.Report(pace.Report{Key: key, Lease: r.Lease})
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
	}
	short := request(keys[2*rows], time.Second)
	first := reserve(t, table, short)
	for _, key := range keys[2*rows+1:] {
		r := reserve(t, table, request(key, time.Hour))
		table.Report(pace.Report{Key: key, Lease: r.Lease})
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if r := reserve(t, table, short); r.At.Sub(first.Until) < time.Second-time.Millisecond { // the two clocks differ a little
		t.Errorf("the slot after %v is at %v: the host is forgotten", first.Until, r.At)
	}
}

// TestFullPageKeepsBackOffs tests that a page without space rather forgets back-offs that have ended, which are only
// remembered, than one that lasts.
func TestFullPageKeepsBackOffs(t *testing.T) {
	table := open(t, 1)[0]
	forgetSeed(t, table)
	keys := sharedPage(table, 2*rows)
	now := time.Now()
	for i, key := range keys {
		b := pace.BackOff{Until: now.Add(-time.Second), Length: time.Minute}
		if i == rows {
			b.Until = now.Add(time.Hour)
		}
		table.Report(pace.Report{Key: key, BackOff: b})
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, table, request(keys[rows], time.Second)); time.Until(r.At) < 50*time.Minute {
		t.Errorf("a slot in the back-off is in %v", time.Until(r.At))
	}
}

// TestFullPageKeepsTheHostOfARequest tests that a request takes no space of its own host.
func TestFullPageKeepsTheHostOfARequest(t *testing.T) {
	tables := open(t, 2)
	forgetSeed(t, tables[0])
	keys := sharedPage(tables[0], rows-1)
	var leases []any
	for _, key := range keys[1:] {
		leases = append(leases, reserve(t, tables[0], request(key, time.Millisecond)).Lease)
	}
	a := request(keys[0], time.Hour)
	if r := reserve(t, tables[0], a); r.At.IsZero() { // in the last two rows
		t.Fatalf("Reserve = %+v", r)
	}
	reserve(t, tables[1], a)
	for i, key := range keys[1:] {
		tables[0].Report(pace.Report{Key: key, Lease: leases[i]})
	}
	if err := tables[0].flush(); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, tables[1], a); time.Until(r.At) < 50*time.Minute {
		t.Errorf("the next slot is in %v: the host is forgotten", time.Until(r.At))
	}
}

// TestPageFullOfConcurrencySlots tests that a host without space in its page waits.
func TestPageFullOfConcurrencySlots(t *testing.T) {
	table := open(t, 1)[0]
	forgetSeed(t, table)
	want := pageOf(table.nameOf("key 0", nil))
	n := 0
	for i := 0; n < rows+1; i++ {
		key := fmt.Sprint("key ", i)
		if pageOf(table.nameOf(key, nil)) != want {
			continue
		}
		if r := reserve(t, table, request(key, time.Hour)); !r.At.IsZero() {
			n++
		} else if r.Wait == fullRetry {
			return
		}
	}
	t.Errorf("at least %d hosts with a request in flight in a page of %d rows", n, rows)
}

// TestDamage tests that a damaged page is empty, and that a file that is not one of ours is made anew.
func TestDamage(t *testing.T) {
	table := open(t, 1)[0]
	a := request("a.test", time.Hour)
	reserve(t, table, a)
	if r := reserve(t, table, a); time.Until(r.At) < 50*time.Minute {
		t.Errorf("the second slot is in %v", time.Until(r.At))
	}
	at := (1 + pageOf(table.nameOf(a.Key, nil))) * pageSize
	if _, err := table.file.WriteAt([]byte("damage"), at+pageSize-100); err != nil {
		t.Fatal(err)
	}
	if r := reserve(t, table, a); time.Until(r.At) > time.Minute {
		t.Errorf("a slot of the damaged page is in %v", time.Until(r.At))
	}
	for _, content := range []string{"", "x", strings.Repeat("x", fileSize)} {
		path := filepath.Join(t.TempDir(), "pace")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		other, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		reserve(t, other, a)
		if r := reserve(t, other, a); time.Until(r.At) < 50*time.Minute {
			t.Errorf("the second slot is in %v", time.Until(r.At))
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFileIsMadeAnew tests that all processes use the same file, whatever somebody does to it.
func TestFileIsMadeAnew(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"damaged":   func(path string) error { return os.WriteFile(path, make([]byte, fileSize), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			earlier := open(t, 1)[0]
			held := request("held.test", time.Millisecond)
			held.MaxConcurrent = 1
			reserve(t, earlier, held)
			if err := change(earlier.path); err != nil {
				t.Fatal(err)
			}
			later, err := Open(earlier.path, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			a := request("a.test", time.Hour)
			reserve(t, later, a)
			if r := reserve(t, earlier, a); time.Until(r.At) < 50*time.Minute {
				t.Errorf("the slot of the earlier process is in %v", time.Until(r.At))
			}
			if err := errors.Join(earlier.flush(), later.Close()); err != nil {
				t.Fatal(err)
			}
			if later, err = Open(earlier.path, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			if r := reserve(t, later, held); !r.Full {
				t.Errorf("Reserve = %+v, want it full", r)
			}
			if err := later.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLockedFile tests that nobody waits for long if a process was stopped while it had the file locked, and that the
// file is in use again afterwards.
func TestLockedFile(t *testing.T) {
	table := open(t, 1)[0]
	stopped, err := openFile(table.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := osfile.Lock(stopped); err != nil {
		t.Fatal(err)
	}
	release := time.AfterFunc(time.Minute, func() { stopped.Close() }) // only a fault lets it come to that
	a := request("a.test", time.Hour)
	for range 2 {
		if r, err := table.Reserve(t.Context(), a); !errors.Is(err, osfile.ErrHangs) {
			t.Errorf("Reserve = %+v, %v", r, err)
		}
	}
	if !release.Stop() {
		t.Fatal("Reserve waited for the lock")
	}
	stopped.Close()
	for table.watch.Err() != nil {
		time.Sleep(time.Millisecond)
	}
	if r := reserve(t, table, a); r.At.IsZero() || table.Err() != nil {
		t.Errorf("Reserve = %+v; Err = %v", r, table.Err())
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
}

// TestFailingFile tests that no slot is given while the file cannot be used.
func TestFailingFile(t *testing.T) {
	table := open(t, 1)[0]
	good := table.file
	readOnly, err := os.Open(table.path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	table.file = readOnly
	if r, err := table.Reserve(t.Context(), request("a.test", time.Second)); err == nil || !r.At.IsZero() || table.Err() == nil || table.Standing().StoreAway {
		t.Errorf("Reserve = %+v, %v; Err = %v", r, err, table.Err())
	}
	table.file = good
	if r := reserve(t, table, request("a.test", time.Second)); r.At.IsZero() || table.Err() != nil {
		t.Errorf("Reserve = %+v; Err = %v", r, table.Err())
	}
}

// TestDamagedHeader tests that no number of the last ended back-off makes a process hang.
func TestDamagedHeader(t *testing.T) {
	var h header
	h.make()
	h.end("a.test")
	if ended := h.since(0); len(ended) != 1 || ended[0] != "a.test" {
		t.Errorf("ended back-offs: %q", ended)
	}
	binary.LittleEndian.PutUint64(h[lastEnd:], math.MaxUint64)
	if ended := h.since(1); len(ended) != 0 {
		t.Errorf("ended back-offs: %q", ended)
	}
}

// FuzzPage tests that no content of a page makes a request fail or panic, and that the page then keeps the gap.
func FuzzPage(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{limiterRow}, int64(1))
	table := open(f, 1)[0]
	f.Fuzz(func(t *testing.T, content []byte, written int64) {
		a := request("a.test", time.Minute)
		now := clockNow()
		p := &page{number: pageOf(table.nameOf(a.Key, nil)), changed: true}
		copy(p.data[rowsAt:], content)
		for at := rowsAt; at+rowSize <= pageSize; at += rowSize {
			n := table.nameOf(a.Key, nil)
			if p.data[at+kindAt] == limiterRow {
				n = table.nameOf(a.Key, &a.Limiters[0].Name)
			}
			copy(p.data[at:], n[:])
		}
		if err := table.store(p, clock{now.Time, written}); err != nil {
			t.Fatal(err)
		}
		a.MaxWait = 1 << 62
		if _, err := table.reserve(&a, now); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBackOffAfterTheEndOfAnother tests that a back-off that begins as soon as an operator has ended another one stays.
func TestBackOffAfterTheEndOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacers(t, 1)[0]
		synctest.Wait() // until Run has begun
		l := pace.Limits{Key: "a.test", PerSecond: 1e6, Burst: 1000, MaxConcurrent: 100, MaxQueue: 100}
		send := func() *pace.Slot {
			s, err := p.Wait(t.Context(), "", l)
			if err == nil {
				err = s.Ready(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			s.Sent()
			return s
		}
		for range 3 {
			s := send()
			s.BackOff(time.Hour, "id")
			s.Release()
			p.EndBackOff(l.Key)
			s = send()
			s.BackOff(time.Hour, "id")
			s.Release()
			time.Sleep(2 * readEvery)
			if _, err := p.Wait(t.Context(), "", l); !errors.Is(err, pace.ErrTooBusy) {
				t.Fatalf("Wait = %v in a back-off", err)
			}
			p.EndBackOff(l.Key)
		}
	})
}
