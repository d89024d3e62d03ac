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
	// WARC-Record-ID.
	ID string

	// WARC-Target-URI.
	URI string

	// WARC-Date.
	Date string

	// Name of the file.
	File string
}

// An Index finds the records that have a payload. It survives the process. Any number of goroutines may
// share it.
type Index interface {
	Find(Digest) (of Original, ok bool)
	// In one commit.
	Add(map[Digest]Original) error
	// Removes the entries of a file.
	Remove(file string) error
}

// maxPendingPayloads is how many payloads are not in the Index yet. Further ones are not remembered.
const maxPendingPayloads = 1 << 16

// payloads are the payloads of an Archive: those of the Index, and those that are not written to it yet.
type payloads struct {
	stored Index

	// Held while stored changes; taken before mu.
	commit sync.Mutex

	// Guards what follows.
	mu sync.Mutex

	// Since the last take.
	pending map[Digest]Original

	// That store writes; its entries change only with commit locked too.
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
	// Else store might add them afterwards.
	p.commit.Lock()
	defer p.commit.Unlock()
	ofFile := func(_ Digest, of Original) bool { return of.File == file }
	p.mu.Lock()
	maps.DeleteFunc(p.pending, ofFile)
	maps.DeleteFunc(p.storing, ofFile)
	p.mu.Unlock()
	return p.stored.Remove(file)
}
