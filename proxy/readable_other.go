//go:build !unix

package proxy

import "io"

// awaitReadable waits for nothing: the read that follows does.
func awaitReadable(io.Reader) error { return nil }
