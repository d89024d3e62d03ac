package pacefile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	l := pace.Limits{Key: "a.test", PerSecond: 1e9, Burst: 1 << 30, MaxConcurrent: 1 << 20, MaxWait: 1e9}
	b.ReportAllocs()
	for b.Loop() {
		s, err := p.Wait(b.Context(), "", l)
		if err == nil {
			err = s.Ready(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		s.Sent()
		s.Release()
	}
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
					if r.Lease.(*lease).slot == 0 {
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

// TestFullPage tests that a page without space serves other hosts, at the expense of those that would wait longest.
func TestFullPage(t *testing.T) {
	table := open(t, 1)[0]
	table.seed = [seedSize]byte{} // so that the test can tell which keys share a page
	var keys []string
	want := pageOf(table.nameOf("key 0", nil))
	for i := 0; len(keys) < 3*rows; i++ {
		if key := fmt.Sprint("key ", i); pageOf(table.nameOf(key, nil)) == want {
			keys = append(keys, key)
		}
	}
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
	if r := reserve(t, table, short); r.At.Sub(first.Until) < time.Second {
		t.Errorf("the slot after %v is at %v: the host is forgotten", first.Until, r.At)
	}
}

// TestPageFullOfConcurrencySlots tests that a host without space in its page waits.
func TestPageFullOfConcurrencySlots(t *testing.T) {
	table := open(t, 1)[0]
	table.seed = [seedSize]byte{}
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

// TestFileIsReplaced tests that all processes use the new file when somebody has removed the old one.
func TestFileIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := open(t, 2)
		for _, table := range tables {
			running(t, table, pace.New(pace.Options{}))
		}
		if err := os.Remove(tables[0].path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * readEvery)
		a := request("a.test", time.Hour)
		reserve(t, tables[0], a)
		if r := reserve(t, tables[1], a); time.Until(r.At) < 50*time.Minute {
			t.Errorf("the slot of the second process is in %v", time.Until(r.At))
		}
	})
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
	if r, err := table.Reserve(t.Context(), request("a.test", time.Second)); err == nil || !r.At.IsZero() || table.Err() == nil || table.Standing().Alone {
		t.Errorf("Reserve = %+v, %v; Err = %v", r, err, table.Err())
	}
	table.file = good
	if r := reserve(t, table, request("a.test", time.Second)); r.At.IsZero() || table.Err() != nil {
		t.Errorf("Reserve = %+v; Err = %v", r, table.Err())
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
