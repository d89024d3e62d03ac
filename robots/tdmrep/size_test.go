//go:build !race

package tdmrep_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"robotsproxy/robots"
	"robotsproxy/robots/tdmrep"
	"robotsproxy/robots/testkit"
)

// TestSizeIsWhatItTakes compares the Size of large files with the heap that they take.
func TestSizeIsWhatItTakes(t *testing.T) {
	for name, rule := range map[string]string{
		"locations": `{"location":"/%x","tdm-reservation":0}`,
		"wildcards": `{"location":"*%x*","tdm-reservation":0}`,
		"policies":  `{"location":"/é%x","tdm-reservation":1,"tdm-policy":"https://a.test/%[1]x"}`,
		"no rules":  `"%016x"`,
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for n := 0; b.Len() < testkit.Rounds(robots.MaxBytes)-100; n++ {
				fmt.Fprintf(&b, ","+rule, n)
			}
			text := []byte("[" + b.String()[1:] + "]")
			before := testkit.Heap()
			f, err := tdmrep.Parse(text)
			taken := testkit.Heap() - before
			const beside = 16 << 10 // bytes that the test takes
			if size := f.Size(); err != nil || taken > size+size/4+beside || taken < size-size/4-beside {
				t.Errorf("%d bytes are taken, %d said; %v", taken, size, err)
			}
			runtime.KeepAlive(f)
			runtime.KeepAlive(text)
		})
	}
}

// TestParseIsBounded checks that a text of many small values takes no more memory than one of rules.
func TestParseIsBounded(t *testing.T) {
	for _, value := range []string{"1", "{}", "[]", "{\"a\":1}", `{"location":"/","tdm-reservation":1}`} {
		text := []byte("[" + strings.Repeat(value+",", (robots.MaxBytes-100)/(len(value)+1)) + value + "]")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := tdmrep.Parse(text); err != nil && !strings.Contains(err.Error(), "elements") {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 80*robots.MaxBytes {
			t.Errorf("%s: %d bytes for each byte of the text", value, took/robots.MaxBytes)
		}
	}
}
