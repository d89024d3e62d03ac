// Package cli has what all commands share: the flags for configuration and state, usage errors and exit statuses, shell completion,
// and text for terminals.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/policy/explain/humanize"
)

// These are the exit statuses that all commands have.
const (
	ExitFailure = 1
	ExitUsage   = 2

	// The number of the signal that ended the command is added to ExitSignal, as shells do.
	ExitSignal = 128
)

// Execute runs a command with its arguments, reports its error, and returns the exit status.
func Execute(ctx context.Context, root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	strict(root)
	root.SilenceUsage, root.SilenceErrors = true, true
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		plainUsage(root)
	}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	status, said := ExitStatus(err)
	if !said {
		Report(errOut, err)
	}
	return status
}

// An ExitError is an exit status that needs no message.
type ExitError int

func (e ExitError) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// A StatusError is an error that ends the process with its own status.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string { return e.Err.Error() }

func (e *StatusError) Unwrap() error { return e.Err }

// UsageErrorf returns the error of an invalid command line: exit status 2.
func UsageErrorf(format string, args ...any) error {
	return &StatusError{Status: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// ExitStatus returns the status with which err ends the process, and whether it needs no further message.
func ExitStatus(err error) (status int, said bool) {
	if err == nil {
		return 0, true
	}
	if e, ok := errors.AsType[ExitError](err); ok {
		return int(e), true
	}
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status, false
	}
	return ExitFailure, false
}

// strict makes what is wrong with the command line of cmd, and of all commands below it, a usage error of one line.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return UsageErrorf("%w (see %s --help)", flagError(err), c.CommandPath())
	})
	completeFiles(cmd)
	if cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = unknownCommand
	} else if accept := cmd.Args; accept != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := accept(c, args)
			if len(args) > 0 && isConfigFile(c, args[0]) {
				err = fmt.Errorf("no file allowed as an argument, got %q: did you mean -c %s?", args[0], ShellQuote(args[0]))
			}
			if err != nil {
				return UsageErrorf("%w (see %s --help)", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// isConfigFile reports whether an argument of cmd is a file that was probably meant as the value of -c, which is missing: any file
// if cmd has no arguments, else a YAML file that is no program.
func isConfigFile(cmd *cobra.Command, name string) bool {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || cmd.Flags().Lookup("config") == nil || cmd.Flags().Changed("config") {
		return false
	}
	ext := strings.ToLower(filepath.Ext(name))
	return cmd.Use == cmd.Name() || (ext == ".yaml" || ext == ".yml") && info.Mode()&0o111 == 0
}

// flagError returns an error about a flag's invalid value that says what is allowed.
func flagError(err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	why := bad.Unwrap().Error()
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		why = "must be a whole number"
		if bad.GetFlag().Value.Type() == "bool" {
			why = "must be true or false"
		}
	}
	return fmt.Errorf("--%s: %s, got %q", bad.GetFlag().Name, why, bad.GetValue())
}

// unknownCommand is the action of a command that has only subcommands. It fails with what is missing.
func unknownCommand(cmd *cobra.Command, args []string) error {
	why := "no command given"
	if len(args) > 0 {
		why = fmt.Sprintf("unknown command %q", args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			why += fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
		} else if !cmd.HasParent() && config.IsRegular(args[0]) {
			why += fmt.Sprintf(", did you mean serve -c %s?", ShellQuote(args[0]))
		}
	}
	return UsageErrorf("%s (see %s --help)", why, cmd.CommandPath())
}

// NoArgs is cobra.NoArgs with a message that does not mention commands.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("no arguments allowed, got %q", args[0])
	}
	return nil
}

// Report prints err on w, each line prefixed with the program's name.
func Report(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "robotsproxy:", humanize.Escape(line))
	}
}
