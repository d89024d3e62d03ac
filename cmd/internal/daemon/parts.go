//go:build !bare

package daemon

import (
	"log/slog"
)

// without says whether a part of the proxy is left out: none ever is, but in the build
// that measures what each costs (bare.go).
func without(string) bool { return false }

func tellWithout(*slog.Logger) {}
