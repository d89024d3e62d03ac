package config

import (
	"errors"
	"path/filepath"
)

// State is the absolute path of the state directory: state_dir, else
// robotsproxy in the XDG state home. It does not look whether it is there.
func (c Config) State(getenv func(string) string) (string, error) {
	if c.StateDir != "" {
		return filepath.Abs(c.StateDir)
	}
	// The XDG base directory specification: a relative path there is to be ignored.
	if home := getenv("XDG_STATE_HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, "robotsproxy"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Abs(filepath.Join(home, ".local", "state", "robotsproxy"))
	}
	return "", errors.New("no place for the state: neither XDG_STATE_HOME nor HOME is set (name one with state_dir or --state)")
}
