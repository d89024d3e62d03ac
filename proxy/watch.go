package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"robotsproxy/policy/pace"
)

var (
	// errSilent ends a transfer in which nothing has moved for too long.
	errSilent = errors.New("nothing was sent for too long")

	// errTooSlow ends a transfer that keeps other clients waiting, see [pace.Transfer].
	errTooSlow = errors.New("the transfer was too slow while others waited for the host")
)

// A watch ends a transfer in which nothing moves for longer than its limit, after at most
// twice that time. Each read and write counts moves up, which costs next to nothing; the
// alarm checks whether the count has changed.
type watch struct {
	limit  time.Duration
	spare  *sync.Pool // of stopped alarms; nil: none
	moves  atomic.Uint64
	silent atomic.Bool // the watch has ended the transfer
	slow   atomic.Bool // it was too slow; false: nothing moved
	paused atomic.Bool // the transfer waits for its turn, so nothing moves
	alarm  atomic.Pointer[alarm]
}

// An alarm is the timer of a watch. It is a struct of its own because the runtime may keep a
// stopped timer until its time has come: a stopped alarm must not lead to the request.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	watch *watch // nil: none
	seen  uint64
	what  transfer
}

// A transfer is what a watch ends.
type transfer interface {
	abandon() // called at most once; must not wait
}

// begin starts the watch of a transfer, until stop.
func (w *watch) begin(what transfer) {
	var a *alarm
	if w.spare != nil {
		a, _ = w.spare.Get().(*alarm)
	}
	if a == nil {
		a = new(alarm)
	}
	w.alarm.Store(a)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what, a.seen = w, what, w.moves.Load()
	if a.timer == nil {
		a.timer = time.AfterFunc(w.limit, a.check)
	} else {
		a.timer.Reset(w.limit)
	}
}

func (a *alarm) check() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch == nil {
		return
	}
	now := a.watch.moves.Load()
	if now != a.seen || a.watch.paused.Load() {
		a.seen = now
		a.timer.Reset(a.watch.limit)
		return
	}
	a.end()
}

// cut ends the transfer because it is too slow, unless it is not watched any more.
func (w *watch) cut() {
	a := w.alarm.Load()
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watch == w {
		w.slow.Store(true)
		a.end()
	}
}

// end ends the transfer. The caller holds a.mu.
func (a *alarm) end() {
	a.watch.silent.Store(true)
	a.what.abandon()
	a.watch, a.what = nil, nil
}

// cause gives why the watch has ended the transfer.
func (w *watch) cause() error {
	if w.slow.Load() {
		return errTooSlow
	}
	return errSilent
}

// stop ends the watch. The transfer is not abandoned after that.
func (w *watch) stop() {
	a := w.alarm.Swap(nil)
	if a == nil {
		return // stopped already
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch, a.what = nil, nil
	if a.timer.Stop() && w.spare != nil { // else check may be about to run
		w.spare.Put(a)
	}
}

// moved notes that something has moved.
func (w *watch) moved() { w.moves.Add(1) }

// abandon makes everything fail that waits for the client or the origin. A client that has
// no response yet can still be sent one.
func (x *exchange) abandon() {
	if x.reading.Load() {
		x.upload.Store(new(x.brokenBody(errSilent))) // the origin waits for the body too
	}
	if !x.uploaded.Load() { // else the deadline would end net/http's background read, and with it the connection
		http.NewResponseController(x.client).SetReadDeadline(longAgo) // it fails only if nothing waits
	}
	if x.writing.Load() {
		x.cutWrites()
	}
	if x.cancel != nil {
		x.cancel(x.watch.cause())
	}
}

// Progress implements [pace.Transfer].
func (x *exchange) Progress() (bytes int64, waits pace.Party) {
	switch {
	case x.sending.Load():
		waits = pace.Reader
	case x.reading.Load():
		waits = pace.Uploader
	}
	return x.passed.Load(), waits
}

// End implements [pace.Transfer].
func (x *exchange) End() { x.watch.cut() }

// brokenBody gives the error for a client's body that cannot be read because of err.
func (x *exchange) brokenBody(err error) error {
	if x.watch.slow.Load() {
		return fmt.Errorf("body: %w", errTooSlow) // the watch has set the body's deadline
	}
	return fmt.Errorf("%w: body: %w", errMalformed, err)
}

var longAgo = time.Unix(1, 0)

func (x *exchange) cutWrites() { http.NewResponseController(x.client).SetWriteDeadline(longAgo) }

// write notes that the client is being written to. If the watch has just ended the
// transfer, write ends the write as well.
func (x *exchange) write() {
	x.writing.Store(true)
	if x.watch.silent.Load() {
		x.cutWrites()
	}
}

// An originBody is the body of an origin's response. It keeps its error, which the pipeline
// does not return.
type originBody struct {
	io.ReadCloser
	x          *exchange
	response   *http.Response // its trailer is complete when the body has been read
	connection []string       // its Connection header
}

// Read reads from the origin.
func (b *originBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.x.watch.moved()
	if err != nil {
		stripTrailer(b.response.Trailer, b.connection)
	}
	if err != nil && err != io.EOF {
		b.x.fail(err)
	}
	return n, err
}

// A clientBody is the body of a client's request. It keeps its error, which is not the
// origin's.
type clientBody struct {
	io.ReadCloser
	x       *exchange
	trailer http.Header // of the request to the origin; its fields get their values when the body ends
}

// Read reads from the client.
func (b *clientBody) Read(p []byte) (int, error) {
	b.x.reading.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.x.reading.Store(false)
	b.x.passed.Add(int64(n))
	b.x.watch.moved()
	switch {
	case err == io.EOF:
		b.x.uploaded.Store(true)
		for name := range b.trailer {
			b.trailer[name] = b.x.request.Trailer[name]
		}
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.x.upload.Store(new(b.x.brokenBody(err)))
	}
	return n, err
}

// Close does nothing: net/http closes the body with the exchange. An earlier Close would
// wait for what the client has not sent.
func (b *clientBody) Close() error { return nil }
