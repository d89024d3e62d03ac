package main

import (
	"fmt"
	"io"
	"strings"
)

// A grade is how one thing is that was looked at.
type grade int

const (
	isFail grade = iota // does not work
	isWarn              // works, or may, but should be seen to
	isSkip              // could not be looked at, or need not be
	isFine
)

func (s grade) String() string {
	return [...]string{isFail: "FAIL", isWarn: "warn", isSkip: "skip", isFine: "ok"}[s]
}

// MarshalText is for JSON, where all are in lower case.
func (s grade) MarshalText() ([]byte, error) { return []byte(strings.ToLower(s.String())), nil }

// A diagnosis is what one check has found, and what is to be done about it. Its
// zero value is a failure.
type diagnosis struct {
	Check  string `json:"check"`
	Status grade  `json:"status"`
	Detail string `json:"detail"` // a line or more; strangers' words in it are escaped when it is printed
	Mend   string `json:"what_to_do,omitempty"`
}

func fine(format string, args ...any) diagnosis {
	return diagnosis{Status: isFine, Detail: fmt.Sprintf(format, args...)}
}

func skip(format string, args ...any) diagnosis {
	return diagnosis{Status: isSkip, Detail: fmt.Sprintf(format, args...)}
}

func warn(mend, format string, args ...any) diagnosis {
	return diagnosis{Status: isWarn, Detail: fmt.Sprintf(format, args...), Mend: mend}
}

func fail(mend, format string, args ...any) diagnosis {
	return diagnosis{Status: isFail, Detail: fmt.Sprintf(format, args...), Mend: mend}
}

// diagnoses prints what is found as it is found.
type diagnoses struct {
	out   io.Writer
	json  *jsonLines // nil: for people
	width int        // of the column of names
	count [isFine + 1]int
}

func newDiagnoses(out io.Writer, asJSON bool, names ...string) *diagnoses {
	f := &diagnoses{out: out}
	if asJSON {
		f.json = newJSONLines(out)
	}
	for _, name := range names {
		f.width = max(f.width, len(name))
	}
	return f
}

func (f *diagnoses) add(found diagnosis) error {
	f.count[found.Status]++
	if f.json != nil {
		return f.json.write(found)
	}
	var b strings.Builder
	lead := fmt.Sprintf("%-4s  %-*s  ", found.Status, f.width, found.Check)
	for line := range strings.SplitSeq(found.Detail, "\n") {
		b.WriteString(lead + harmless(line) + "\n")
		lead = strings.Repeat(" ", len(lead))
	}
	if found.Mend != "" {
		for line := range strings.SplitSeq(found.Mend, "\n") {
			b.WriteString("      " + harmless(line) + "\n")
		}
	}
	_, err := io.WriteString(f.out, b.String())
	return err
}

// verdict is the error of a command that has found something not to work.
func (f *diagnoses) verdict(what string) error {
	switch n := f.count[isFail]; n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: 1 failed", what)
	default:
		return fmt.Errorf("%s: %d failed", what, n)
	}
}
