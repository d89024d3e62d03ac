package archive

import (
	"crypto/sha256"
	"maps"
	"sync"
)

// A Digest is the SHA-256 of a payload.
type Digest [sha256.Size]byte

// An Original is the record that has a payload, to which revisit records refer.
type Original struct {
	// ID, URI and Date are the record's WARC-Record-ID, WARC-Target-URI and WARC-Date.
	ID   string
	URI  string
	Date string

	// File is the name of the file that has the record.
	File string
}

// An Index finds the records that have a payload. It survives the process. Any number of goroutines may
// share it.
type Index interface {
	// Find returns the record that has a payload.
	Find(Digest) (of Original, ok bool)
	// Add adds entries in one commit.
	Add(map[Digest]Original) error
	// Remove removes the entries of a file.
	Remove(file string) error
}

// maxPendingPayloads is how many payloads may wait for the Index. Further ones are forgotten.
const maxPendingPayloads = 1 << 16

// payloads are the payloads of an Archive: those in the Index, and those that are not written to it yet.
type payloads struct {
	stored Index

	// commit is held while stored changes. It is taken before mu.
	commit sync.Mutex

	// mu guards the fields below.
	mu sync.Mutex

	// pending has the entries that were added since the last take.
	pending map[Digest]Original

	// storing has the entries that store writes. They change only while commit is locked too.
	storing map[Digest]Original
}

func (p *payloads) find(d Digest) (Original, bool) {
	p.mu.Lock()
	of, ok := p.pending[d]
	if !ok {
		of, ok = p.storing[d]
	}
	p.mu.Unlock()
	if ok {
		return of, true
	}
	return p.stored.Find(d)
}

func (p *payloads) add(d Digest, of Original) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending == nil {
		p.pending = make(map[Digest]Original)
	}
	if len(p.pending) < maxPendingPayloads {
		p.pending[d] = of
	}
}

// take returns the pending entries, for store.
func (p *payloads) take() map[Digest]Original {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storing, p.pending = p.pending, nil
	return p.storing
}

// store writes entries to the Index.
func (p *payloads) store(all map[Digest]Original) error {
	p.commit.Lock()
	defer p.commit.Unlock()
	defer func() {
		p.mu.Lock()
		p.storing = nil
		p.mu.Unlock()
	}()
	if len(all) == 0 {
		return nil
	}
	return p.stored.Add(all)
}

// remove removes the entries of a file.
func (p *payloads) remove(file string) error {
	// Without the lock, store might add the entries afterwards.
	p.commit.Lock()
	defer p.commit.Unlock()
	ofFile := func(_ Digest, of Original) bool { return of.File == file }
	p.mu.Lock()
	maps.DeleteFunc(p.pending, ofFile)
	maps.DeleteFunc(p.storing, ofFile)
	p.mu.Unlock()
	return p.stored.Remove(file)
}
