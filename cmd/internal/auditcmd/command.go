// Package auditcmd is the command audit. It prints and follows records, verifies their chain,
// explains and re-derives decisions, prints snapshots of robots.txt, and sums records up in a
// report. It reads files that the proxy may be writing, takes no lock and changes nothing, except for erase and key.
package auditcmd

import "github.com/spf13/cobra"

// Command returns the cobra command with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read the audit: follow, summarise, verify and explain it",
		Long: `Read the audit: follow, summarise, verify and explain it. The commands take no lock, so
the proxy can write the audit at the same time; only erase needs the proxy to be stopped.`,
		Example: `  robotsproxy audit verify
  robotsproxy audit report --since 24h --format html > report.html`,
	}
	cmd.AddCommand(auditTailCommand(), auditReportCommand(), auditVerifyCommand(), auditKeyCommand(), auditSnapshotCommand(),
		auditExplainCommand(), auditBundleCommand(), auditEraseCommand())
	return cmd
}
