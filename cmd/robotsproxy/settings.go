package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/config"
)

// configFlags are the flags of every command that reads configuration or state.
type configFlags struct {
	file, state string
	flags       *pflag.FlagSet // tells an empty -c from none
}

func (f *configFlags) add(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.StringVarP(&f.file, "config", "c", "", "configuration `FILE` (without one: the defaults)")
	f.flags.StringVar(&f.state, "state", "", "state `DIR`, instead of the configuration's state_dir")
}

// load reads the configuration and lays the flags over it.
func (f *configFlags) load() (config.Config, error) {
	cfg := config.Default()
	if f.file != "" {
		var err error
		if cfg, err = config.Load(f.file); err != nil {
			return config.Config{}, err
		}
	} else if f.flags != nil && f.flags.Changed("config") {
		// An unset variable of a script must not put the defaults in force.
		return config.Config{}, usageErrorf("-c: the name of the file is empty")
	}
	if f.state != "" {
		cfg.StateDir = f.state
	}
	return cfg, nil
}

// rereadable is the file, if it can be read again as often as it is to be; what a pipe
// gives (-c <(…), -c /dev/stdin) is read once.
func (f *configFlags) rereadable() string {
	if info, err := os.Stat(f.file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return f.file
}

// stateDir is the state directory, made where there is none, open to its owner alone.
func stateDir(cfg config.Config) (string, error) {
	dir, err := cfg.State(os.Getenv)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("state directory: %w", err)
	case info.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("state directory: others may write to %s (mode %04o), and so replace the CA in it: chmod 700 it", dir, info.Mode().Perm())
	}
	return dir, nil
}

// What stands in the state directory, and in that of a run.
const (
	auditName     = "audit.jsonl"
	snapshotsName = "snapshots"
	keyName       = "audit.key" // of the hashes of clients
)

// newLogger is what the proxy says of itself, as the configuration wants it; by
// level it may say more or less later.
func newLogger(l config.Log, w io.Writer, level *slog.LevelVar) *slog.Logger {
	level.Set(levelOf(l))
	o := slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, &o))
	}
	return slog.New(slog.NewTextHandler(w, &o))
}

func levelOf(l config.Log) (level slog.Level) {
	level.UnmarshalText([]byte(l.Level)) // config has checked it
	return level
}
