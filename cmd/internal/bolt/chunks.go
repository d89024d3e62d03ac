package bolt

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"
)

// Entries are cut into chunks. bbolt writes each page anew that it changes, gives a
// value that is longer than a page several in a row, and puts two keys at least on a
// page: a few large values would have small ones write megabytes, and what is free
// would soon be too scattered for them. The first chunk has the entry's key, the
// others that, a zero octet, and their number. Entries of older versions are whole.
const (
	// chunkRoom is the length of a chunk with its key, two of which fit on a page.
	chunkRoom = 2024

	chunkMark = 0 // no origin has it
)

// chunkKey is the key of the nth chunk of an entry.
func chunkKey(key []byte, n int) []byte {
	if n == 0 {
		return key
	}
	key = append(bytes.Clone(key), chunkMark)
	return binary.BigEndian.AppendUint32(key, uint32(n))
}

// isChunk says whether a key is of another chunk than the first.
func isChunk(key []byte) bool { return bytes.IndexByte(key, chunkMark) >= 0 }

// getEntry gives the value of an entry, which is good for as long as b; nil: there is none.
func getEntry(b *bbolt.Bucket, key []byte) sealed {
	value := b.Get(key)
	if value == nil {
		return nil
	}
	value = value[:len(value):len(value)] // so that append copies it
	for n := 1; ; n++ {
		chunk := b.Get(chunkKey(key, n))
		if chunk == nil {
			return value
		}
		value = append(value, chunk...)
	}
}

// putEntry puts the value of an entry in place of the one before.
func putEntry(b *bbolt.Bucket, key []byte, value sealed) error {
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

// dropChunks takes the chunks of an entry out, from the nth on.
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
