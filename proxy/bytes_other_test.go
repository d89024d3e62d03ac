//go:build !linux

package proxy_test

import "testing"

// redirected returns nil: connections can be redirected on Linux only.
func (r *rig) redirected(*testing.T, string) func(method, target, body string) string { return nil }
