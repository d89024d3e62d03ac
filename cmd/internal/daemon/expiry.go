package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/prom"
)

const (
	// expirySoon is how long before its end an entry of hosts is about to expire.
	expirySoon = 7 * 24 * time.Hour

	// expiryCheck is how often the ends are looked at. The decisions look at them themselves.
	expiryCheck = 10 * time.Second
)

// expired reports whether an entry of hosts has expired.
func expired(h *config.Host, now time.Time) bool { return !h.Until.IsZero() && !now.Before(h.Until) }

// exceptions returns when entries of hosts expire.
func exceptions(cfg config.Config, now time.Time) (e prom.Exceptions) {
	for i := range cfg.Hosts {
		switch until := cfg.Hosts[i].Until; {
		case until.IsZero():
		case expired(&cfg.Hosts[i], now):
			e.Expired++
		case e.Next.IsZero() || until.Before(e.Next):
			e.Next = until
		}
	}
	return e
}

// expiryWarning returns what an operator should know of entries of hosts that are about to expire or have; "": nothing.
func expiryWarning(cfg config.Config, now time.Time) string {
	e := exceptions(cfg, now)
	text := ""
	if e.Expired > 0 {
		text = fmt.Sprintf("%d entries of hosts have expired and do not apply: remove or renew them", e.Expired)
		if e.Expired == 1 {
			text = "an entry of hosts has expired and does not apply: remove or renew it"
		}
	}
	if !e.Next.IsZero() && e.Next.Sub(now) < expirySoon {
		if text != "" {
			text += "; "
		}
		text += "an entry of hosts expires at " + e.Next.UTC().Format(time.RFC3339)
	}
	return text
}

// warnExpired logs the entries of hosts that have expired since a time; zero: all that have.
func warnExpired(cfg config.Config, since, now time.Time, log *slog.Logger) {
	for i := range cfg.Hosts {
		if h := &cfg.Hosts[i]; expired(h, now) && h.Until.After(since) {
			log.Warn("hosts entry expired", "match", h.Match, "until", h.Until)
		}
	}
}

// watchExpiry logs entries of hosts when they expire, until the context ends.
func (d *Daemon) watchExpiry(ctx context.Context) error {
	ticks := time.NewTicker(expiryCheck)
	defer ticks.Stop()
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			now := time.Now()
			warnExpired(d.Active.Load().Cfg, since, now, d.log)
			since = now
		}
	}
}

// advice returns what is probably not meant in a valid configuration, a line each.
func advice(cfg config.Config, now time.Time) (all []string) {
	for i := range cfg.Hosts {
		h := &cfg.Hosts[i]
		entry := fmt.Sprintf("hosts entry %d (%s): ", i+1, h.Match)
		switch {
		case expired(h, now):
			all = append(all, entry+"expired at "+h.Until.UTC().Format(time.RFC3339)+" and does not apply")
		case h.Match == "*" && len(h.Paths) == 0 && h.Robots == "ignore" && h.Until.IsZero():
			all = append(all, entry+"no robots.txt is obeyed, for ever: set until, or name the hosts that permit it")
		}
	}
	return all
}
