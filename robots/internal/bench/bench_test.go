// Package bench measures robots beside temoto/robotstxt, the reader that most
// Go programs use, on the same files and paths. It is a module of its own, so
// that nobody depends on what it compares with:
//
//	cd robots/internal/bench && go test -bench . -count 9
package bench

import (
	"testing"

	"github.com/temoto/robotstxt"

	"robotsproxy/robots"
	"robotsproxy/robots/internal/corpus"
)

func BenchmarkParse(b *testing.B) {
	for _, c := range corpus.All() {
		b.Run(c.Name+"/robots", func(b *testing.B) {
			for b.Loop() {
				robots.Parse(c.Text, robots.Standard())
			}
		})
		b.Run(c.Name+"/temoto", func(b *testing.B) {
			for b.Loop() {
				if _, err := robotstxt.FromBytes(c.Text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, c := range append(corpus.All(), corpus.Hostile(2000)...) {
		b.Run(c.Name+"/robots", func(b *testing.B) {
			group := robots.Parse(c.Text, robots.Standard()).For("FooBot")
			each(b, c.Paths, func(path string) { group.Match(path) })
		})
		b.Run(c.Name+"/temoto", func(b *testing.B) {
			data, err := robotstxt.FromBytes(c.Text)
			if err != nil {
				b.Skip(err) // a line that it does not understand voids the file
			}
			group := data.FindGroup("FooBot")
			each(b, c.Paths, func(path string) { group.Test(path) })
		})
	}
}

// each takes one path after the other, again and again.
func each(b *testing.B, paths []string, match func(string)) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		match(paths[i])
		if i++; i == len(paths) {
			i = 0
		}
	}
}
