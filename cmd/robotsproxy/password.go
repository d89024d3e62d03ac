package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy"
)

func passwordCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "password",
		Short: "Hash a client's password, for password_hash in the configuration",
		Long: `Read a password and print its bcrypt hash, for password_hash of an entry in clients. On
a terminal, the command asks for the password twice and does not show it. Otherwise it
reads one line from standard input.`,
		Example: `  robotsproxy password
  openssl rand -hex 16 | tee password.txt | robotsproxy password`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := readPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			hash, err := policy.HashPassword(password)
			if err != nil {
				return fmt.Errorf("password: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			return err
		},
	}
}

// maxInput bounds what is read of a password, in bytes. It is more than a password may have.
const maxInput = 4 << 10

// readPassword asks for a password on a terminal, or else reads one line from in.
func readPassword(in io.Reader, prompt io.Writer) (string, error) {
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return askPassword(f, prompt)
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput))
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), err
}

// askPassword asks for a password twice, without echo.
func askPassword(terminal *os.File, prompt io.Writer) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupted)
	type answer struct {
		text []byte
		err  error
	}
	var typed [2]string
	for i, question := range []string{"Password: ", "Repeat the password: "} {
		fmt.Fprint(prompt, question)
		answered := make(chan answer, 1)
		// The goroutine ends with the process if a signal comes first.
		go func() {
			text, err := term.ReadPassword(fd)
			answered <- answer{text, err}
		}()
		select {
		case a := <-answered:
			// The terminal has not shown the line end.
			fmt.Fprintln(prompt)
			if a.err != nil {
				return "", fmt.Errorf("password: %w", a.err)
			}
			typed[i] = string(a.text)
		case s := <-interrupted:
			// Otherwise the shell would not show what is typed.
			term.Restore(fd, before)
			fmt.Fprintln(prompt)
			return "", cli.ExitError(cli.ExitSignal + int(s.(syscall.Signal)))
		}
	}
	if typed[0] != typed[1] {
		return "", errors.New("password: the two passwords differ")
	}
	return typed[0], nil
}
