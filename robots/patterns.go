package robots

import (
	"fmt"
	"math"
	"strings"
)

// Patterns is a sequence of patterns, each with the syntax and the meaning of that of a rule, of
// which the first one that matches a path counts. It never changes; any number of goroutines may
// share it. A nil Patterns matches nothing.
type Patterns struct {
	// file has the patterns as the rules of one group. An earlier one has a greater size.
	file *File
}

// NewPatterns compiles patterns. As in rules, a pattern that begins with neither "/" nor "*"
// matches nothing. The error says that a pattern is longer than a line of a robots.txt may be, or
// that there are too many.
func NewPatterns(patterns []string) (*Patterns, error) {
	if len(patterns) > math.MaxUint16 {
		return nil, fmt.Errorf("%d patterns, of at most %d", len(patterns), math.MaxUint16)
	}
	for i, p := range patterns {
		if len(p) > maxLine {
			return nil, fmt.Errorf("pattern %d is longer than %d bytes", i+1, maxLine)
		}
	}
	s := &parsed{dialect: Standard(), source: strings.Join(patterns, ""), blocks: 1, agents: []agentLine{{value: "*"}}}
	rest := s.source
	for i, p := range patterns {
		if canMatch(p) {
			before := len(s.rules)
			s.addRule(rest[:len(p)], rest[:len(p)], i+1, false)
			for j := range s.rules[before:] {
				s.rules[before+j].size = uint16(len(patterns) - i)
			}
		}
		rest = rest[len(p):]
	}
	return &Patterns{compile(s)}, nil
}

// canMatch reports whether a pattern begins as paths do, or with a wildcard.
func canMatch(pattern string) bool { return pattern != "" && (pattern[0] == '/' || pattern[0] == '*') }

// First returns the index of the first pattern that matches a path with its query; -1: none does.
// The path is read as [Group.Match] reads it. First adds the steps it takes to *spent; gaveUp
// reports that *spent has exceeded [MaxEffort], so that the index is not known.
func (p *Patterns) First(pathAndQuery string, spent *Effort) (index int, gaveUp bool) {
	if p == nil {
		return -1, false
	}
	v := Group{file: p.file}.MatchWithin(pathAndQuery, spent)
	return v.Line - 1, v.GaveUp
}

// Size returns the number of bytes of memory that p takes.
func (p *Patterns) Size() int {
	if p == nil {
		return 0
	}
	return p.file.Size() + len(p.file.source)
}
