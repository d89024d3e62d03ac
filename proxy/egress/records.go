package egress

// records follow where those of TLS begin and end (RFC 8446 5.1) in what is read:
// of the octets of half a record crypto/tls says nothing.
type records struct {
	head [5]byte // of the one that comes
	have int     // octets of head that are there
	left int     // octets of its content that are not
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
		}
	}
}

// between says whether the last record that came is whole.
func (r *records) between() bool { return r.have == 0 && r.left == 0 }
