//go:build !linux

package runner

// watchDirect sees no connections on this system.
func watchDirect(*child, string) (stop func() *directConns) {
	return func() *directConns { return nil }
}
