package egress

// records follow where those of TLS begin and end (RFC 8446 5.1) in what is read:
// of the octets of half a record crypto/tls says nothing.
type records struct {
	head [5]byte // of the one that comes
	have int     // octets of head that are there
	left int     // octets of its content that are not
	size int     // bytes of the last record that has begun, head included
}

// smallReads bounds, in bytes, a read at the beginning of a record of unknown length. Most
// responses are shorter, and such a read has them whole.
const smallReads = 4 << 10

// most gives how many bytes to read at once, so that a read ends at the end of a long record.
// crypto/tls keeps its buffer as long as the connection, and doubles it, to 40 KiB, when a read
// has a part of one long record after another.
func (r *records) most() int {
	switch {
	case r.left > 0:
		return r.left
	case r.have > 0:
		return len(r.head) - r.have
	}
	return max(r.size, smallReads) // long records mostly follow others of their size
}

func (r *records) pass(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		n := copy(r.head[r.have:], b)
		b = b[n:]
		if r.have += n; r.have == len(r.head) {
			r.left = int(r.head[3])<<8 | int(r.head[4])
			r.have = 0
			r.size = len(r.head) + r.left
		}
	}
}

// between says whether the last record that came is whole.
func (r *records) between() bool { return r.have == 0 && r.left == 0 }
