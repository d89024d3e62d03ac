package warc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// dateFormats are the forms of WARC-Date. WARC 1.0 has the first one only, without a fraction.
var dateFormats = []string{time.RFC3339Nano, "2006-01-02T15:04Z", "2006-01-02", "2006-01", "2006"}

// Date returns WARC-Date.
func (h Header) Date() (time.Time, error) {
	value := h.Get("WARC-Date")
	for _, format := range dateFormats {
		t, err := time.Parse(format, value)
		if err == nil && (strings.HasSuffix(value, "Z") || !strings.Contains(value, "T")) {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("invalid WARC-Date: %.40q", value)
}

var (
	// needURI are the types of records that must have WARC-Target-URI.
	needURI = []string{TypeRequest, TypeResponse, TypeRevisit, TypeResource, "conversion", "continuation"}

	// repeatable are the fields that a record may have several times.
	repeatable = []string{"warc-concurrent-to", "warc-protocol", "warc-cipher-suite"}
)

// fieldFaults returns what is wrong with the fields of a record. It judges only fields that the
// format defines.
func fieldFaults(rec *Record) (faults []error) {
	for _, name := range []string{"WARC-Type", "WARC-Record-ID", "WARC-Date"} {
		if rec.Get(name) == "" {
			faults = append(faults, fmt.Errorf("no %s", name))
		}
	}
	kind := rec.Type()
	if slices.Contains(needURI, kind) && rec.TargetURI() == "" {
		faults = append(faults, fmt.Errorf("a record of the type %s must have WARC-Target-URI", kind))
	}
	if kind == TypeRevisit && rec.Get("WARC-Profile") == "" {
		faults = append(faults, errors.New("a revisit must have WARC-Profile"))
	}
	if id := rec.ID(); id != "" && !(strings.HasPrefix(id, "<") && strings.HasSuffix(id, ">") && strings.Contains(id, ":")) {
		faults = append(faults, fmt.Errorf("invalid WARC-Record-ID, which must be a URI in angle brackets: %.100q", id))
	}
	if date := rec.Get("WARC-Date"); date != "" {
		if _, err := rec.Date(); err != nil {
			faults = append(faults, err)
		} else if rec.Version == "1.0" && len(date) != len("2006-01-02T15:04:05Z") {
			faults = append(faults, fmt.Errorf("WARC 1.0 has whole seconds in WARC-Date, got %.40q", date))
		}
	}
	seen := map[string]bool{}
	for _, f := range rec.Header {
		name := strings.ToLower(f.Name)
		if seen[name] && strings.HasPrefix(name, "warc-") && !slices.Contains(repeatable, name) {
			faults = append(faults, fmt.Errorf("more than one %s", f.Name))
		}
		seen[name] = true
	}
	return faults
}
