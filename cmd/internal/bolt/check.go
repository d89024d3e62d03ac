package bolt

import (
	"encoding/binary"
	"os"

	"go.etcd.io/bbolt"
)

// The layout of a branch page, in the machine's own byte order: a header and then the elements, each of
// which ends with the number of a page.
const (
	pageHead      = 16
	branchElement = 16

	// childAt is where an element has the number of a page.
	childAt = 8
)

// check reports why db must not be used. bbolt follows page numbers: a page that refers to itself,
// that covers a billion others, that is used twice, or that is both used and free (and so may come
// to refer to itself) makes it loop for ever or until memory is full. Unlike from its panics there
// is no recovery from that, and every start would run into it again. Other damage is found by bbolt
// itself or by the checksums of the values.
func check(db *bbolt.DB, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return damage("%d of %d bytes", info.Size(), tx.Size())
		}
		size := int64(db.Info().PageSize)
		c := checker{tx: tx, file: file, pageSize: size, taken: make([]bool, tx.Size()/size)}
		if err := c.free(db.Stats().FreePageN); err != nil {
			return err
		}
		if err := c.tree(uint64(tx.Cursor().Bucket().Root())); err != nil {
			return err
		}
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			// A key that is no bucket has none, and a bucket stored within the page has no root.
			if b == nil || b.Root() == 0 {
				return nil
			}
			return c.tree(uint64(b.Root()))
		})
	})
}

type checker struct {
	tx       *bbolt.Tx
	file     *os.File
	pageSize int64

	// taken says of each page whether it is free or was seen.
	taken []bool
}

// free marks the free pages. There must be n: otherwise one is listed twice, or beyond the end.
func (c *checker) free(n int) error {
	for id := range c.taken {
		p, err := c.tx.Page(id)
		if err != nil {
			return err
		}
		if c.taken[id] = p.Type == "free"; c.taken[id] {
			n--
		}
	}
	if n != 0 {
		return damage("%d free pages too many", n)
	}
	return nil
}

// tree marks a page and all pages below it.
func (c *checker) tree(id uint64) error {
	if id >= uint64(len(c.taken)) {
		return damage("page %d is beyond the end", id)
	}
	p, err := c.tx.Page(int(id))
	if err != nil {
		return err
	}
	end := id + 1 + uint64(p.OverflowCount)
	if end > uint64(len(c.taken)) {
		return damage("page %d continues beyond the end", id)
	}
	for i := id; i < end; i++ {
		if c.taken[i] {
			return damage("page %d is in use twice", i)
		}
		c.taken[i] = true
	}
	switch p.Type {
	case "leaf":
		return nil
	case "branch":
	default:
		return damage("page %d is neither branch nor leaf", id)
	}
	elements := make([]byte, p.Count*branchElement)
	if _, err := c.file.ReadAt(elements, int64(id)*c.pageSize+pageHead); err != nil {
		return damage("page %d: %v", id, err)
	}
	for ; len(elements) > 0; elements = elements[branchElement:] {
		if err := c.tree(binary.NativeEndian.Uint64(elements[childAt:])); err != nil {
			return err
		}
	}
	return nil
}
