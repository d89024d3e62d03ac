package fetch

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxDelta is the limit of a number of seconds (RFC 9111 1.2.2).
const maxDelta = 1 << 31

// maxAge returns how much longer a response is fresh: its first valid max-age (RFC 9111 4.2.1)
// less its Age (4.2.3); 0 if it must not be stored or reused; -1 if it does not say. maxAge
// ignores s-maxage and Expires.
func maxAge(h http.Header) time.Duration {
	fresh := time.Duration(-1)
	for _, line := range h.Values("Cache-Control") {
		for line != "" {
			var directive string
			directive, line = cutDirective(line)
			name, value, valued := strings.Cut(directive, "=")
			switch name = strings.TrimSpace(name); {
			case strings.EqualFold(name, "no-store"):
				return 0
			// With a value, no-cache applies to fields only (5.2.2.4).
			case strings.EqualFold(name, "no-cache") && !valued:
				return 0
			case strings.EqualFold(name, "max-age") && fresh < 0:
				if d, ok := deltaSeconds(value); ok {
					fresh = d
				}
			}
		}
	}
	if fresh <= 0 {
		return fresh
	}
	first, _, _ := strings.Cut(h.Get("Age"), ",")
	if age, ok := deltaSeconds(first); ok {
		fresh = max(0, fresh-age)
	}
	return fresh
}

// cutDirective splits a line at the first comma outside a quoted string.
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

// deltaSeconds parses delta-seconds (RFC 9111 1.2.2), quoted or not (5.2.2.1).
func deltaSeconds(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	// It has digits only, so an error means that it is too large.
	if err != nil {
		n = maxDelta
	}
	return time.Duration(min(n, maxDelta)) * time.Second, true
}
