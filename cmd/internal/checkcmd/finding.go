package checkcmd

import (
	"fmt"
	"strings"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/robots"
)

// The exit statuses of check.
const (
	exitDisallowed = 1
	exitUnknown    = 2
)

// maxLinks is how many sitemaps of a file the text shows. JSON has all.
const maxLinks = 5

// These are the sources of a finding's product token.
const (
	fromConfig = "identity.product_token"
	fromHeader = "user_agent"
	fromNobody = "none"
)

// A finding is what check says of one URL.
type finding struct {
	URL     string `json:"url"`
	Allowed bool   `json:"allow"`
	explain.Explanation
	AgentFrom string `json:"agent_from,omitempty"`

	// Agents are the product tokens by which a group was looked for.
	Agents []string `json:"agents,omitempty"`
	Status int      `json:"robots_status,omitempty"`

	// Cut says that robots.txt may be longer than is read.
	Cut      bool        `json:"robots_cut,omitempty"`
	Sitemaps []string    `json:"sitemaps,omitempty"`
	Licenses []string    `json:"licenses,omitempty"`
	Signals  signals     `json:"content_signals,omitzero"`
	Usage    string      `json:"content_usage,omitempty"`
	Others   []otherRule `json:"others,omitempty"`

	// header is the User-Agent header.
	header string
}

// signals are the members of a Content-Signal line.
type signals struct {
	Search  string `json:"search,omitempty"`
	AIInput string `json:"ai-input,omitempty"`
	AITrain string `json:"ai-train,omitempty"`
}

// An otherRule is a rule that did not decide.
type otherRule struct {
	Rule    string `json:"rule"`
	Allow   bool   `json:"allow"`
	Line    int    `json:"line"`
	Matches bool   `json:"matches"`
}

// exitStatus returns the exit status for this finding alone.
func (f *finding) exitStatus() int {
	switch {
	case f.Allow:
		return 0
	case f.Reason.Info().Outcome == policy.Failed, f.Reason == policy.ReasonAddress, f.Reason == policy.ReasonPort:
		return exitUnknown
	}
	return exitDisallowed
}

// text returns the finding for people.
func (f *finding) text(colours bool) string {
	s := &cli.Details{Colours: colours}
	word, colour := "unknown", cli.Yellow
	switch f.exitStatus() {
	case 0:
		word, colour = "allowed", cli.Green
	case exitDisallowed:
		word, colour = "disallowed", cli.Red
		if f.Reason.Info().Outcome == policy.Deferred {
			word, colour = policy.Deferred.String(), cli.Yellow
		}
	}
	fmt.Fprintf(&s.Text, "%s %s\n", s.Paint(colour, fmt.Sprintf("%-10s", word)), humanize.Printable(f.URL))
	s.Row("why", f.Why())
	s.Facts(f.Decided())
	f.agentText(s)
	s.Facts(f.Basis())
	if f.Cut {
		s.Row("note", fmt.Sprintf("only the first %d bytes of the file are read", robots.MaxBytes))
	}
	s.Row("sitemaps", links(f.Sitemaps)...)
	var outranked, alike []string
	for _, o := range f.Others {
		if text := explain.RuleText(o.Allow, o.Rule, o.Line); o.Matches {
			outranked = append(outranked, text)
		} else {
			alike = append(alike, text)
		}
	}
	s.Row("outranked", outranked...)
	s.Row("begins alike", alike...)
	return s.Text.String()
}

// agentText adds where the product token is from.
func (f *finding) agentText(s *cli.Details) {
	switch f.AgentFrom {
	case fromConfig:
		s.Row("agent from", "identity.product_token")
	case fromHeader:
		var considered []string
		for _, token := range f.Agents {
			considered = append(considered, humanize.Printable(token))
		}
		s.Row("agent from", "the User-Agent header")
		s.Row("considered", strings.Join(considered, ", "))
	case fromNobody:
		why := "the User-Agent header has no product token other than a browser's"
		if f.header == "" {
			why = "no User-Agent header (set one with -A)"
		}
		s.Row("agent", "none: "+why)
	}
	if f.Reason == policy.ReasonIdentity {
		s.Row("what to do", "set the User-Agent header with -A or identity.user_agent, or the From header with identity.from")
	}
}

// links returns the first of a list, and how many more there are.
func links(list []string) []string {
	var shown []string
	for i, link := range list {
		if i == maxLinks {
			return append(shown, fmt.Sprintf("and %d more", len(list)-i))
		}
		shown = append(shown, humanize.Brief(link))
	}
	return shown
}
