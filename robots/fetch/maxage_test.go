package fetch

import (
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"
)

var quiet = log.New(io.Discard, "", 0)

func TestMaxAge(t *testing.T) {
	const none = time.Duration(-1)
	for _, tc := range []struct {
		name  string
		lines []string // of Cache-Control
		age   string
		want  time.Duration
	}{
		{"nothing said", nil, "", none},
		{"nothing said, aged", nil, "50", none},
		{"plain", []string{"max-age=60"}, "", time.Minute},
		{"any case, among others (5.2)", []string{"public , Max-Age=60, immutable"}, "", time.Minute},
		{"quoted (5.2.2.1)", []string{`max-age="60"`}, "", time.Minute},
		{"first valid (4.2.1)", []string{"max-age=x, max-age=60", "max-age=5"}, "", time.Minute},
		{"zero", []string{"max-age=0"}, "", 0},
		{"negative is invalid (1.2.2)", []string{"max-age=-1"}, "", none},
		{"a fraction is invalid", []string{"max-age=1.5"}, "", none},
		{"a sign is invalid", []string{"max-age=+5"}, "", none},
		{"without a value", []string{"max-age"}, "", none},
		{"with an empty value", []string{"max-age="}, "", none},
		{"too large (1.2.2)", []string{"max-age=99999999999999999999"}, "", maxDelta * time.Second},
		{"s-maxage is for shared caches of pages", []string{"s-maxage=5"}, "", none},
		{"no-store", []string{"max-age=60, no-store"}, "", 0},
		{"no-cache", []string{"No-Cache"}, "", 0},
		{"no-cache for a field (5.2.2.4)", []string{`no-cache="set-cookie, max-age=5", max-age=60`}, "", time.Minute},
		{"quoted pair", []string{`x="\", max-age=5", max-age=60`}, "", time.Minute},
		{"string without end", []string{`x="a, max-age=5`}, "", none},
		{"Age taken off (4.2.3)", []string{"max-age=60"}, "20", 40 * time.Second},
		{"Age over max-age", []string{"max-age=60"}, "90", 0},
		{"Age too large", []string{"max-age=60"}, "99999999999999999999", 0},
		{"invalid Age", []string{"max-age=60"}, "-5", time.Minute},
		{"first Age counts (5.1)", []string{"max-age=60"}, "20, 50", 40 * time.Second},
		{"empty directives", []string{",, ,max-age=60,"}, "", time.Minute},
		{"many commas", []string{strings.Repeat(",", 1<<16)}, "", none},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{"Cache-Control": tc.lines}
			if tc.age != "" {
				h.Set("Age", tc.age)
			}
			if got := maxAge(h); got != tc.want {
				t.Errorf("maxAge = %v, want %v", got, tc.want)
			}
		})
	}
}
