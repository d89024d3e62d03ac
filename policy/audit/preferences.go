package audit

import (
	"net/http"

	"robotsproxy/policy/audit/trail"
)

// maxPreference bounds the text of a Preference, in bytes, to what a line may have of it.
const maxPreference = trail.MaxText

// Preferences are an origin's usage preferences, as the header of a response states them.
type Preferences struct {
	// RobotsTag is X-Robots-Tag, for example noindex or nosnippet.
	RobotsTag Preference

	// ContentSignal is Content-Signal (contentsignals.org).
	ContentSignal Preference

	// ContentUsage is Content-Usage (draft-ietf-aipref-attach).
	ContentUsage Preference

	// TDMReservation is TDM-Reservation (TDM Reservation Protocol 7.1), and TDMPolicy is TDM-Policy, the URL of the terms.
	TDMReservation Preference
	TDMPolicy      Preference

	// License has the licenses of Link headers, separated by spaces.
	License Preference

	// CrawlerPrice is Crawler-price: what the content costs (Cloudflare, pay per crawl), which the proxy never pays.
	CrawlerPrice Preference
}

// A Preference is the value of one header field, with its lines joined. The zero Preference means
// that the response does not have the field.
type Preference struct {
	// Text is the beginning of the value, at most maxPreference bytes.
	Text string

	// Bytes is the length of the whole value.
	Bytes int
}

// PreferencesOf reads the header of a response. The result does not refer to the header.
func PreferencesOf(h http.Header) Preferences {
	return Preferences{
		RobotsTag:      preference(h["X-Robots-Tag"], ", "),
		ContentSignal:  preference(h["Content-Signal"], ", "),
		ContentUsage:   preference(h["Content-Usage"], ", "),
		TDMReservation: preference(h["Tdm-Reservation"], ", "),
		TDMPolicy:      preference(h["Tdm-Policy"], ", "),
		License:        preference(licenseLinks(h["Link"]), " "),
		CrawlerPrice:   preference(h["Crawler-Price"], ", "),
	}
}

// preference reads the lines of one field. Most responses have none, and use no stack for it.
func preference(lines []string, separator string) Preference {
	if len(lines) == 0 {
		return Preference{}
	}
	return joinLines(lines, separator)
}

// joinLines joins the lines of a field. It is not inlined, since its buffer would double the
// stack of the goroutine that waits for the response.
//
//go:noinline
func joinLines(lines []string, separator string) Preference {
	var buf [maxPreference + len(", ")]byte
	b, whole := buf[:0], 0
	for _, line := range lines {
		if whole > 0 {
			whole += len(separator)
			if len(b) < maxPreference {
				b = append(b, separator...)
			}
		}
		whole += len(line)
		b = append(b, line[:min(len(line), max(0, maxPreference-len(b)))]...)
	}
	return Preference{string(b[:min(len(b), maxPreference)]), whole}
}

// append appends a member with the Preference, unless it is zero.
func (p *Preference) append(b []byte, member string, limit int) []byte {
	if p.Text == "" {
		return b
	}
	return append(appendText(append(b, member...), p.Text, limit, p.Bytes), '"')
}
