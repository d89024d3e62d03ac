package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/osfile"
)

// Args returns the flags as another command needs them, each after a space, with absolute paths.
func (f *ConfigFlags) Args() string {
	var b strings.Builder
	for _, flag := range []struct{ name, value string }{{"-c", f.File}, {"--state", f.State}} {
		// The other command cannot read the same standard input.
		if flag.value == "" || flag.value == "-" {
			continue
		}
		if abs, err := filepath.Abs(flag.value); err == nil {
			flag.value = abs
		}
		b.WriteString(" " + flag.name + " " + ShellQuote(flag.value))
	}
	return b.String()
}

// ConfigFlags are the flags of every command that reads configuration or state.
type ConfigFlags struct {
	File, State string

	// Flags tells an empty value from none.
	Flags *pflag.FlagSet
}

// Add defines the flags of cmd.
func (f *ConfigFlags) Add(cmd *cobra.Command) {
	f.Flags = cmd.Flags()
	f.Flags.StringVarP(&f.File, "config", "c", "",
		"configuration `FILE`; - is standard input (default: no file, every key has its default)")
	f.Flags.StringVar(&f.State, "state", "", "state `DIR`, in place of state_dir in the configuration")
}

// RunE returns the action of a command that reads the configuration first.
func (f *ConfigFlags) RunE(run func(*cobra.Command, config.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cfg, err := f.Load()
		if err != nil {
			return err
		}
		return run(cmd, cfg)
	}
}

// Load reads the configuration and applies the flags to it.
func (f *ConfigFlags) Load() (config.Config, error) {
	cfg := config.Default()
	if f.File != "" {
		var err error
		if cfg, err = config.Load(f.File); err != nil {
			return config.Config{}, err
		}
	} else if f.Flags != nil && f.Flags.Changed("config") {
		// An unset variable of a script must not select the defaults.
		return config.Config{}, UsageErrorf("-c: empty file name")
	}
	if f.State == "" && f.Flags != nil && f.Flags.Changed("state") {
		return config.Config{}, UsageErrorf("--state: empty directory name")
	}
	if f.State != "" {
		// config.Load makes the paths in a file absolute too.
		state, err := filepath.Abs(f.State)
		if err != nil {
			return config.Config{}, fmt.Errorf("--state: %w", err)
		}
		cfg.StateDir = state
	}
	return cfg, nil
}

// ReloadFile returns the file if it can be read again on a reload, else "". A pipe (-c <(…), -c /dev/stdin) can be read only once.
func (f *ConfigFlags) ReloadFile() string {
	if !config.IsRegular(f.File) {
		return ""
	}
	return f.File
}

// StateDir returns the state directory, and creates it with mode 0700 if there is none.
func StateDir(cfg config.Config) (string, error) {
	dir, err := cfg.State(os.Getenv)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	if mode := osfile.Perm(info); mode&0o022 != 0 {
		const why = "state directory: other users may write to %s (mode %04o), and could replace the CA in it: run chmod 700 on it"
		return "", fmt.Errorf(why, dir, mode)
	}
	return dir, nil
}

// These are the names in the state directory, and in that of a run.
const (
	AuditName     = "audit.jsonl"
	SnapshotsName = "snapshots"

	// KeyName is the key by which clients are hashed.
	KeyName = "audit.key"

	// RunsName is the directory of the directories of all runs.
	RunsName = "runs"
)

// NewLogger returns the proxy's own logger in the configured format. level is set to the configured level and may be changed later.
func NewLogger(l config.Log, w io.Writer, level *slog.LevelVar) *slog.Logger {
	level.Set(LevelOf(l))
	o := slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, &o))
	}
	return slog.New(slog.NewTextHandler(w, &o))
}

// LevelOf returns the configured log level.
func LevelOf(l config.Log) (level slog.Level) {
	// The configuration was checked, so the level is valid.
	level.UnmarshalText([]byte(l.Level))
	return level
}
