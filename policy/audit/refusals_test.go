package audit

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy"
	"robotsproxy/policy/audit/trail"
)

// entries reads what the lines of a trail say.
func entries(t *testing.T, l *Log) (all []trail.Entry) {
	t.Helper()
	chained(t, l.opened.File)
	r, err := trail.Open(l.opened.File)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := trail.Read(line.Text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// recorded returns the number of records of each client, and the events.
func recorded(t *testing.T, l *Log) (of map[string]int, events []trail.Entry) {
	t.Helper()
	of = map[string]int{}
	for _, e := range entries(t, l) {
		if e.IsRequest() {
			of[e.Client]++
		} else {
			events = append(events, e)
		}
	}
	return of, events
}

// flood writes so many refusals of a client.
func flood(t *testing.T, l *Log, client string, reason policy.Reason, n int) {
	t.Helper()
	r := refused()
	r.Request.Client, r.Decision.Reason = client, reason
	for range n {
		if err := l.Write(r); err != nil {
			t.Fatal(err)
		}
	}
}

// running runs do beside the Log's goroutines, in a bubble.
func running(t *testing.T, o Options, do func(t *testing.T, l *Log)) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		do(t, l)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCheapRefusalsAreCounted: of each client 100 a second are recorded, and one line a
// second says how many there were beyond.
func TestCheapRefusalsAreCounted(t *testing.T) {
	running(t, Options{Replica: "one"}, func(t *testing.T, l *Log) {
		flood(t, l, "10.0.0.1", policy.ReasonMalformed, maxCheap+40)
		flood(t, l, "10.0.0.1", policy.ReasonAuth, 2)
		flood(t, l, "lab", policy.ReasonLimit, 3)
		if of, events := recorded(t, l); of["10.0.0.1"] != maxCheap || of["lab"] != 3 || len(events) > 0 {
			t.Errorf("at first: %v, %+v", of, events)
		}
		<-time.After(cheapInterval + 2*batchDelay)
		of, events := recorded(t, l)
		if len(events) != 1 {
			t.Fatalf("%d events, %v", len(events), of)
		}
		e := events[0]
		if e.Kind != trail.KindEvent || e.Event != trail.EventCounted || e.Count != 42 || e.Client != "10.0.0.1" || e.Clients != 1 || e.Replica != "one" ||
			!maps.Equal(e.Reasons, map[string]int64{"malformed": 40, "auth": 2}) ||
			e.Detail != "refusals of 1 client beyond 100 a second each or 1000 of all, which have no records: 2 auth, 40 malformed" {
			t.Errorf("%+v", e)
		}
		flood(t, l, "10.0.0.1", policy.ReasonMalformed, maxCheap) // another second
		<-time.After(3 * cheapInterval)
		if of, events := recorded(t, l); of["10.0.0.1"] != 2*maxCheap || len(events) != 1 {
			t.Errorf("a second later: %v, %d events", of, len(events))
		}
		flood(t, l, "10.0.0.1", policy.ReasonMalformed, maxCheap+1)
		flood(t, l, "10.0.0.2", policy.ReasonLimit, maxCheap+5)
		<-time.After(cheapInterval + 2*batchDelay)
		if of, events = recorded(t, l); len(events) != 2 {
			t.Fatalf("%d events, %v", len(events), of)
		}
		if e := events[1]; e.Count != 6 || e.Client != "" || e.Clients != 2 || !maps.Equal(e.Reasons, map[string]int64{"malformed": 1, "limit": 5}) {
			t.Errorf("of two: %+v", e)
		}
		if s := l.Stats(); s.Counted != 48 {
			t.Errorf("%d counted", s.Counted)
		}
	})
}

// TestWhatIsCheap: what the request and the configuration decide, and nothing that was
// sent on.
func TestWhatIsCheap(t *testing.T) {
	cheap := []policy.Reason{policy.ReasonMalformed, policy.ReasonAuth, policy.ReasonLimit, policy.ReasonLoop,
		policy.ReasonPort, policy.ReasonAddress, policy.ReasonDenied, policy.ReasonIdentity, policy.ReasonPaused}
	running(t, Options{}, func(t *testing.T, l *Log) {
		for i, reason := range cheap {
			flood(t, l, fmt.Sprint("10.0.0.", i), reason, maxCheap+1)
		}
		sent := refused()
		sent.Request.Client, sent.Decision.Reason, sent.Monitor = "lab", policy.ReasonDenied, true
		for range 2 * maxCheap {
			if err := l.Write(sent); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(cheapInterval + 2*batchDelay)
		of, events := recorded(t, l)
		if of["lab"] != 2*maxCheap {
			t.Errorf("%d records of requests that were sent on", of["lab"])
		}
		for i, reason := range cheap {
			if n := of[fmt.Sprint("10.0.0.", i)]; n != maxCheap {
				t.Errorf("%d records of %s", n, reason)
			}
		}
		if len(events) != 1 || len(events[0].Reasons) != len(cheap) {
			t.Errorf("%+v", events)
		}
	})
}

// TestOtherRefusalsAreAllRecorded: each has cost its sender something, or says what
// was not sent.
func TestOtherRefusalsAreAllRecorded(t *testing.T) {
	l := open(t, Options{})
	reasons := []policy.Reason{policy.ReasonRule, policy.ReasonPace, policy.ReasonUnreachable, policy.ReasonTooComplex, policy.ReasonQuota, policy.ReasonClient}
	for _, reason := range reasons {
		flood(t, l, "10.0.0.1", reason, 2*maxCheap)
	}
	close(t, l)
	if of, events := recorded(t, l); of["10.0.0.1"] != 2*maxCheap*len(reasons) || len(events) > 0 {
		t.Errorf("%v, %+v", of, events)
	}
}

// TestCountedAtTheEnd: the last second is told when the Log is closed.
func TestCountedAtTheEnd(t *testing.T) {
	l := open(t, Options{})
	flood(t, l, "10.0.0.1", policy.ReasonAuth, maxCheap+7)
	close(t, l)
	of, events := recorded(t, l)
	counted := int64(0)
	for _, e := range events { // the clock is a real one: there may be two
		counted += e.Count
	}
	if int64(of["10.0.0.1"])+counted != maxCheap+7 || counted == 0 && of["10.0.0.1"] <= maxCheap {
		t.Errorf("%v and %d", of, counted)
	}
}

// TestCountedClients: an IPv6 network of one host is one client, a pseudonym stays one,
// and there is a bound to how many are told apart.
func TestCountedClients(t *testing.T) {
	running(t, Options{Client: func(c string) string { return "pseudonym of " + c }}, func(t *testing.T, l *Log) {
		for i := range 2 * maxCheap {
			flood(t, l, fmt.Sprintf("2001:db8::%x", i), policy.ReasonAuth, 1)
		}
		<-time.After(cheapInterval + 2*batchDelay)
		_, events := recorded(t, l)
		if len(events) != 1 || events[0].Count != maxCheap || events[0].Client != "pseudonym of 2001:db8::/56" || events[0].Clients != 1 {
			t.Errorf("%+v", events)
		}
	})
	running(t, Options{}, func(t *testing.T, l *Log) {
		for i := range maxCheapClients + 2*maxCheap {
			if over := l.isOnlyCounted(refusedOf(fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff))); over != (i >= maxCheapOfAll) {
				t.Fatalf("client %d: %v", i, over)
			}
		}
		if l.isOnlyCounted(refusedOf("lab")) {
			t.Error("strangers have taken the place of a client of the configuration")
		}
		l.mu.Lock()
		n := len(l.cheap.byClient) - 1
		l.mu.Unlock()
		if n != maxCheapClients+1 {
			t.Errorf("%d clients are told apart", n)
		}
		<-time.After(cheapInterval + 2*batchDelay)
		_, events := recorded(t, l)
		if len(events) != 1 || events[0].Count != maxCheapClients+2*maxCheap-maxCheapOfAll || events[0].Client != "" ||
			!strings.HasPrefix(events[0].Detail, "refusals of at least 3,097 clients beyond") {
			t.Errorf("of clients that are not told apart: %+v", events)
		}
	})
}

// TestManyClientsDoNotFillTheFile checks that the cheap refusals of many clients are recorded at a limited rate, and that
// those of a client with few of them are recorded all the same, as are those of a client of the configuration.
func TestManyClientsDoNotFillTheFile(t *testing.T) {
	const attackers, seconds = 200, 4
	running(t, Options{}, func(t *testing.T, l *Log) {
		for second := range seconds {
			for i := range attackers {
				flood(t, l, fmt.Sprint("10.0.0.", i), policy.ReasonAuth, maxCheap)
			}
			if second > 0 { // the attackers have used all of the first second
				flood(t, l, "192.0.2.1", policy.ReasonDenied, 4)
			}
			flood(t, l, "lab", policy.ReasonDenied, maxCheap)
			<-time.After(cheapInterval + time.Millisecond)
		}
		of, events := recorded(t, l)
		all := 0
		for _, n := range of {
			all += n
		}
		if strangers := all - of["lab"]; strangers > seconds*maxCheapOfAll || strangers < (seconds-1)*maxCheapOfAll/2 {
			t.Errorf("%d records in %d s", strangers, seconds)
		}
		if of["192.0.2.1"] != 4*(seconds-1) || of["lab"] != maxCheap*seconds {
			t.Errorf("%d records of the honest stranger, %d of the client", of["192.0.2.1"], of["lab"])
		}
		if len(events) != seconds || events[seconds-1].Clients != attackers {
			t.Errorf("%+v", events)
		}
	})
}

// TestLongURLsWeighMore checks that the limit for all clients is one of bytes, since a URL can be long.
func TestLongURLsWeighMore(t *testing.T) {
	running(t, Options{}, func(t *testing.T, l *Log) {
		r := refused()
		r.Decision.Reason, r.Request.PathQuery = policy.ReasonDenied, "/"+strings.Repeat("x", 20<<10)
		for i := range 5 * maxCheap {
			r.Request.Client = fmt.Sprint("10.0.0.", i%200)
			if err := l.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(cheapInterval + 2*batchDelay)
		if of, _ := recorded(t, l); len(of) != (maxCheapOfAll+8)/9 {
			t.Errorf("%d records of 20 KiB in a second", len(of))
		}
	})
}

func refusedOf(client string) *Record {
	r := refused()
	r.Request.Client, r.Decision.Reason = client, policy.ReasonMalformed
	return r
}

// TestCountedWhileTheFileCannotBeWritten: the counts wait, and are told once.
func TestCountedWhileTheFileCannotBeWritten(t *testing.T) {
	running(t, Options{Continue: true}, func(t *testing.T, l *Log) {
		undo := stop(t, l)
		r := refused()
		r.Request.PathQuery = string(slices.Repeat([]byte("x"), 8<<10))
		for range maxPending / len(r.Request.PathQuery) {
			l.Write(r)
		}
		for range 5 {
			flood(t, l, "10.0.0.1", policy.ReasonMalformed, 2*maxCheap)
			<-time.After(cheapInterval)
		}
		if n := len(l.buf) + len(l.writing); n > 2*maxPending {
			t.Errorf("%d bytes are held", n)
		}
		undo()
		<-time.After(2 * probeDelay)
		of, events := recorded(t, l)
		var counted, lost int64
		for _, e := range events {
			if e.Event == trail.EventCounted {
				counted += e.Count
			} else {
				lost += e.Count
			}
		}
		if sum := int64(of["10.0.0.1"]) + counted + lost; counted < 5*maxCheap || sum < 10*maxCheap {
			t.Errorf("%d recorded, %d counted, %d lost", of["10.0.0.1"], counted, lost)
		}
	})
}
