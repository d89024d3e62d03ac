package cli

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A page is one file of the documentation.
type page struct {
	name   string // README.md, docs/clients.md
	text   string // without its blocks
	blocks []block
}

// A block is a code block of a page. Its first line is ```LANGUAGE MARK...
type block struct {
	line     int
	language string
	marks    []string
	text     string
}

// marked reports whether the block has the mark.
func (b block) marked(mark string) bool { return slices.Contains(b.marks, mark) }

// value returns the value of a mark: "a.yaml" for file=a.yaml, "" if the mark is missing.
func (b block) value(name string) string {
	for _, m := range b.marks {
		if v, ok := strings.CutPrefix(m, name+"="); ok {
			return v
		}
	}
	return ""
}

// readPages returns README.md and all pages below docs/.
func readPages(t *testing.T) []page {
	t.Helper()
	pages := []page{readPage(t, "README.md")}
	testkit.Must(t, filepath.WalkDir(filepath.Join(e2e.TreeRoot(), "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			name, _ := filepath.Rel(e2e.TreeRoot(), path) // path is below the root
			pages = append(pages, readPage(t, filepath.ToSlash(name)))
		}
		return err
	}))
	return pages
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	p := page{name: name}
	var open *block
	n := 0
	for line := range strings.Lines(e2e.ReadText(t, filepath.Join(e2e.TreeRoot(), name))) {
		n++
		fence, isFence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case isFence && open == nil:
			open = &block{line: n, marks: strings.Fields(fence)}
			if len(open.marks) > 0 {
				open.language, open.marks = open.marks[0], open.marks[1:]
			}
		case isFence:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		default:
			p.text += line
		}
	}
	if open != nil {
		t.Errorf("%s:%d: the block has no end", name, open.line)
	}
	return p
}
