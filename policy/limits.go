package policy

import (
	"cmp"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"robotsproxy/policy/pace"
)

// adapt makes of l, the limits of every host, those of one request, before a
// Crawl-delay is known: h is the entry for the host, c who asks (either may be
// nil), dest what the answer is for. What an entry for the host names comes
// before what holds for all; no client is made faster than that, but where the
// entry says nothing it may be. One that is to be slower gets a clock of its
// own, so that it holds up nobody else.
func adapt(l *pace.Limits, h *Host, c *Client, dest string) {
	var named pace.Rate
	if h != nil {
		named = pace.Rate{PerSecond: h.Pace.PerSecond, Burst: h.Pace.Burst}
		l.PerSecond = cmp.Or(h.Pace.PerSecond, l.PerSecond)
		l.Burst = cmp.Or(h.Pace.Burst, l.Burst)
		l.MaxConcurrent = cmp.Or(h.Pace.MaxConcurrent, l.MaxConcurrent)
		l.MaxWait = cmp.Or(h.Pace.MaxWait, l.MaxWait)
		l.MaxQueue = cmp.Or(h.Pace.MaxQueue, l.MaxQueue)
	}
	if c == nil {
		return
	}
	if isAsset(dest) && named == (pace.Rate{}) {
		l.AssetBurst = c.AssetBurst
	}
	own := pace.Rate{PerSecond: cmp.Or(c.Pace.PerSecond, l.PerSecond), Burst: cmp.Or(c.Pace.Burst, l.Burst)}
	if own.PerSecond < l.PerSecond {
		l.Client = own
		return
	}
	switch {
	case own.PerSecond > l.PerSecond && named.PerSecond == 0:
		l.PerSecond = own.PerSecond
		if named.Burst == 0 {
			l.Burst = own.Burst
		}
	case named == pace.Rate{}:
		l.Burst = max(l.Burst, own.Burst)
	}
	if own.Burst < l.Burst {
		l.Client = pace.Rate{PerSecond: l.PerSecond, Burst: own.Burst}
	}
}

// delay puts a Crawl-delay into limits. No burst spends what it forbids.
func delay(l *pace.Limits, by time.Duration) {
	if l.CrawlDelay = by; by > 0 {
		l.AssetBurst = 0
	}
}

// isAsset says whether a destination (Fetch Standard, 2.2.5) is that of a part of
// a page, which a browser asks for by itself: not of a document, of a frame, or
// of what a script asks for.
func isAsset(dest string) bool {
	switch dest {
	case "audio", "audioworklet", "font", "image", "json", "manifest", "paintworklet", "script", "sharedworker",
		"style", "track", "video", "worker", "xslt":
		return true
	}
	return false
}

// PaceKey says what a host's pace is kept under, unless it is the address.
func (e *Engine) PaceKey(host string) string {
	if !e.o.PerDomain {
		return host
	}
	return registrable(host)
}

// registrable is the domain that somebody has registered, by the public suffix
// list: what is one label longer than a suffix under which the public may. An
// address, and a host that is such a suffix itself, stand for themselves.
func registrable(host string) string {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if strings.Contains(host, ":") || last != "" && '0' <= last[0] && last[0] <= '9' && !strings.ContainsFunc(last, isNoDigit) {
		return host // see robots.Origin: a name does not end in a number
	}
	suffix, _ := publicsuffix.PublicSuffix(host)
	if len(suffix) >= len(host) {
		return host
	}
	below := host[:len(host)-len(suffix)-1]
	return host[strings.LastIndexByte(below, '.')+1:]
}

func isNoDigit(r rune) bool { return r < '0' || r > '9' }
