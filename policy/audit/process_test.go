package audit

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/stops"
	"robotsproxy/robots/testkit"
)

// begin writes the lines of some requests that are under way.
func begin(t *testing.T, l *Log, ids ...string) {
	t.Helper()
	for _, id := range ids {
		r := allowed()
		r.ID = id
		b := r.Begun()
		testkit.Must(t, l.Begin(&b))
	}
}

// finish writes the record of a request.
func finish(t *testing.T, l *Log, id string) {
	t.Helper()
	r := allowed()
	r.ID = id
	testkit.Must(t, l.Write(r))
}

// abandon ends a Log as kill -9 ends its process.
func abandon(t *testing.T, l *Log) {
	t.Helper()
	testkit.Must(t, l.segment.close())
}

// TestStartNamesWhatTheProcessBeforeLeftUnfinished: with what the process before knew of its end, and without.
func TestStartNamesWhatTheProcessBeforeLeftUnfinished(t *testing.T) {
	for _, c := range []struct {
		name    string
		known   bool
		rotated bool // the lines are in several segments
	}{{"known end", true, false}, {"unknown end", false, false}, {"known end, rotated", true, true}, {"unknown end, rotated", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{File: filepath.Join(t.TempDir(), "audit.jsonl")}
				if c.rotated {
					o.MaxSize = 1
				}
				l := open(t, o)
				testkit.Must(t, l.Start(Process{Version: "1"}))
				begin(t, l, "first", "ended", "second")
				finish(t, l, "ended")
				l.probe(true)
				l.OnDisk()
				finish(t, l, "first") // not on the disk when the end was saved
				l.probe(true)
				known := l.OnDisk()
				begin(t, l, "third")
				l.probe(true)
				abandon(t, l)

				o.MaxSize = 0
				if c.known {
					o.Known = known
				}
				l = open(t, o)
				testkit.Must(t, l.Start(Process{Version: "2", Origin: "o", Config: "abc", CA: "AB:CD"}))
				ctx, cancel := context.WithCancel(context.Background())
				go l.Run(ctx)
				time.Sleep(time.Second)
				cancel()
				synctest.Wait()
				close(t, l)
				all := entries(t, l)
				start, found, stop := all[len(all)-3], all[len(all)-2], all[len(all)-1]
				if start.Event != trail.EventStart || !strings.Contains(start.Detail, "did not stop in order") || start.Program != "2" || start.Origin != "o" || start.Config != "abc" || start.CA != "AB:CD" {
					t.Errorf("%+v", start)
				}
				if found.Event != trail.EventUnfinished || !slices.Equal(found.IDs, []string{"second", "third"}) || found.Count != 2 {
					t.Errorf("%+v", found)
				}
				if stop.Event != trail.EventStop {
					t.Errorf("%+v", stop)
				}

				l = open(t, Options{File: o.File})
				testkit.Must(t, l.Start(Process{}))
				testkit.Must(t, l.findUnfinished(t.Context()))
				begin(t, l, "fourth")
				abandon(t, l)
				l = open(t, Options{File: o.File})
				testkit.Must(t, l.Start(Process{}))
				testkit.Must(t, l.findUnfinished(t.Context()))
				close(t, l)
				all = entries(t, l)
				if found := all[len(all)-2]; found.Event != trail.EventUnfinished || !slices.Equal(found.IDs, []string{"fourth"}) {
					t.Errorf("after another crash: %+v", found)
				}
				if start := all[len(all)-5]; start.Event != trail.EventStart || !strings.Contains(start.Detail, "stopped in order at 2000-01-01T") {
					t.Errorf("after a stop: %+v", start)
				}
			})
		})
	}
}

// TestManyUnfinishedRequests: all of them are named.
func TestManyUnfinishedRequests(t *testing.T) {
	l := open(t, Options{})
	testkit.Must(t, l.Start(Process{}))
	var want []string
	for i := range 2*maxIDs + 1 {
		want = append(want, fmt.Sprintf("%013d", i))
	}
	begin(t, l, want...)
	abandon(t, l)
	file := l.opened.File
	l = open(t, Options{File: file})
	testkit.Must(t, l.Start(Process{}))
	testkit.Must(t, l.findUnfinished(t.Context()))
	close(t, l)
	var got []string
	for _, e := range entries(t, l) {
		if e.Event == trail.EventUnfinished {
			got = append(got, e.IDs...)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d are named, want %d", len(got), len(want))
	}
}

// TestBegunRequestsAreEnded: a request that has begun gets its record, even if records of its kind are left out since
// then. One that is left out has no line.
func TestBegunRequestsAreEnded(t *testing.T) {
	l := open(t, Options{})
	begin(t, l, "a")
	l.SetOptions(Options{BlockedOnly: true})
	begin(t, l, "b")
	finish(t, l, "a")
	finish(t, l, "b")
	close(t, l)
	var got []string
	for _, e := range entries(t, l) {
		got = append(got, e.ID+" "+e.Kind)
	}
	if want := []string{"a begun", "a "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCrashDuringTheSearch: what a start has not searched for yet is left to the next one.
func TestCrashDuringTheSearch(t *testing.T) {
	l := open(t, Options{})
	file := l.opened.File
	testkit.Must(t, l.Start(Process{}))
	begin(t, l, "lost")
	l.probe(true)
	for range 3 {
		known := l.OnDisk()
		abandon(t, l)
		l = open(t, Options{File: file, Known: known})
		testkit.Must(t, l.Start(Process{}))
	}
	testkit.Must(t, l.findUnfinished(t.Context()))
	close(t, l)
	all := entries(t, l)
	if found := all[len(all)-2]; found.Event != trail.EventUnfinished || !slices.Equal(found.IDs, []string{"lost"}) {
		t.Errorf("%+v", found)
	}
}

// TestStopNamesWhatHasNotEnded: a stop leaves nothing to the search of the next start, and nothing is written after it.
func TestStopNamesWhatHasNotEnded(t *testing.T) {
	l := open(t, Options{})
	testkit.Must(t, l.Start(Process{}))
	begin(t, l, "left", "ended")
	finish(t, l, "ended")
	close(t, l)
	all := entries(t, l)
	if found := all[len(all)-2]; found.Event != trail.EventUnfinished || !slices.Equal(found.IDs, []string{"left"}) || all[len(all)-1].Event != trail.EventStop {
		t.Errorf("%+v, then %+v", found, all[len(all)-1])
	}
	late := allowed().Begun()
	if err := l.Begin(&late); !errors.Is(err, ErrUnwritable) {
		t.Errorf("after the end: %v", err)
	}
	l.probe(true)
	if after := entries(t, l); len(after) != len(all) {
		t.Errorf("%d lines after the end", len(after)-len(all))
	}
}

// TestPause: who paused what, until when and why, and who ended it.
func TestPause(t *testing.T) {
	until := time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC)
	ended := stops.Stop{Kind: stops.Paused, Host: "a.test", Reason: "they asked", By: "bob", Until: until, Ended: true}
	for want, p := range map[string]stops.Stop{
		`{"host":"a.test","reason":"they asked","event":"paused","detail":"an operator paused requests to a.test until 2027-01-31T18:00:00Z: they asked","until":"2027-01-31T18:00:00.000000000Z","by":"alice"}`: {Host: "a.test", Reason: "they asked", By: "alice", Until: until},
		`{"reason":"too loud","event":"paused","detail":"an operator paused requests to all hosts: too loud","by":"alice"}`:                                                                                      {Reason: "too loud", By: "alice"},
		`{"host":"a.test","reason":"they asked","event":"resumed","detail":"an operator ended the pause of a.test","by":"bob"}`:                                                                                  ended,
	} {
		l := open(t, Options{})
		testkit.Must(t, l.Pause(p))
		close(t, l)
		all := entries(t, l)
		if len(all) != 1 {
			t.Fatalf("%d lines", len(all))
		}
		line := appendLine(nil, &event{Host: all[0].Host, Reason: all[0].Reason, Event: all[0].Event, Detail: all[0].Detail, Until: all[0].Until, By: all[0].By}, &Options{})
		if _, got, _ := strings.Cut(string(line), `"kind":"event",`); "{"+got+"}" != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestCooledDown: at which host requests are stopped, why, and for whom.
func TestCooledDown(t *testing.T) {
	l := open(t, Options{Client: strings.ToUpper})
	until := time.Date(2027, 1, 31, 18, 0, 0, 0, time.UTC)
	testkit.Must(t, l.CooledDown(stops.Stop{Kind: stops.CoolDown, Host: "a.test", Client: "lab", Statuses: []int{403, 429}, Until: until}))
	testkit.Must(t, l.CooledDown(stops.Stop{Kind: stops.CoolDown, Host: "a.test", Statuses: []int{503}, Until: until}))
	close(t, l)
	all := entries(t, l)
	if len(all) != 2 || all[0].Event != trail.EventCoolDown || all[0].Host != "a.test" || all[0].Client != "LAB" || all[0].Reason != "status 403, 429" || !all[0].Until.Equal(until) ||
		all[0].Detail != "a.test refused requests in a row (status 403, 429): one client may not send there until 2027-01-31T18:00:00Z" || all[1].Client != "" || all[1].Reason != "status 503" {
		t.Errorf("%+v", all)
	}
}

// TestBackOffEnded: what an operator does is an event about the host.
func TestBackOffEnded(t *testing.T) {
	l := open(t, Options{})
	testkit.Must(t, l.BackOffEnded("a.test"))
	close(t, l)
	if all := entries(t, l); len(all) != 1 || all[0].Event != trail.EventBackOffEnded || all[0].Host != "a.test" || all[0].Detail != "an operator ended the back-off of a.test" {
		t.Errorf("%+v", all)
	}
}
