package tree

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"robotsproxy/policy/audit/trail"
)

// These are the errors of a Comparison.
var (
	// ErrLine is for a line whose leaf in the file is another one.
	ErrLine = errors.New("not the line in the tree")

	// ErrInner is for a file whose inner hashes do not follow from its leaves.
	ErrInner = errors.New("the tree does not fit its own leaves")
)

// A Comparison makes the tree of a trail again from its lines, and compares it with the file. Lines that are not there are
// taken from the file. It is for one goroutine.
type Comparison struct {
	first uint64
	edge  edge

	// file has the stored hashes from the next leaf on, of left leaves; nil: there is no file.
	file *bufio.Reader
	left int64

	// made and stored are buffers.
	made, stored []byte
}

// Compare returns a Comparison with a tree, which must stay open.
func (t *Tree) Compare() *Comparison {
	file := io.NewSectionReader(t.file, int64(headerSize), tlog.StoredHashCount(t.Size())*tlog.HashSize)
	return &Comparison{first: t.first, file: bufio.NewReaderSize(file, 64<<10), left: t.Size()}
}

// NewComparison returns a Comparison without a file. first is the number of the line that is the first leaf.
func NewComparison(first uint64) *Comparison { return &Comparison{first: first} }

// First returns the number of the line that is the first leaf.
func (c *Comparison) First() uint64 { return c.first }

// Next returns the number of the line that follows.
func (c *Comparison) Next() uint64 { return c.first + uint64(c.edge.size) }

// Add adds the line Next, given its hash. The error is ErrLine, ErrInner, or of the file.
func (c *Comparison) Add(h trail.Hash) error { return c.add(LeafHash(h)) }

// Skip adds the line Next as the file has it. The error is io.EOF if the file does not have it, ErrInner, or of the file. A
// file whose end has zeroes, as after a crash, ends there.
func (c *Comparison) Skip() error {
	if c.left == 0 {
		return io.EOF
	}
	leaf, err := c.file.Peek(tlog.HashSize)
	if err != nil {
		return err
	}
	if tlog.Hash(leaf) == (tlog.Hash{}) {
		c.left = 0
		return io.EOF
	}
	return c.add(tlog.Hash(leaf))
}

func (c *Comparison) add(leaf tlog.Hash) error {
	c.made = c.edge.add(leaf, c.made[:0])
	if c.left == 0 {
		return nil
	}
	c.left--
	c.stored = append(c.stored[:0], c.made...)
	if _, err := io.ReadFull(c.file, c.stored); err != nil {
		return err
	}
	for i := 0; i < len(c.made); i += tlog.HashSize {
		made, stored := c.made[i:i+tlog.HashSize], c.stored[i:i+tlog.HashSize]
		switch {
		case bytes.Equal(made, stored):
			continue
		case tlog.Hash(stored) == tlog.Hash{}:
			// A crash has left this part of the file without its content.
			c.left = 0
			return nil
		case i == 0:
			return ErrLine
		}
		return ErrInner
	}
	return nil
}

// Root returns the root of the tree of the lines so far.
func (c *Comparison) Root() tlog.Hash { return c.edge.root() }
