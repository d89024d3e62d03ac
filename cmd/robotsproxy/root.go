package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	exitFailure = 1
	exitUsage   = 2
	exitSignal  = 128 // and the number of the signal that ended it, as shells have it
)

// execute runs a command with its arguments, reports what failed, and gives the exit status.
func execute(ctx context.Context, root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
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
	status, said := exitStatus(err)
	if !said {
		report(errOut, err)
	}
	return status
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "robotsproxy",
		Short: "A proxy that makes scrapers keep to robots.txt and to a polite pace",
		Long: `A forward proxy that makes the scrapers behind it keep to robots.txt and to a
polite pace, without a change to them, and records what it decided and why.`,
		Example: `  robotsproxy run -- scrapy crawl books
  robotsproxy serve -c robotsproxy.yaml
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/
  robotsproxy check -A 'FooBot/1.0' https://example.com/private`,
		Version: ownVersion(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultVersionFlag() // --version and -v, as the command version
	root.AddCommand(serveCommand(), runCommand(), checkCommand(), caCommand(), auditCommand(), configCommand(), healthCommand(), doctorCommand(), versionCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	// A command of commands answers for a missing or unknown one itself, which
	// makes it runnable to cobra; its usage still wants a command.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	return root
}

// usageError is a command line that cannot be meant: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError is an exit status of which all has been said.
type exitError int

func (e exitError) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// statusError is an error that ends the process with a status of its own.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// exitStatus is the status that err ends the process with, and whether it is already explained.
func exitStatus(err error) (status int, said bool) {
	if err == nil {
		return 0, true
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return int(e), true
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status, false
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage, false
	}
	return exitFailure, false
}

// strict makes what is wrong with the command line of cmd, and of all below
// it, a usageError of one line.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageErrorf("%w (see %s --help)", flagError(err), c.CommandPath())
	})
	completeFiles(cmd)
	if cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = unknownCommand
	} else if accept := cmd.Args; accept != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := accept(c, args); err != nil {
				return usageErrorf("%w (see %s --help)", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// flagError says of a flag's invalid value what is allowed, without the words of strconv.
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

// unknownCommand is what a command of commands does by itself: it says what it wants.
func unknownCommand(cmd *cobra.Command, args []string) error {
	why := "no command given"
	if len(args) > 0 {
		why = fmt.Sprintf("unknown command %q", args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			why += fmt.Sprintf(", did you mean %s?", strings.Join(near, " or "))
		}
	}
	return usageErrorf("%s (see %s --help)", why, cmd.CommandPath())
}

// noArgs is cobra.NoArgs without its talk of commands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("no arguments are taken, %q is one", args[0])
	}
	return nil
}

// oneOf is a choice in words.
func oneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// report says err on w, each of its lines behind the program's name.
func report(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(w, "robotsproxy:", harmless(line))
	}
}

// harmless escapes what could move the cursor or hide a part of a line; a
// stranger's string may have got into a message.
func harmless(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

// printable gives a stranger's string as it is where it is harmless, else quoted.
func printable(s string) string {
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
