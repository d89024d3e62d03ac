package robots

import (
	"cmp"
	"strings"
)

// Extension lines beyond these limits are not parsed. Links, which are Sitemap and License lines, and
// preferences, which are Content-Signal and Content-Usage lines, and Visit-time lines are counted separately: some files have
// over a thousand Sitemap lines, which must not hide a preference.
const (
	maxExtensions     = 1000     // lines of one kind in a file
	maxExtension      = 2 << 10  // bytes of a value
	maxExtensionsSize = 64 << 10 // bytes of all values of one kind in a file
)

// A Signal is what a site says about one use of its pages.
type Signal uint8

// The values of a Signal. The zero Signal says nothing.
const (
	Unsaid Signal = iota
	Yes
	No
)

// String returns "", "yes" or "no".
func (s Signal) String() string { return [...]string{Unsaid: "", Yes: "yes", No: "no"}[min(s, No)] }

// Signals are the Content-Signal lines of a group (contentsignals.org): whether its pages may be
// used in a search index, as input to a model that answers, and to train one. If lines
// contradict each other, No counts.
type Signals struct{ Search, AIInput, AITrain Signal }

// String returns the signals in the form of a line, "search=yes, ai-train=no"; "" if there are
// none.
func (s Signals) String() string {
	if s == (Signals{}) {
		return ""
	}
	var said []string
	for _, one := range []struct {
		key string
		Signal
	}{{"search", s.Search}, {"ai-input", s.AIInput}, {"ai-train", s.AITrain}} {
		if one.Signal != Unsaid {
			said = append(said, one.key+"="+one.Signal.String())
		}
	}
	return strings.Join(said, ", ")
}

// field returns the field that a key names, or nil.
func (s *Signals) field(key string) *Signal {
	switch key {
	case "search":
		return &s.Search
	case "ai-input":
		return &s.AIInput
	case "ai-train":
		return &s.AITrain
	}
	return nil
}

// fill sets the signals that s leaves open to those of t.
func (s *Signals) fill(t Signals) {
	s.Search = cmp.Or(s.Search, t.Search)
	s.AIInput = cmp.Or(s.AIInput, t.AIInput)
	s.AITrain = cmp.Or(s.AITrain, t.AITrain)
}

func (s *Signals) merge(t Signals) {
	s.Search = max(s.Search, t.Search)
	s.AIInput = max(s.AIInput, t.AIInput)
	s.AITrain = max(s.AITrain, t.AITrain)
}

// extensionLines are the extension lines of a file.
type extensionLines struct {
	links, preferences, times        extensionCount
	sitemaps, licenses               []string
	signals, usages, visits          []preferenceLine
	signalRuns, usageRuns, visitRuns []agentRun
}

// everyRun is the run of a line that applies to every agent.
const everyRun = -1

// A preferenceLine is a Content-Signal, Content-Usage or Visit-time line.
type preferenceLine struct {
	// run is an index in the runs of its kind, or everyRun.
	run int

	// pattern is "" if the line applies to all paths.
	pattern string
	UsageLine

	// Signals are what a Content-Signal line says.
	Signals
}

// A UsageLine is a line of a robots.txt that states usage preferences.
type UsageLine struct {
	// Number is that of the line in the file, from 1.
	Number int

	// Text is the preferences as written: the value of the line, without the path pattern.
	Text string

	// BeforeGroups says that the line is before the first group: it counts where the group's own
	// lines say nothing.
	BeforeGroups bool
}

// An extensionCount counts the accepted lines of one kind.
type extensionCount struct{ lines, size int }

// accept reports whether a value stays within the limits, and counts it.
func (c *extensionCount) accept(value string) bool {
	if len(value) == 0 || len(value) > maxExtension || c.lines == maxExtensions || c.size+len(value) > maxExtensionsSize {
		return false
	}
	c.lines++
	c.size += len(value)
	return true
}

// addLink adds the value of a Sitemap or License line.
func (e *extensionLines) addLink(links *[]string, value string) {
	if e.links.accept(value) {
		*links = append(*links, value)
	}
}

// addVisit adds the value of a Visit-time line.
func (e *extensionLines) addVisit(value string, line, run int) {
	if e.times.accept(value) {
		e.visits = append(e.visits, preferenceLine{run: run, UsageLine: UsageLine{Number: line, Text: value}})
	}
}

// addSignals adds "search=yes, ai-train=no", which applies to every path, or "/pattern ai-train=no".
func (e *extensionLines) addSignals(value string, line, run int) {
	if !e.preferences.accept(value) {
		return
	}
	pattern, text := cutPattern(value)
	signals, _ := ParseSignals(text)
	e.signals = append(e.signals, preferenceLine{run, pattern, UsageLine{line, text, run == everyRun}, signals})
}

// ParseSignals parses the value of a Content-Signal line or header, "search=yes, ai-train=no". It
// ignores what it does not know; whole reports that it knows all of the value. It accepts "use=" and
// ignores its value.
func ParseSignals(value string) (signals Signals, whole bool) {
	whole = true
	for part := range strings.SplitSeq(strings.ToLower(value), ",") {
		key, said, _ := strings.Cut(part, "=")
		s := signals.field(trimSpace(key))
		switch said = trimSpace(said); {
		case s != nil && said == "yes":
			*s = max(*s, Yes)
		case s != nil && said == "no":
			*s = No
		case trimSpace(key) == "use" && said != "":
		default:
			whole = false
		}
	}
	return signals, whole
}

// addUsage adds "train-ai=n", which applies to every path, or "/pattern train-ai=n". A value that does
// not begin with "/" has no pattern (draft-ietf-aipref-attach, Processing Content-Usage Rules).
func (e *extensionLines) addUsage(value string, line, run int) {
	if !e.preferences.accept(value) {
		return
	}
	pattern, text := cutPattern(value)
	if pattern != "" && text == "" {
		return
	}
	e.usages = append(e.usages, preferenceLine{run, cmp.Or(pattern, "/"), UsageLine{Number: line, Text: text}, Signals{}})
}

// cutPattern divides the value of a line into the path pattern at its beginning, "" if there is none, and
// the preferences.
func cutPattern(value string) (pattern, preferences string) {
	if value == "" || value[0] != '/' {
		return "", value
	}
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return value, ""
	}
	return value[:end], trimSpace(value[end:])
}
