package cli

import (
	"fmt"
	"io"
	"strings"

	"robotsproxy/policy/explain/humanize"
)

// A Grade is how one thing is that was looked at.
type Grade int

const (
	IsFail Grade = iota // does not work
	IsWarn              // works, or may, but should be seen to
	IsSkip              // could not be looked at, or need not be
	IsFine
)

func (s Grade) String() string {
	return [...]string{IsFail: "FAIL", IsWarn: "warn", IsSkip: "skip", IsFine: "ok"}[s]
}

// MarshalText is for JSON, where all are in lower case.
func (s Grade) MarshalText() ([]byte, error) { return []byte(strings.ToLower(s.String())), nil }

// A Diagnosis is what one check has found, and what is to be done about it. Its
// zero value is a failure.
type Diagnosis struct {
	Check  string `json:"check"`
	Status Grade  `json:"status"`
	Detail string `json:"detail"` // a line or more; strangers' words in it are escaped when it is printed
	Mend   string `json:"what_to_do,omitempty"`
}

func Fine(format string, args ...any) Diagnosis {
	return Diagnosis{Status: IsFine, Detail: fmt.Sprintf(format, args...)}
}

func Skip(format string, args ...any) Diagnosis {
	return Diagnosis{Status: IsSkip, Detail: fmt.Sprintf(format, args...)}
}

func Warn(mend, format string, args ...any) Diagnosis {
	return Diagnosis{Status: IsWarn, Detail: fmt.Sprintf(format, args...), Mend: mend}
}

func Fail(mend, format string, args ...any) Diagnosis {
	return Diagnosis{Status: IsFail, Detail: fmt.Sprintf(format, args...), Mend: mend}
}

// Diagnoses prints what is found as it is found.
type Diagnoses struct {
	out   io.Writer
	json  *jsonLines // nil: for people
	width int        // of the column of names
	count [IsFine + 1]int
}

func NewDiagnoses(out io.Writer, asJSON bool, names ...string) *Diagnoses {
	f := &Diagnoses{out: out}
	if asJSON {
		f.json = NewJSONLines(out)
	}
	for _, name := range names {
		f.width = max(f.width, len(name))
	}
	return f
}

func (f *Diagnoses) Add(found Diagnosis) error {
	f.count[found.Status]++
	if f.json != nil {
		return f.json.Write(found)
	}
	var b strings.Builder
	lead := fmt.Sprintf("%-4s  %-*s  ", found.Status, f.width, found.Check)
	for line := range strings.SplitSeq(found.Detail, "\n") {
		b.WriteString(lead + humanize.Escape(line) + "\n")
		lead = strings.Repeat(" ", len(lead))
	}
	if found.Mend != "" {
		for line := range strings.SplitSeq(found.Mend, "\n") {
			b.WriteString("      " + humanize.Escape(line) + "\n")
		}
	}
	_, err := io.WriteString(f.out, b.String())
	return err
}

// verdict is the error of a command that has found something not to work.
func (f *Diagnoses) Verdict(what string) error {
	switch n := f.count[IsFail]; n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s: 1 failed", what)
	default:
		return fmt.Errorf("%s: %d failed", what, n)
	}
}
