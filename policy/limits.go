package policy

import (
	"cmp"
	"net/netip"
	"time"

	"golang.org/x/net/publicsuffix"

	"robotsproxy/policy/pace"
)

// applyEntries turns l, the limits of every host, into those of one request before a
// Crawl-delay is known. h is the entry for the host and c the client; either may be zero.
// dest is the request's Sec-Fetch-Dest. The entry for the host takes precedence over the
// limits of every host, and no client is faster than that entry; where the entry says
// nothing, a client may be. A client that is slower has a rate of its own, so that it
// does not delay others.
func applyEntries(l *pace.Limits, h *Host, c *Client, dest string) {
	named := pace.Rate{PerSecond: h.Pace.PerSecond, Burst: h.Pace.Burst}
	l.PerSecond = cmp.Or(h.Pace.PerSecond, l.PerSecond)
	l.Burst = cmp.Or(h.Pace.Burst, l.Burst)
	l.MaxConcurrent = cmp.Or(h.Pace.MaxConcurrent, l.MaxConcurrent)
	if h.Pace.MaxWait > 0 {
		l.MaxWait, l.MaxBackOff = h.Pace.MaxWait, 0
	}
	l.MaxQueue = cmp.Or(h.Pace.MaxQueue, l.MaxQueue)
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

// setCrawlDelay sets a Crawl-delay in limits. With a Crawl-delay there is no burst of assets.
func setCrawlDelay(l *pace.Limits, by time.Duration) {
	if l.CrawlDelay = by; by > 0 {
		l.AssetBurst = 0
	}
}

// isAsset reports whether a destination (Fetch Standard 2.2.5) is a part of a page that a browser
// requests by itself: not a document, a frame, or what a script requests.
func isAsset(dest string) bool {
	switch dest {
	case "audio", "audioworklet", "font", "image", "json", "manifest", "paintworklet", "script", "sharedworker",
		"style", "track", "video", "worker", "xslt":
		return true
	}
	return false
}

// registeredDomain returns the domain of a host that can be registered under a public suffix: that
// suffix and one label. It returns an address, and a host that is a public suffix, unchanged.
func registeredDomain(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return domain
}

// OverMax says what happens if a site's Crawl-delay exceeds the maximum.
type OverMax uint8

// The zero value clamps.
const (
	Clamp        OverMax = iota // keep the maximum; the record also has the site's
	Honor                       // keep the site's
	RefuseExcess                // refuse the site's pages
)

// Keep returns the Crawl-delay that is enforced if a site asks for one and the maximum is most,
// and whether the site's pages may be fetched at all.
func (m OverMax) Keep(asked, most time.Duration) (given time.Duration, ok bool) {
	switch {
	case asked <= most || m == Honor:
		return asked, true
	case m == RefuseExcess:
		return asked, false
	}
	return most, true
}
