package cli

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"robotsproxy/cmd/internal/e2e"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *#*$`)
	inCode  = regexp.MustCompile("`[^`\n]*`")
)

// Every relative link leads to a file and, if it names one, to a heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	anchorsOf := map[string][]string{}
	for _, p := range pages {
		anchorsOf[p.name] = anchors(p.text)
	}
	for _, p := range pages {
		for _, m := range link.FindAllStringSubmatch(inCode.ReplaceAllString(p.text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := p.name
			if file != "" {
				target = path.Join(path.Dir(p.name), file)
			}
			if _, err := os.Stat(filepath.Join(e2e.TreeRoot(), target)); err != nil {
				t.Errorf("%s: the link %s leads to no file", p.name, m[1])
			} else if hasAnchor && !slices.Contains(anchorsOf[target], anchor) {
				t.Errorf("%s: the link %s leads to no heading of %s", p.name, m[1], target)
			}
		}
	}
}

// anchors returns the anchors of the headings, in the form of code hosts.
func anchors(text string) (all []string) {
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case strings.ContainsRune("`.,:;!?'\"()[]{}<>/\\&*+=@#$%^|~…", r):
				return -1
			}
			return r
		}, strings.ToLower(m[1]))
		if n := seen[name]; n > 0 {
			all = append(all, name+"-"+string(rune('0'+n)))
		} else {
			all = append(all, name)
		}
		seen[name]++
	}
	return all
}

// Maximum lengths of pages, in words.
const maxReadme, maxPage = 1000, 2000

// generated are the pages that other tests compare with their generators.
var generated = []string{"docs/configuration.md", "docs/cli.md"}

// No page is longer than its maximum.
func TestLengths(t *testing.T) {
	t.Parallel()
	for _, p := range readPages(t) {
		most := maxPage
		if p.name == "README.md" {
			most = maxReadme
		}
		// The bars of tables are no words.
		words := len(slices.DeleteFunc(strings.Fields(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), p.name))), func(w string) bool {
			return !strings.ContainsFunc(w, func(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) })
		}))
		if words > most && !slices.Contains(generated, p.name) {
			t.Errorf("%s has %d words, want at most %d", p.name, words, most)
		}
	}
}
