package main

import (
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/archivecmd"
	"robotsproxy/cmd/internal/auditcmd"
	"robotsproxy/cmd/internal/castore"
	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/cmd/internal/doctor"
	"robotsproxy/cmd/internal/identity"
	"robotsproxy/cmd/internal/manual"
	"robotsproxy/cmd/internal/runner"
	"robotsproxy/cmd/internal/version"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "robotsproxy",
		Short: "A proxy that makes scrapers obey robots.txt at a polite pace",
		Long: `robotsproxy is a forward proxy. It makes the scrapers behind it obey robots.txt and
keep a polite pace without any change to them. It records each decision and its
reason.`,
		Example: `  robotsproxy run -- scrapy crawl books
  robotsproxy serve -c robotsproxy.yaml
  curl -x http://127.0.0.1:8080 --cacert "$(robotsproxy ca path)" https://example.com/
  robotsproxy check -A 'FooBot/1.0' https://example.com/private`,
		Version: version.Line(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	// The flags --version and -v do what the command version does.
	root.InitDefaultVersionFlag()
	root.AddCommand(daemon.ServeCommand(), runner.Command(), checkcmd.Command(), castore.Command(), identity.Command(),
		auditcmd.Command(), archivecmd.Command(), daemon.ConfigCommand(), daemon.HealthCommand(), daemon.PauseCommand(),
		daemon.ResumeCommand(), passwordCommand(), doctor.Command(), manual.Command(), versionCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	// A command with subcommands handles a missing or unknown one itself, so cobra takes it for runnable. Its usage must still
	// show COMMAND.
	const runnable, alone = "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), runnable, alone, 1))
	return root
}
