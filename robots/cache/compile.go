package cache

import (
	"bytes"
	"runtime"
	"unsafe"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/tdmrep"
)

// compiled is a list of files, one for each dialect. A program uses few. Exactly one of
// file, tdmrep and broken is set.
type compiled struct {
	file   *robots.File
	tdmrep *tdmrep.File
	broken *brokenFile
	next   *compiled
}

// A brokenFile is a file that cannot be read under a dialect.
type brokenFile struct {
	dialect robots.Dialect
	err     error
}

// dialect returns the dialect under which c is compiled.
func (c *compiled) dialect() robots.Dialect {
	switch {
	case c.file != nil:
		return c.file.Dialect()
	case c.broken != nil:
		return c.broken.dialect
	}
	return tdmrep.Dialect()
}

// size returns the bytes of memory that the file takes.
func (c *compiled) size() int64 { return int64(c.file.Size() + c.tdmrep.Size()) }

// largeText is the length, in bytes, of a large text. No more large texts are compiled at
// once than there are processors, because the compilation of a file takes up to 30 times the
// memory of its text.
const largeText = 64 << 10

// compiling limits the compilations of large texts.
var compiling = make(chan struct{}, runtime.GOMAXPROCS(0))

// compile compiles a text of an origin that nobody modifies: a robots.txt or, under [tdmrep.Dialect], a
// tdmrep.json.
func compile(text []byte, d robots.Dialect, origin robots.Origin) *compiled {
	// Gzip may be short for a large text.
	if len(text) >= largeText || bytes.HasPrefix(text, []byte("\x1F\x8B")) {
		compiling <- struct{}{}
		defer func() { <-compiling }()
	}
	c := new(compiled)
	var err error
	if d == tdmrep.Dialect() {
		c.tdmrep, err = tdmrep.Parse(text)
	} else {
		// This makes no copy.
		whole := unsafe.String(unsafe.SliceData(text), len(text))
		if c.file = robots.ParseFor(origin, whole, d); c.file == nil {
			_, _, err = robots.Decode(whole, d)
		}
	}
	if err != nil {
		c.broken = &brokenFile{d, err}
	}
	return c
}

// TDMRep returns the tdmrep.json of an origin: the file that the Fetcher of a Cache must fetch if
// its entries are read under [tdmrep.Dialect].
func TDMRep() fetch.File {
	return fetch.File{Path: tdmrep.Path, Accept: "application/json, */*;q=0.1", Check: func(body []byte) error {
		if c := compile(body, tdmrep.Dialect(), robots.Origin{}); c.broken != nil {
			return c.broken.err
		}
		return nil
	}}
}
