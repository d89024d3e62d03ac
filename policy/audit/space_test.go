package audit

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"robotsproxy/policy/audit/trail"
)

// TestMeasureSpace: the rate is that of the last day, a plain segment counts as compressed, and the
// first limit that is reached counts.
func TestMeasureSpace(t *testing.T) {
	now := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	segment := func(path string, began time.Time, size int) {
		t.Helper()
		line := fmt.Sprintf(`{"time":%q,"url":"`, began.Format(time.RFC3339))
		text := line + strings.Repeat("x", size-len(line)-3) + "\"}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := MeasureSpace(path, Options{}, now); err != nil || s != (Space{Of: "audit", Free: s.Free}) || s.Free <= 0 {
		t.Fatalf("no trail: %+v, %v", s, err)
	}
	const mib, huge = 1 << 20, 1 << 60 // the latter is more than any disk has
	if s, err := MeasureSpace(path, Options{MaxSize: huge}, now); err != nil || !s.UsedUp.Equal(now) || s.Warning() == "" {
		t.Errorf("a disk that is nearly full, and no trail: %+v, %v", s, err)
	}
	segment(path, now.Add(-5*time.Minute), mib)
	if s, err := MeasureSpace(path, Options{}, now); err != nil || s.PerDay != 0 || !s.UsedUp.IsZero() || s.Bytes != mib {
		t.Errorf("too short for a rate: %+v, %v", s, err)
	}
	if s, err := MeasureSpace(path, Options{MaxSize: huge}, now); err != nil || !s.UsedUp.Equal(now) || s.Warning() == "" {
		t.Errorf("a disk that is nearly full, too short for a rate: %+v, %v", s, err)
	}
	segment(trail.SegmentPath(path, 1), now.Add(-100*day), mib)
	segment(trail.SegmentPath(path, 2), now.Add(-30*time.Hour), mib)
	segment(trail.SegmentPath(path, 3), now.Add(-10*time.Hour), mib)
	s, err := MeasureSpace(path, Options{}, now)
	if want := int64(math.Round(3 * mib * usualRatio * 24 / 30)); err != nil || s.PerDay < want-1 || s.PerDay > want+1 {
		t.Errorf("%d bytes a day, want %d; %v", s.PerDay, want, err)
	}
	if want := now.Add(-100 * day); !s.Oldest.Equal(want) || s.Bytes != 4*mib {
		t.Errorf("%+v", s)
	}
	rate := s.PerDay
	if s, err := MeasureSpace(path, Options{MaxSize: huge, MaxAge: day}, now); err != nil || !s.UsedUp.IsZero() || s.Warning() == "" {
		t.Errorf("a disk that is nearly full, and lines grow old first: %+v, %v", s, err)
	}
	for _, tc := range []struct {
		name  string
		o     Options
		days  float64
		limit string // "": the space is not used up
	}{
		{"by the total", Options{MaxTotal: 4*mib + 3*rate}, 3, "audit.max_total_size"},
		{"over the total", Options{MaxTotal: mib}, 0, "audit.max_total_size"},
		{"by the files", Options{MaxTotal: 4*mib + 3*rate, MaxFiles: 4, MaxSize: 2 * rate * 5}, 2, "audit.max_files"},
		{"lines grow old first", Options{MaxTotal: 4*mib + 3*rate, MaxAge: 5 * day}, 0, ""},
		{"lines do not grow old first", Options{MaxTotal: 4*mib + 3*rate, MaxAge: 50 * day}, 3, "audit.max_total_size"},
	} {
		s, err := MeasureSpace(path, tc.o, now)
		if err != nil || s.UsedUp.IsZero() != (tc.limit == "") {
			t.Errorf("%s: %+v, %v", tc.name, s, err)
		} else if got := s.UsedUp.Sub(now).Hours() / 24; tc.limit != "" && (s.Limit != tc.limit || math.Abs(got-tc.days) > 0.01) {
			t.Errorf("%s: %.2f days by %s", tc.name, got, s.Limit)
		}
	}
}

func TestSpaceWarning(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    Space
		want string
	}{
		{"nothing is known", Space{Of: "audit"}, ""},
		{"it lasts", Space{Of: "audit", UsedUp: time.Now().Add(lowSpace + time.Hour), Limit: theDisk}, ""},
		{"the disk", Space{Of: "audit", UsedUp: time.Now().Add(3*day + time.Minute), Limit: theDisk, PerDay: 3 << 20},
			"at the present rate of 3.0 MiB a day, the space for the audit lasts for 3 d, then the disk is full"},
		{"the disk, at once", Space{Of: "audit", UsedUp: time.Now().Add(3*day + time.Minute), Limit: theDisk, PerDay: 3 << 20, Free: 19, Segment: 10},
			"at the present rate of 3.0 MiB a day, the space for the audit lasts for 3 d, then the disk is full"},
		{"nearly full, no rate is known", Space{Of: "audit", UsedUp: time.Now(), Limit: theDisk, Free: 19, Segment: 10},
			"19 B free on the disk of the audit, but a file of it may reach 10 B"},
		{"nearly full, and it lasts", Space{Of: "audit", UsedUp: time.Now().Add(lowSpace + time.Hour), PerDay: 1, Limit: theDisk, Free: 19, Segment: 10},
			"19 B free on the disk of the audit, but a file of it may reach 10 B"},
		{"room for two files", Space{Of: "audit", Free: 20, Segment: 10}, ""},
		{"a ceiling", Space{Of: "audit", UsedUp: time.Now().Add(-time.Minute), Limit: "audit.max_files", PerDay: 1},
			"no space left for more records: audit.max_files deletes records that are younger than audit.max_age"},
	} {
		if got := tc.s.Warning(); got != tc.want {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}
