package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"robotsproxy/cmd/internal/seal"
)

// Entries are cut into chunks. bbolt rewrites each page that it changes, gives a value
// that is longer than a page several pages in a row, and puts at least two keys on a
// page. With a few large values, a small change would write megabytes, and the free
// pages would soon be too scattered for the next large value. The first chunk has the
// entry's key; the others have that key, a zero byte, and their number. Entries of older
// versions are one chunk of any length.
const (
	// chunkRoom is the length of a chunk with its key, in bytes: two fit on a page.
	chunkRoom = 2024

	// chunkMark is a byte that no origin has.
	chunkMark = 0
)

// chunkKey returns the key of the nth chunk of an entry.
func chunkKey(key []byte, n int) []byte {
	if n == 0 {
		return key
	}
	key = append(bytes.Clone(key), chunkMark)
	return binary.BigEndian.AppendUint32(key, uint32(n))
}

// isChunk reports whether a key is that of a chunk after the first.
func isChunk(key []byte) bool { return bytes.IndexByte(key, chunkMark) >= 0 }

// getEntry returns the value of an entry, valid as long as b; nil: there is none.
func getEntry(b *bbolt.Bucket, key []byte) seal.Value {
	value := b.Get(key)
	if value == nil {
		return nil
	}
	// With this capacity, append copies the value.
	value = value[:len(value):len(value)]
	for n := 1; ; n++ {
		chunk := b.Get(chunkKey(key, n))
		if chunk == nil {
			return value
		}
		value = append(value, chunk...)
	}
}

// putEntry replaces the value of an entry.
func putEntry(b *bbolt.Bucket, key []byte, value seal.Value) error {
	n := 0
	for ; n == 0 || len(value) > 0; n++ {
		k := chunkKey(key, n)
		end := min(max(chunkRoom-len(k), chunkRoom/2), len(value))
		if err := b.Put(k, value[:end]); err != nil {
			return err
		}
		value = value[end:]
	}
	return dropChunks(b, key, n)
}

// dropChunks removes the chunks of an entry from the nth on.
func dropChunks(b *bbolt.Bucket, key []byte, n int) error {
	for {
		k := chunkKey(key, n)
		if b.Get(k) == nil {
			return nil
		}
		if err := b.Delete(k); err != nil {
			return err
		}
		n++
	}
}

// The buckets of a file, and the keys of the first. Values of the others are sealed.
var (
	// metaBucket has the values of the keys below. Only that of auditKey is sealed.
	metaBucket = []byte("meta")

	// robotsBucket has the entries of robots.txt by origin, and those of tdmrep.json by tdmrepPrefix and origin.
	robotsBucket = []byte("robots")

	// clocksBucket has the clocks as JSON, by the key of their Limits.
	clocksBucket = []byte("clocks")

	// stopsBucket has what SaveStops got, by its keys. Files of earlier versions lack it.
	stopsBucket = []byte("stops")

	// usesBucket has what SaveUse got.
	usesBucket = []byte("uses")

	// tables are the buckets with at most Options.MaxClocks values, which are kept until they expire.
	tables = [tableCount][]byte{clockTable: clocksBucket, useTable: usesBucket}

	formatKey = []byte("format")

	// auditKey has the AuditEnd as JSON.
	auditKey = []byte("audit")

	// endKey has Store.Since, marshaled. It is there while no process has the file open, if the last one called Close.
	endKey = []byte("end")

	format = []byte("robotsproxy 1")
)

// The positions in tables.
const (
	clockTable = iota
	useTable
	tableCount
)

// errDamaged means that a file is damaged or was written by another program.
var errDamaged = errors.New("damaged")

func damage(what string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(what, args...))
}
