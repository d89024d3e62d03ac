package usage

import (
	"net/http"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"robotsproxy/robots"
)

// maxText is how many bytes of a statement are kept, to be shown. A line of a robots.txt has no more, but a
// header may have 256 KiB, which a refusal would repeat for each purpose.
const maxText = 2 << 10

// FromRobots reads the Content-Signal lines for a group and the Content-Usage lines that apply to a path.
// Each line is a statement of its own. A line before the first group says something only of what the lines
// of the group say nothing of. Statements that say nothing are left out.
func FromRobots(signals, usages []robots.UsageLine) []Statement {
	var own, ofAll []Statement
	for _, l := range signals {
		s := contentSignal(RobotsTxt, l.Number, l.Text)
		if l.BeforeGroups {
			ofAll = append(ofAll, s)
		} else {
			own = keep(own, s)
		}
	}
	for _, l := range usages {
		own = keep(own, contentUsage(RobotsTxt, l.Number, l.Text))
	}
	all := own
	for _, s := range ofAll {
		for c := range s.Says {
			if said, _ := Decide(Category(c), own); said != Unknown {
				s.Says[c] = Unknown
			}
		}
		all = keep(all, s)
	}
	return all
}

// FromResponse reads the header of a response. tokens are the product tokens of the client, which an
// X-Robots-Tag may name. Statements that say nothing are left out.
func FromResponse(h http.Header, tokens []string) []Statement {
	var all []Statement
	// The lines of a dictionary are one value (RFC 9651 4.2).
	if lines := h[usageField]; len(lines) > 0 {
		all = keep(all, contentUsage("header "+usageField, 0, strings.Join(lines, ", ")))
	}
	for _, line := range h[signalField] {
		all = keep(all, contentSignal("header "+signalField, 0, line))
	}
	if lines := h["Tdm-Reservation"]; len(lines) > 0 {
		s := Statement{Source: "header " + tdmField, Field: tdmField, Text: strings.Join(lines, ", ")}
		for _, line := range lines {
			s.add(strings.Trim(line, " \t"))
		}
		all = keep(all, s)
	}
	image := mayBeImage(h["Content-Type"])
	for _, line := range h["X-Robots-Tag"] {
		all = keep(all, robotsTag(line, tokens, image))
	}
	return all
}

// FromTDMRep returns the statement of a rule in tdmrep.json: its location, and whether it reserves the
// rights.
func FromTDMRep(location string, reserved bool) Statement {
	s := Statement{Source: TDMRep, Field: tdmField, Text: "0"}
	if reserved {
		s.Text = "1"
	}
	s.add(s.Text)
	s.Text = cut(s.Text + " for " + location)
	return s
}

// keep appends s unless it says nothing.
func keep(all []Statement, s Statement) []Statement {
	if s.Says == [categories]Preference{} {
		return all
	}
	s.Text = cut(s.Text)
	return append(all, s)
}

// cut returns the beginning of a text of more than maxText bytes, which ends in "…" then.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText] + "…"
}

// maxDictionary is how many bytes of Content-Usage are parsed: parsing takes up to 120 times the memory of
// the text, for each response.
const maxDictionary = 16 << 10

// contentUsage reads a dictionary of preferences (draft-ietf-aipref-vocab, Processing Algorithm). If it
// is longer than maxDictionary, or cannot be parsed, it says nothing.
func contentUsage(source string, line int, text string) Statement {
	s := Statement{Source: source, Field: usageField, Line: line, Text: text}
	if len(text) > maxDictionary {
		return s
	}
	d, err := httpsfv.UnmarshalDictionary([]string{text})
	if err != nil {
		return s
	}
	for _, name := range d.Names() {
		member, _ := d.Get(name)
		if item, ok := member.(httpsfv.Item); ok {
			if token, ok := item.Value.(httpsfv.Token); ok {
				s.add(name + "=" + string(token))
			}
		}
	}
	return s
}

func contentSignal(source string, line int, text string) Statement {
	s := Statement{Source: source, Field: signalField, Line: line, Text: text}
	signals, _ := robots.ParseSignals(text)
	for term := range strings.SplitSeq(signals.String(), ", ") {
		s.add(term)
	}
	return s
}

// valued are the directives of X-Robots-Tag that have a value after a colon, as an agent's prefix has
// (Google, Robots meta tag specifications).
var valued = map[string]bool{"unavailable_after": true, "max-snippet": true, "max-image-preview": true, "max-video-preview": true}

// robotsTag reads a line of X-Robots-Tag: directives, separated by commas. A name and a colon before a
// directive limits it, and those after it, to the agent of that name.
func robotsTag(text string, tokens []string, image bool) Statement {
	s := Statement{Source: "header " + tagField, Field: tagField, Text: text}
	applies := true
	for part := range strings.SplitSeq(text, ",") {
		directive := strings.ToLower(strings.Trim(part, " \t"))
		if before, after, found := strings.Cut(directive, ":"); found {
			agent := strings.Trim(before, " \t")
			// What has a space before the colon is the rest of a date, "Wed, 3 Dec 2025 15:00:00 GMT".
			if valued[agent] || strings.ContainsAny(agent, " \t") {
				continue
			}
			applies, directive = named(agent, tokens), strings.Trim(after, " \t")
		}
		if applies && (directive != "noimageai" || image) {
			s.add(directive)
		}
	}
	return s
}

// named reports whether a prefix of X-Robots-Tag names a client with these product tokens. It may have a
// version, as a User-agent line of robots.txt may.
func named(agent string, tokens []string) bool {
	agent, _, _ = strings.Cut(agent, "/")
	return agent == "*" || slices.ContainsFunc(tokens, func(t string) bool { return strings.EqualFold(t, agent) })
}

// mayBeImage reports whether content of these media types, of which there should be one, is an image, or has
// parts that may be images, as the response to a request for several ranges has (RFC 9110 15.3.7.2). Content
// without a type may be one too.
func mayBeImage(types []string) bool {
	return len(types) == 0 || slices.ContainsFunc(types, func(t string) bool {
		family, _, _ := strings.Cut(t, "/")
		return strings.EqualFold(family, "image") || strings.EqualFold(family, "multipart")
	})
}
