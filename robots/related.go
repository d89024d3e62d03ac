package robots

import (
	"cmp"
	"slices"
	"strings"
)

// A RelatedRule is a rule of a client's group that did not decide about a path.
type RelatedRule struct {
	Allow bool

	// Rule is the pattern as written.
	Rule string
	Line int

	// Matches says that the rule matches, but another one outranks it. Otherwise the rule only begins
	// as the path does.
	Matches bool
}

// RelatedRules returns the rules that came nearest to deciding about a path, at most limit of
// them: first those that match, by rank, then those that begin as the path does, for at least
// half of what they have before any "*". It parses the file again and tries every rule alone, so
// that it is for explanations, not for every request.
func (g Group) RelatedRules(pathAndQuery string, limit int) []RelatedRule {
	if g.file == nil || g.name < 0 {
		return nil
	}
	s := parseText(g.file.source, *g.file.dialect, g.file.extensions().origin)
	text := s.finalText()
	blocks := s.blocksOf(g)
	winner := g.Match(pathAndQuery).Line
	ranking := ruleRanking{path: g.file.forms(pathAndQuery)}
	for i := range s.rules {
		if it := &s.rules[i]; blocks[it.block] && int(it.meta&maskLine) != winner {
			ranking.add(it, it.pattern(text), g.file.written(&it.rule))
		}
	}
	return ranking.result(limit)
}

// blocksOf returns the blocks that name a group.
func (p *parsed) blocksOf(g Group) map[uint32]bool {
	blocks := make(map[uint32]bool)
	for _, k := range p.keys() {
		if k.text == g.Name() && k.partial == g.file.names[g.name].partial {
			blocks[uint32(p.agentOf(k).block)] = true
		}
	}
	return blocks
}

// A ruleRanking ranks the rules that did not decide about one path.
type ruleRanking struct {
	path  forms
	rules []rankedRule
}

type rankedRule struct {
	RelatedRule
	rule rule

	// shared is the length of the common beginning of the path and of the rule up to its first "*".
	shared int
}

// add adds a rule if it matches, or begins as the path does. The "/" that all paths begin with
// does not count.
func (r *ruleRanking) add(it *parsedRule, pattern, written string) {
	e := rankedRule{rule: it.rule, RelatedRule: RelatedRule{Allow: it.is(flagAllow), Rule: written, Line: int(it.meta & maskLine)}}
	literal, _, _ := strings.Cut(pattern, "*")
	for _, f := range [...]struct {
		path string

		// never is the flag of rules that this form never matches.
		never uint32
	}{{r.path.normalised, flagUnifiedOnly}, {r.path.unified, flagNormalisedOnly}} {
		if it.is(f.never) {
			continue
		}
		e.Matches = e.Matches || it.written > 0 && matchesPattern(pattern, f.path, it.is(flagAnchored))
		shared := 0
		for shared < min(len(literal), len(f.path)) && literal[shared] == f.path[shared] {
			shared++
		}
		e.shared = max(e.shared, shared)
	}
	if e.Matches || e.shared > 1 && 2*e.shared >= len(literal) {
		r.rules = append(r.rules, e)
	}
}

// match reports whether a pattern matches a path in one of the forms.
func (f forms) match(path forms) bool {
	normalised, anchored := strings.CutSuffix(f.normalised, "$")
	unified := strings.TrimSuffix(f.unified, "$")
	return matchesPattern(normalised, path.normalised, anchored) || matchesPattern(unified, path.unified, anchored)
}

// matchesPattern reports whether one pattern matches a path, both normalised: each piece is at
// the first place after the previous one.
func matchesPattern(pattern, path string, anchored bool) bool {
	piece, rest, star := strings.Cut(pattern, "*")
	path, ok := strings.CutPrefix(path, piece)
	for ok && star {
		piece, rest, star = strings.Cut(rest, "*")
		if !star && anchored {
			return strings.HasSuffix(path, piece)
		}
		_, path, ok = strings.Cut(path, piece)
	}
	return ok && (!anchored || path == "")
}

func (r *ruleRanking) result(limit int) []RelatedRule {
	slices.SortFunc(r.rules, func(a, b rankedRule) int {
		if a.Matches && b.Matches {
			return -a.rule.compareRank(&b.rule)
		}
		return cmp.Or(falseFirst(b.Matches, a.Matches), cmp.Compare(b.shared, a.shared), cmp.Compare(a.Line, b.Line))
	})
	var rivals []RelatedRule
	for _, e := range r.rules {
		// A line has several rules if its forms differ, or if it allows an index page.
		if len(rivals) < limit && !slices.ContainsFunc(rivals, func(rival RelatedRule) bool { return rival.Line == e.Line }) {
			rivals = append(rivals, e.RelatedRule)
		}
	}
	return rivals
}
