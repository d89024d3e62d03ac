package notary

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"robotsproxy/policy/audit/tsa"
	"robotsproxy/policy/osfile"
)

const (
	// lookDelay is the time between two looks whether a checkpoint is due.
	lookDelay = time.Second

	// maxRetry is the longest time from a failure to the next attempt.
	maxRetry = 10 * time.Minute

	// remindDelay is the time between two lines of the log about one failure.
	remindDelay = time.Hour

	// tsaTimeout bounds the wait for the response of the time-stamp authority.
	tsaTimeout = time.Minute
)

// A place writes checkpoints to one Place. One goroutine writes, and any number may read the state.
type place struct {
	n    *Notary
	name string

	// at returns the path or URL; "": nothing is written.
	at func(*Settings) string

	// every returns the time between two checkpoints.
	every func(*Settings) time.Duration

	// often also writes at the start, when a segment of the audit is full, and after Settings.Lines. always writes the
	// newest checkpoint again if there is no new line. atStop also writes when the audit is closed.
	often, always, atStop bool

	// newest returns when the newest checkpoint of this audit at a place was made; zero: unknown.
	newest func(at string) time.Time
	write  func(ctx context.Context, at string, c signed) error

	// limit bounds the making and writing of one.
	limit time.Duration
	disk  osfile.Watch

	// lastSeq is the last line of the checkpoint that was written last, and rotations those of the audit then.
	lastSeq, rotations uint64

	// retry is the time of the next attempt after a failed one; zero: the last attempt did not fail.
	retry time.Time

	// logged is when the log last had a line about a failure that lasts; zero: none lasts.
	logged time.Time

	// mu guards state.
	mu    sync.Mutex
	state Place
}

// newPlaces returns all places. The settings say which are used.
func (n *Notary) newPlaces() []*place {
	every := func(s *Settings) time.Duration { return s.Every }
	anchorEvery := func(s *Settings) time.Duration { return s.AnchorEvery }
	write := func(_ context.Context, file string, c signed) error { return appendNote(file, c.text) }
	all := []*place{
		// sign writes it.
		{n: n, name: "state", at: func(*Settings) string { return filepath.Join(n.o.Dir, CheckpointsName) },
			every: every, often: true, atStop: true,
			newest: n.newestIn, write: func(context.Context, string, signed) error { return nil }, limit: osfile.MaxSync},
		{n: n, name: "file", at: func(s *Settings) string { return s.File }, every: every, often: true, atStop: true,
			newest: n.newestIn, write: write, limit: osfile.MaxSync},
		{n: n, name: "anchor", at: func(s *Settings) string { return s.AnchorFile }, every: anchorEvery, atStop: true,
			newest: n.newestIn, write: write, limit: osfile.MaxSync},
		{n: n, name: "tsa", at: func(s *Settings) string { return s.TSA }, every: anchorEvery,
			newest: n.newestStamp, write: n.stamp, limit: tsaTimeout + osfile.MaxSync},
	}
	if n.o.Exchange != nil {
		all = append(all, &place{n: n, name: "store", at: func(*Settings) string { return storeAt },
			every: every, often: true, always: true,
			newest: func(string) time.Time { return time.Time{} }, write: n.exchange, limit: exchangeTimeout + osfile.MaxSync})
	}
	return all
}

// run writes the checkpoints that are due until ctx ends.
func (p *place) run(ctx context.Context) error {
	tick := time.NewTicker(lookDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			p.step(ctx, now)
		}
	}
}

// step writes a checkpoint if one is due. While an earlier attempt hangs, it does not.
func (p *place) step(ctx context.Context, now time.Time) {
	s := p.n.o.Settings()
	at := p.at(&s)
	if was := p.current(); at != was.At {
		p.begin(at, now)
	} else if was.Err != nil {
		p.remind(now, was.Err)
	}
	if at == "" || p.disk.Err() != nil || !p.isDue(&s, now) {
		return
	}
	p.attempt(ctx, &s, now)
}

// isDue reports whether there is a new line, and a checkpoint is due.
func (p *place) isDue(s *Settings, now time.Time) bool {
	stats, last := p.n.o.Audit.Stats(), p.current().Newest
	switch {
	case stats.Seq == p.lastSeq && !p.always, now.Before(p.retry):
		return false
	case !p.retry.IsZero(), now.Sub(last) >= p.every(s):
		return true
	}
	return p.often && (p.lastSeq == 0 || stats.Rotations != p.rotations || s.Lines > 0 && stats.Seq-p.lastSeq >= s.Lines)
}

// attempt makes a checkpoint and writes it.
func (p *place) attempt(ctx context.Context, s *Settings, now time.Time) {
	at, rotations := p.at(s), p.n.o.Audit.Stats().Rotations
	written := make(chan uint64, 1)
	lastSeq := p.lastSeq
	err := p.disk.Do(p.limit, func() error {
		c, err := p.n.sign()
		if err == nil && (c.Seq != lastSeq || p.always) {
			err = p.write(ctx, at, c)
		}
		written <- c.Seq
		return err
	})
	if err != nil {
		p.retry = now.Add(min(maxRetry, p.every(s)))
		p.setState(at, p.current().Newest, err)
		p.remind(now, err)
		return
	}
	p.rotations = rotations
	if p.lastSeq = <-written; p.lastSeq == lastSeq && !p.always {
		// The new lines are not on the disk yet.
		now = p.current().Newest
	}
	if !p.logged.IsZero() || !p.often {
		p.n.o.Log.Info("audit checkpoint written", "to", at, "seq", p.lastSeq)
	}
	p.retry, p.logged = time.Time{}, time.Time{}
	p.setState(at, now, nil)
}

// remind logs a failure that lasts, unless it was logged not long ago.
func (p *place) remind(now time.Time, err error) {
	if p.logged.IsZero() || now.Sub(p.logged) >= remindDelay {
		p.logged = now
		p.n.o.Log.Error("audit checkpoint overdue", "to", p.current().At, "newest", p.current().Newest, "error", err)
	}
}

// begin begins to write to another place.
func (p *place) begin(at string, now time.Time) {
	var last time.Time
	if at != "" {
		found := make(chan time.Time, 1)
		if p.disk.Do(osfile.MaxSync, func() error { found <- p.newest(at); return nil }) == nil {
			last = <-found
		}
	}
	if last.After(now) {
		// A clock was wrong when the checkpoint was made.
		last = time.Time{}
	}
	p.lastSeq, p.retry, p.logged = 0, time.Time{}, time.Time{}
	p.setState(at, last, nil)
}

// finish writes the last checkpoint.
func (p *place) finish() {
	s := p.n.o.Settings()
	if p.at(&s) != "" && p.n.o.Audit.Stats().Seq != p.lastSeq {
		p.attempt(context.Background(), &s, time.Now())
	}
}

func (p *place) setState(at string, newest time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = Place{p.name, at, newest, err}
}

func (p *place) current() Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// stamp gets a time-stamp over a checkpoint, and keeps it in the state directory.
func (n *Notary) stamp(ctx context.Context, url string, c signed) error {
	ctx, cancel := context.WithTimeout(ctx, tsaTimeout)
	defer cancel()
	for {
		client := n.o.Client()
		response, err := tsa.Request(ctx, client, url, c.text)
		switch {
		case err == nil:
			return tsa.Save(filepath.Join(n.o.Dir, StampsName), c.Seq, c.text, response)
		// If the client is another one now, a reload has closed the one that failed.
		case n.o.Client() == client:
			return err
		}
	}
}
