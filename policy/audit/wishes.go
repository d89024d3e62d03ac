package audit

import (
	"net/http"

	"robotsproxy/policy/audit/trail"
)

// maxWish bounds what is kept of one wish, in bytes, to what a line may have of it.
const maxWish = trail.MaxText

// Wishes are what an origin's answer says about the use of its content. They
// are recorded, and not enforced.
type Preferences struct {
	RobotsTag      Preference // X-Robots-Tag: noindex, nosnippet and their like
	ContentSignal  Preference // Content-Signal (contentsignals.org)
	ContentUsage   Preference // Content-Usage (draft-ietf-aipref-attach)
	TDMReservation Preference // TDM-Reservation (TDM Reservation Protocol 7.1)
	TDMPolicy      Preference // TDM-Policy, likewise: where its terms are
}

// A Wish is what one header says, its lines joined by commas. The zero Wish means that the
// answer has no such header.
type Preference struct {
	Text  string // its first bytes, at most maxWish
	Bytes int    // the length of the whole
}

// WishesOf reads an answer's header, and keeps nothing of it alive.
func PreferencesOf(h http.Header) Preferences {
	return Preferences{
		RobotsTag:      wish(h["X-Robots-Tag"]),
		ContentSignal:  wish(h["Content-Signal"]),
		ContentUsage:   wish(h["Content-Usage"]),
		TDMReservation: wish(h["Tdm-Reservation"]),
		TDMPolicy:      wish(h["Tdm-Policy"]),
	}
}

// wish reads the lines of one header. Most answers have none, and need no stack for them.
func wish(lines []string) Preference {
	if len(lines) == 0 {
		return Preference{}
	}
	return joined(lines)
}

// joined joins the lines of a header. It is not inlined: its buffer would double the stack
// of the goroutine that waits for the answer.
//
//go:noinline
func joined(lines []string) Preference {
	var room [maxWish + len(", ")]byte
	b, whole := room[:0], 0
	for _, line := range lines {
		if whole > 0 {
			whole += len(", ")
			if len(b) < maxWish {
				b = append(b, ", "...)
			}
		}
		whole += len(line)
		b = append(b, line[:min(len(line), max(0, maxWish-len(b)))]...)
	}
	return Preference{string(b[:min(len(b), maxWish)]), whole}
}
