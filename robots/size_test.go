//go:build !race

package robots

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestSizeIsWhatItTakes compares the Size of large files with the heap that they take.
func TestSizeIsWhatItTakes(t *testing.T) {
	most := testkit.Rounds(MaxBytes)
	for name, line := range map[string]string{
		"rules":          "Allow:/%x\n",
		"wildcards":      "Disallow:*%x*\n",
		"escapes":        "Allow:/%%e4%x\n",
		"groups":         "User-agent:%x\nAllow:/\n",
		"agents":         "User-agent:%x\n",
		"cut agents":     "User-agent:%xz1\n",
		"sitemaps":       "Sitemap:http://a.test/%x\n",
		"usage":          "Content-Usage:/%x a=n\n",
		"signal":         "Content-Signal:/%x search=no\n",
		"signals":        "User-agent:%x\nContent-Signal:search=yes\nAllow:\n",
		"nothing at all": "#%x\n",
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			b.WriteString("User-agent: *\n")
			for n := 0; b.Len() < most-100; n++ {
				fmt.Fprintf(&b, line, n)
			}
			text := b.String()
			before := testkit.Heap()
			f := ParseFor(Origin{}, text, Standard())
			taken := testkit.Heap() - before
			const beside = 16 << 10 // bytes that the test takes
			if size := f.Size(); taken > size+size/8+beside || taken < size-size/8-beside {
				t.Errorf("%d bytes are taken, %d said", taken, size)
			}
			runtime.KeepAlive(f)
			runtime.KeepAlive(text)
		})
	}
}
