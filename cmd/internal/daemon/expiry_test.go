package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/config"
)

// TestExpiry: entries of hosts that are about to expire, or have, are counted, told and logged once.
func TestExpiry(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	in := func(ends ...time.Duration) (cfg config.Config) {
		cfg.Hosts = []config.Host{{Match: "forever.example"}}
		for _, d := range ends {
			cfg.Hosts = append(cfg.Hosts, config.Host{Match: "a.example", Until: now.Add(d)})
		}
		return cfg
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		name    string
		cfg     config.Config
		expired int
		next    time.Duration
		warning string
	}{
		{"no end", in(), 0, 0, ""},
		{"far", in(8*day, 9*day), 0, 8 * day, ""},
		{"soon", in(8*day, 6*day), 0, 6 * day, "an entry of hosts expires at 2026-12-05T12:00:00Z"},
		{"now", in(0), 1, 0, "an entry of hosts has expired and does not apply: remove or renew it"},
		{"two, and one soon", in(-day, -2*day, day), 2, day,
			"2 entries of hosts have expired and do not apply: remove or renew them; an entry of hosts expires at 2026-11-30T12:00:00Z"},
	} {
		e := exceptions(c.cfg, now)
		if e.Expired != c.expired || e.Next.IsZero() != (c.next == 0) || c.next > 0 && !e.Next.Equal(now.Add(c.next)) {
			t.Errorf("%s: %+v", c.name, e)
		}
		if got := expiryWarning(c.cfg, now); got != c.warning {
			t.Errorf("%s: %q, want %q", c.name, got, c.warning)
		}
	}
	var log bytes.Buffer
	cfg := in(-time.Minute, -time.Second, time.Second)
	warn := func(since, now time.Time) int {
		log.Reset()
		warnExpired(cfg, since, now, slog.New(slog.NewTextHandler(&log, nil)))
		return strings.Count(log.String(), "hosts entry expired")
	}
	for _, tc := range []struct {
		since, now time.Time
		want       int
	}{
		{time.Time{}, now, 2},
		{now.Add(-30 * time.Second), now, 1},
		{now, now.Add(time.Second), 1},
		{now.Add(time.Second), now.Add(time.Hour), 0},
	} {
		if got := warn(tc.since, tc.now); got != tc.want {
			t.Errorf("since %v, at %v: %d entries are logged, want %d", tc.since, tc.now, got, tc.want)
		}
	}
}
