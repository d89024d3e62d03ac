package cli

import (
	"fmt"
	"io"
	"strings"

	"robotsproxy/policy/explain/humanize"
)

// A Status is the result of one check.
type Status int

const (
	StatusFail Status = iota // does not work
	StatusWarn               // works, or may, but should be seen to
	StatusSkip               // could not be looked at, or need not be
	StatusOK
)

func (s Status) String() string {
	return [...]string{StatusFail: "FAIL", StatusWarn: "warn", StatusSkip: "skip", StatusOK: "ok"}[s]
}

// MarshalText returns the name for JSON, in lower case.
func (s Status) MarshalText() ([]byte, error) { return []byte(strings.ToLower(s.String())), nil }

// A Diagnosis is the result of one check and what to do about it. Its zero value is a failure.
type Diagnosis struct {
	Check  string `json:"check"`
	Status Status `json:"status"`

	// Detail has one or more lines. It is escaped when it is printed.
	Detail string `json:"detail"`
	Hint   string `json:"what_to_do,omitempty"`
}

// OK returns a Diagnosis without a problem.
func OK(format string, args ...any) Diagnosis {
	return Diagnosis{Status: StatusOK, Detail: fmt.Sprintf(format, args...)}
}

// Skip returns a Diagnosis of what could not or need not be checked.
func Skip(format string, args ...any) Diagnosis {
	return Diagnosis{Status: StatusSkip, Detail: fmt.Sprintf(format, args...)}
}

// Warn returns a Diagnosis of what works but needs attention.
func Warn(hint, format string, args ...any) Diagnosis {
	return Diagnosis{Status: StatusWarn, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// Fail returns a Diagnosis of what does not work.
func Fail(hint, format string, args ...any) Diagnosis {
	return Diagnosis{Status: StatusFail, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// A DiagnosisPrinter prints each Diagnosis as soon as it is known.
type DiagnosisPrinter struct {
	out    io.Writer
	asJSON bool

	// width is that of the column of names, in bytes.
	width  int
	failed int
}

// NewDiagnosisPrinter prints to out, as text whose column of names fits the longest one, or as JSON lines.
func NewDiagnosisPrinter(out io.Writer, asJSON bool, longest string) *DiagnosisPrinter {
	return &DiagnosisPrinter{out: out, asJSON: asJSON, width: len(longest)}
}

// Add prints one Diagnosis.
func (d *DiagnosisPrinter) Add(found Diagnosis) error {
	if found.Status == StatusFail {
		d.failed++
	}
	if d.asJSON {
		return WriteJSON(d.out, found)
	}
	var b strings.Builder
	lead := fmt.Sprintf("%-4s  %-*s  ", found.Status, d.width, found.Check)
	for line := range strings.SplitSeq(found.Detail, "\n") {
		b.WriteString(lead + humanize.Escape(line) + "\n")
		lead = strings.Repeat(" ", len(lead))
	}
	if found.Hint != "" {
		for line := range strings.SplitSeq(found.Hint, "\n") {
			b.WriteString("      " + humanize.Escape(line) + "\n")
		}
	}
	_, err := io.WriteString(d.out, b.String())
	return err
}

// Verdict returns the error of a command with failed checks, nil if none failed.
func (d *DiagnosisPrinter) Verdict(what string) error {
	if d.failed == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d failed", what, d.failed)
}
