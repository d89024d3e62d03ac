package fetch

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxDelta is where a number of seconds too large to be meant is cut (RFC 9111 1.2.2).
const maxDelta = 1 << 31

// maxAge gives how much longer an answer is fresh: its first valid max-age
// (RFC 9111 4.2.1) less the Age it has already (4.2.3), 0 where it is not to be
// kept at all, -1 where it does not say. s-maxage and Expires are not read.
func maxAge(h http.Header) time.Duration {
	said := time.Duration(-1)
	for _, line := range h.Values("Cache-Control") {
		for line != "" {
			var directive string
			directive, line = cutDirective(line)
			name, value, valued := strings.Cut(directive, "=")
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "no-store"):
				return 0
			case strings.EqualFold(name, "no-cache") && !valued: // with a value it speaks of fields only (5.2.2.4)
				return 0
			case strings.EqualFold(name, "max-age") && said < 0:
				if d, ok := deltaSeconds(value); ok {
					said = d
				}
			}
		}
	}
	if said <= 0 {
		return said
	}
	first, _, _ := strings.Cut(h.Get("Age"), ",")
	if age, ok := deltaSeconds(first); ok {
		said = max(0, said-age)
	}
	return said
}

// cutDirective splits at the first comma outside a quoted string.
func cutDirective(line string) (directive, rest string) {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\\' && quoted:
			i++
		case line[i] == '"':
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

// deltaSeconds reads RFC 9111 1.2.2 delta-seconds, quoted or not (5.2.2.1).
func deltaSeconds(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil { // digits only: it can only be too large
		n = maxDelta
	}
	return time.Duration(min(n, maxDelta)) * time.Second, true
}
