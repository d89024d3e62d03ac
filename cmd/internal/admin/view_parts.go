package admin

import (
	"net/url"
	"strings"
	"time"

	"robotsproxy/policy/explain"
	"robotsproxy/policy/explain/humanize"
)

// A badge shows a state by an icon, a word and a colour.
type badge struct{ Kind, Icon, Word, Note string }

// A figure is a number at the top of a page.
type figure struct {
	Name, Value, Note string
	Kind, Icon        string

	// Words is set if Value is a word, no number.
	Words bool

	// Href leads to the list that the figure counts; "": there is none.
	Href string
}

// An option is an entry of a list to choose from.
type option struct {
	Name, Value string
	Selected    bool
}

// A fact is a name and a value in a list.
type fact struct {
	Name, Value string
	Href        string
	Code        bool
}

// A factList is a list of facts.
type factList []fact

// newFact returns a fact whose value is printable.
func newFact(name, value string) fact { return fact{Name: name, Value: value} }

// newCode returns a fact whose value is code.
func newCode(name, value string) fact { return fact{Name: name, Value: printable(value), Code: true} }

// add adds a fact, unless value is "".
func (l *factList) add(name, value string) {
	if value != "" {
		*l = append(*l, newFact(name, value))
	}
}

// newFacts converts facts of an explanation for a page.
func newFacts(facts []explain.Fact) (all factList) {
	for _, f := range facts {
		if label := explain.Label(f.Value); f.Name == "reason" && label != f.Value {
			f.Value = label + " (" + f.Value + ")"
		}
		switch f.Name {
		case "robots.txt", "tdmrep.json", "tdm fetched", "tdm sha256", "tdm note":
		case "sha256":
			f.Name = "SHA-256"
		default:
			f.Name = strings.ToUpper(f.Name[:1]) + f.Name[1:]
		}
		all = append(all, fact{Name: f.Name, Value: printable(f.Value), Code: f.Quoted})
	}
	return all
}

// positiveDuration formats a duration, and returns "" if it is not positive.
func positiveDuration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return humanize.Duration(d)
}

func hostHref(host string) string { return "/hosts/" + url.PathEscape(host) }

// decisionsHref returns the URL of some decisions. params are names and values of the query.
func decisionsHref(params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	return "/?" + q.Encode() + "#decisions"
}
