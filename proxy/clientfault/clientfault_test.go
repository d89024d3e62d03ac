package clientfault

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestOneWarningAnHour checks when a warning is due: once an hour for each client and kind. Addresses that share what one
// client may have are one client.
func TestOneWarningAnHour(t *testing.T) {
	var table Table
	for _, c := range []struct {
		name   string
		kind   Kind
		client string
		after  time.Duration
		want   bool
	}{
		{"the first", Distrust, "192.0.2.1", 0, true},
		{"again", Distrust, "192.0.2.1", time.Minute, false},
		{"another kind", TLS, "192.0.2.1", time.Minute, true},
		{"another client", Distrust, "192.0.2.2", time.Minute, true},
		{"a client with a name", Distrust, "lab", time.Minute, true},
		{"IPv6", Distrust, "2001:db8::1", time.Minute, true},
		{"the same /56", Distrust, "2001:db8:0:a1::2", time.Minute, false},
		{"just before an hour", Distrust, "192.0.2.1", time.Hour - 1, false},
		{"after an hour", Distrust, "192.0.2.1", time.Hour, true},
		{"and again", Distrust, "192.0.2.1", time.Hour + time.Minute, false},
	} {
		if got := table.Add(c.kind, c.client, "a.test", start.Add(c.after)); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFaultsAreCounted(t *testing.T) {
	var table Table
	table.Add(Distrust, "192.0.2.1", "a.test", start)
	table.Add(Distrust, "192.0.2.1", "b.test:8443", start.Add(2*time.Second))
	table.Add(TLS, "lab", "", start.Add(time.Second))
	want := []Fault{{Distrust, "192.0.2.1", "b.test:8443", 2, start.Add(2 * time.Second)}, {TLS, "lab", "", 1, start.Add(time.Second)}}
	if got := table.All(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestStrangersCannotFillTheTable checks that any number of strangers cause a bounded number of warnings in an hour and of
// entries, and that they take nothing from clients with a name.
func TestStrangersCannotFillTheTable(t *testing.T) {
	var table Table
	warnings := 0
	flood := func(at time.Time) {
		for i := range 20_000 {
			if table.Add(Kind(i%len(kinds)), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "a.test", at) {
				warnings++
			}
		}
	}
	flood(start)
	if want := maxStrangers + len(kinds); warnings != want || len(table.All()) != want {
		t.Errorf("%d warnings, %d entries; want %d", warnings, len(table.All()), want)
	}
	for i := range 2 * maxStrangers {
		if !table.Add(Distrust, fmt.Sprintf("lab-%d", i), "a.test", start.Add(time.Minute)) {
			t.Errorf("no warning about a client with a name: %d", i)
		}
	}
	total, others := uint64(0), 0
	for _, f := range table.All() {
		total += f.Count
		if f.Client == "" {
			others++
		}
	}
	if total != 20_000+2*maxStrangers || others != len(kinds) {
		t.Errorf("%d connections counted, %d entries of strangers that are not kept apart", total, others)
	}
	flood(start.Add(2 * time.Hour))
	if want := maxStrangers + len(kinds); len(table.All()) != want {
		t.Errorf("after two hours there are %d entries, want %d", len(table.All()), want)
	}
}

func TestEachKindHasWords(t *testing.T) {
	for k := range kinds {
		kind := Kind(k)
		if kind.String() == "" || !strings.HasSuffix(kind.Advice(), ".") {
			t.Errorf("%q, %q", kind, kind.Advice())
		}
	}
}
