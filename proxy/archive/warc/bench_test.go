package warc

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// BenchmarkReader reads records of 1 KiB, and does with each what the commands do.
func BenchmarkReader(b *testing.B) {
	page := response("page", okHead+strings.Repeat("x", 1<<10), strings.Repeat("x", 1<<10))
	const records = 100
	for form, file := range map[string]string{"plain": strings.Repeat(page, records), "gzip": strings.Repeat(zip(page), records)} {
		for name, use := range map[string]func(*Check, *Record) error{
			"read":    func(*Check, *Record) error { return nil },
			"verify":  func(c *Check, rec *Record) error { return c.record(rec) },
			"capture": func(_ *Check, rec *Record) error { _, err := rec.Capture("a.warc"); return err },
		} {
			b.Run(form+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(page) * records))
				for b.Loop() {
					r, err := NewReader(bytes.NewReader([]byte(file)))
					check := NewCheck()
					for err == nil {
						var rec *Record
						if rec, err = r.Next(); err == nil {
							err = use(check, rec)
						}
					}
					if err != io.EOF {
						testkit.Must(b, err)
					}
				}
			})
		}
	}
}

func BenchmarkSURT(b *testing.B) {
	for b.Loop() {
		SURT("https://www.example.com/a/Page%20one.html?b=2&a=1")
	}
}
