package cache

import (
	"runtime"
	"unsafe"

	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
	"robotsproxy/robots/tdmrep"
)

// compiled is a list of files, one for each dialect. A program uses few.
type compiled struct {
	dialect robots.Dialect
	file    *robots.File // nil: it is a tdmrep.json
	tdmrep  *tdmrep.File // nil: it is a robots.txt, or cannot be read
	next    *compiled
}

// size returns the bytes of memory that the file takes.
func (c *compiled) size() int64 { return int64(c.file.Size() + c.tdmrep.Size()) }

// largeText is the length, in bytes, of a large text. No more large texts are compiled at
// once than there are processors, because the compilation of a file takes up to 30 times the
// memory of its text.
const largeText = 64 << 10

// compiling limits the compilations of large texts.
var compiling = make(chan struct{}, runtime.GOMAXPROCS(0))

// compile compiles a text that nobody modifies: a robots.txt or, under [tdmrep.Dialect], a
// tdmrep.json, which alone may give an error.
func compile(text []byte, d robots.Dialect) (c *compiled, err error) {
	if len(text) >= largeText {
		compiling <- struct{}{}
		defer func() { <-compiling }()
	}
	c = &compiled{dialect: d}
	if d == tdmrep.Dialect() {
		c.tdmrep, err = tdmrep.Parse(text)
	} else {
		c.file = robots.ParseString(unsafe.String(unsafe.SliceData(text), len(text)), d) // without a copy
	}
	return c, err
}

// TDMRep returns the tdmrep.json of an origin: the file that the Fetcher of a Cache must fetch if
// its entries are read under [tdmrep.Dialect].
func TDMRep() fetch.File {
	return fetch.File{Path: tdmrep.Path, Accept: "application/json, */*;q=0.1", Check: func(body []byte) error {
		_, err := compile(body, tdmrep.Dialect())
		return err
	}}
}
