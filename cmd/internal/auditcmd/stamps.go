package auditcmd

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/audit/tsa"
)

// A stampCheck compares the time-stamps over anchors of an audit with its lines. Earlier versions got them.
type stampCheck struct {
	// roots are the certificates of trusted authorities; nil: the signatures are not verified.
	roots *x509.CertPool

	// part reports that the lines are those of one closed file: later ones are in other files.
	part bool
	all  []tsa.Response

	// lines has the hashes of the stamped lines by their seq; zero: the line is not there.
	lines map[uint64]trail.Hash

	// Count is the number of time-stamps of lines that are there. Newest is the line of the last of them, at its time.
	Count  int
	Newest trail.Anchor
	At     time.Time
}

// Trusted reports whether the signatures are verified.
func (c *stampCheck) Trusted() bool { return c.roots != nil }

// read reads the names of the time-stamps in dir.
func (c *stampCheck) read(dir string) (err error) {
	all, err := tsa.List(dir)
	c.all = slices.DeleteFunc(all, func(r tsa.Response) bool { return r.Anchor.Seq == 0 })
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
		at, err := tsa.Verify(response, r.Text, c.roots)
		switch seq := r.Anchor.Seq; {
		case err != nil && (c.roots != nil || !errors.Is(err, tsa.ErrUntrusted)):
			return fmt.Errorf("%s: %w", r.Path, err)
		case seq < res.First:
			continue
		case seq > res.Last.Seq:
			return fmt.Errorf("%s: seq %d got a time-stamp at %s, but is missing: the end was cut off, or another audit is in its place",
				r.Path, seq, day(at))
		case !r.Anchor.Matches(c.lines[seq]):
			return fmt.Errorf("%s: seq %d is not the line that got a time-stamp at %s", r.Path, seq, day(at))
		default:
			c.Count++
			c.Newest, c.At = r.Anchor, at
		}
	}
	return nil
}
