package audit

import "net/http"

// maxWish bounds, in octets, what is kept of one wish; what is longer is cut.
const maxWish = 512

// Wishes are what an origin's answer says about the use of its content. They
// are recorded, and not enforced. Several lines of one header are joined by
// commas; "" where there is none.
type Wishes struct {
	RobotsTag      string // X-Robots-Tag: noindex, nosnippet and their like
	ContentSignal  string // Content-Signal (contentsignals.org)
	ContentUsage   string // Content-Usage (draft-ietf-aipref-attach)
	TDMReservation string // TDM-Reservation (TDM Reservation Protocol 7.1)
	TDMPolicy      string // TDM-Policy, likewise: where its terms are
}

// WishesOf reads an answer's header, and keeps nothing of it alive.
func WishesOf(h http.Header) Wishes {
	return Wishes{
		RobotsTag:      wish(h["X-Robots-Tag"]),
		ContentSignal:  wish(h["Content-Signal"]),
		ContentUsage:   wish(h["Content-Usage"]),
		TDMReservation: wish(h["Tdm-Reservation"]),
		TDMPolicy:      wish(h["Tdm-Policy"]),
	}
}

// wish reads one. Inlined, its room would stand in the frame of who waits for the
// answer, and double that stack.
//
//go:noinline
func wish(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	var room [maxWish + len(", ")]byte
	b := room[:0]
	for _, line := range lines {
		if len(b) >= maxWish {
			break
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, line[:min(len(line), max(0, maxWish-len(b)))]...)
	}
	return string(b[:min(len(b), maxWish)])
}

func cutWish(s string) string { return s[:min(len(s), maxWish)] }
