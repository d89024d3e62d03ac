package auditcmd

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tsa"
	"robotsproxy/policy/explain/humanize"
)

// A stampCheck compares the time-stamps of an audit with its lines.
type stampCheck struct {
	// nil: the signatures are not verified.
	roots *x509.CertPool

	// The lines are those of one closed file: later ones are in other files.
	part bool
	all  []tsa.Response

	// Of the lines that were stamped and are there, by their seq.
	lines map[uint64]trail.Hash

	// Time-stamps of lines that are there.
	count  int
	newest trail.Anchor

	// Of newest.
	at time.Time
}

// read reads the names of the time-stamps in dir.
func (c *stampCheck) read(dir string) (err error) {
	c.all, err = tsa.List(dir)
	c.lines = make(map[uint64]trail.Hash, len(c.all))
	for _, r := range c.all {
		c.lines[r.Anchor.Seq] = trail.Hash{}
	}
	return err
}

// add adds a line of the audit, which was verified.
func (c *stampCheck) add(l trail.Link) {
	if _, stamped := c.lines[l.Seq]; stamped {
		c.lines[l.Seq] = l.Hash
	}
}

// compare compares the time-stamps with the lines from res.First on. The error is the first fault.
func (c *stampCheck) compare(res *trail.Result) error {
	for _, r := range c.all {
		if c.part && r.Anchor.Seq > res.Last.Seq {
			continue
		}
		response, err := os.ReadFile(r.Path)
		if err != nil {
			return err
		}
		at, err := tsa.Verify(response, r.Anchor, c.roots)
		switch seq := r.Anchor.Seq; {
		case err != nil && (c.roots != nil || !errors.Is(err, tsa.ErrUntrusted)):
			return fmt.Errorf("%s: %w", r.Path, err)
		case seq < res.First:
			continue
		case seq > res.Last.Seq:
			return fmt.Errorf("%s: seq %d got a time-stamp at %s, but is missing: the end was cut off, or another audit is in its place", r.Path, seq, day(at))
		case !r.Anchor.Matches(c.lines[seq]):
			return fmt.Errorf("%s: seq %d is not the line that got a time-stamp at %s", r.Path, seq, day(at))
		default:
			c.count++
			c.newest, c.at = r.Anchor, at
		}
	}
	return nil
}

// trusts reports whether a time-stamp proves that a line was there.
func (c *stampCheck) trusts() bool { return c.count > 0 && c.roots != nil }

// text describes the time-stamps; "": there are none, and nobody asked for them.
func (c *stampCheck) text() string {
	switch {
	case c.count == 0 && c.roots == nil:
		return ""
	case c.count == 0:
		return "none of these lines has a time-stamp"
	case c.roots == nil:
		return fmt.Sprintf("%s, signatures not verified: name the certificates of the authority with --tsa-ca", humanize.Count(c.count, "time-stamp"))
	}
	return fmt.Sprintf("%s, the newest of %s for seq %d: no line up to there was cut off or rewritten since",
		humanize.Count(c.count, "time-stamp"), day(c.at), c.newest.Seq)
}
