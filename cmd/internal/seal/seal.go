// Package seal puts a checksum and an expiry before bytes that are kept on a disk. The checksum finds damage of
// the disk, not forgery. Any number of goroutines may use the package.
package seal

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A Value is sealed bytes: a checksum of their key and of the rest, their expiry in seconds since 1970, and the
// bytes.
type Value []byte

// Bytes is how many bytes a Value has before those that were sealed.
const Bytes = 4 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// New returns text, which expires at until, as the Value of key.
func New(key string, text []byte, until time.Time) Value {
	v := make(Value, Bytes, Bytes+len(text))
	binary.BigEndian.PutUint64(v[4:], uint64(until.Unix()))
	v = append(v, text...)
	binary.BigEndian.PutUint32(v, v.sum(key))
	return v
}

func (v Value) sum(key string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, v[4:])
}

// IsWhole reports whether v is unchanged since New returned it for key.
func (v Value) IsWhole(key string) bool {
	return len(v) >= Bytes && binary.BigEndian.Uint32(v) == v.sum(key)
}

// Until returns the expiry in seconds since 1970. v must have at least Bytes bytes.
func (v Value) Until() int64 { return int64(binary.BigEndian.Uint64(v[4:])) }

// Current returns a copy of the bytes that were sealed; nil if they have expired, or if v is nil.
func (v Value) Current(now time.Time) []byte {
	if v == nil || v.Until() <= now.Unix() {
		return nil
	}
	return append([]byte{}, v[Bytes:]...)
}
