package proxy

import (
	"sync"

	"robotsproxy/policy/pace"
)

// A flow says how far the two bodies of a request are. The goroutine that serves the request, the one
// that sends its body, the watch and the Pacer meet here; mu guards all fields.
type flow struct {
	mu sync.Mutex
	flowState
}

// A flowState is the state of a flow.
type flowState struct {
	// passed is the number of bytes of both bodies so far.
	passed int64

	// reading says that a read of the client's body is in progress.
	reading bool

	// writing says that the response is being sent, and sending that a write of it to the client is in progress.
	writing bool
	sending bool

	// upload says how the client's body ended.
	upload uploadEnd

	// failure is why the client's body ended early; nil: it did not.
	failure error
}

// An uploadEnd says how the client's body ended. What comes first stays.
type uploadEnd uint8

const (
	uploadOpen uploadEnd = iota
	uploadComplete
	// uploadAbandoned: the proxy has ended the reads of the body.
	uploadAbandoned
)

// beginRead and endRead enclose a read of the client's body, which returned n bytes.
func (f *flow) beginRead()    { f.step(&f.reading, true, 0) }
func (f *flow) endRead(n int) { f.step(&f.reading, false, n) }

// beginSend and endSend enclose a write to the client, which took n bytes.
func (f *flow) beginSend()    { f.step(&f.sending, true, 0) }
func (f *flow) endSend(n int) { f.step(&f.sending, false, n) }

func (f *flow) step(what *bool, value bool, n int) {
	f.mu.Lock()
	*what = value
	f.passed += int64(n)
	f.mu.Unlock()
}

// setWriting notes whether the response is being sent.
func (f *flow) setWriting(writing bool) { f.step(&f.writing, writing, 0) }

// progress returns the number of bytes so far, and whom the bodies wait for.
func (f *flow) progress() (bytes int64, waits pace.Party) {
	now := f.now()
	switch {
	case now.sending:
		waits = pace.Reader
	case now.reading:
		waits = pace.Uploader
	}
	return now.passed, waits
}

// endUpload notes how the client's body ended, and reports whether it had not ended before.
func (f *flow) endUpload(how uploadEnd) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.upload != uploadOpen {
		return false
	}
	f.upload = how
	return true
}

// uploaded reports whether the client's body was read to its end.
func (f *flow) uploaded() bool { return f.now().upload == uploadComplete }

// failUpload notes why the client's body ended early. If onlyRead is set, it does so only while a read of the
// body is in progress.
func (f *flow) failUpload(err error, onlyRead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reading || !onlyRead {
		f.failure = err
	}
}

// now returns the present state.
func (f *flow) now() flowState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flowState
}
