package auditcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/daemon"
	"robotsproxy/policy/audit"
	auditreport "robotsproxy/policy/audit/report"
	"robotsproxy/policy/audit/trail"
)

// maxAudits is how many may be read at once: a line of each is held, and a MiB to read it.
const maxAudits = 100

// An auditPlace is where an audit is, and the snapshots that belong to it.
type auditPlace struct{ file, snapshots string }

// anyFiles takes the names of audits for arguments too, as the shell makes them of
// /audits/*/audit.jsonl.
func (f *auditFlags) anyFiles(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		f.paths = append(f.paths, args...)
		return f.usage()
	}
}

// where gives the one audit that is meant. It makes neither file nor directory. With
// errStdout the directory of the snapshots is given all the same.
func (f *auditFlags) where() (auditPlace, error) {
	if len(f.paths) > 1 {
		return auditPlace{}, cli.UsageErrorf("--file is there more than once: one audit is wanted here")
	}
	all, err := f.places()
	if len(all) == 0 {
		return auditPlace{}, err
	}
	return all[0], err
}

// places gives the audits that are meant, one or several, as where does.
func (f *auditFlags) places() ([]auditPlace, error) {
	if slices.Contains(f.paths, "-") {
		return nil, cli.UsageErrorf("--file -: standard input will not do here")
	}
	for _, path := range f.paths {
		if IsDir(path) {
			return nil, fmt.Errorf("%s is a directory: the audit in it is %s", path, filepath.Join(path, cli.AuditName))
		}
	}
	cfg, err := f.Load()
	if err != nil {
		return nil, err
	}
	home, err := cfg.State(os.Getenv)
	if len(f.paths) > 0 {
		return auditsAt(f.paths, home), nil
	}
	if err == nil && f.run != "" {
		home, err = runDir(home, f.run)
	}
	at := auditPlace{filepath.Join(home, cli.AuditName), filepath.Join(home, cli.SnapshotsName)}
	switch {
	case err != nil:
		return nil, err
	case f.run != "":
		if elsewhere, err := os.Readlink(at.file); err == nil {
			at.file = elsewhere // run --audit
		}
	case cfg.Audit.File == "-":
		return []auditPlace{{"", at.snapshots}}, errStdout
	case cfg.Audit.File != "":
		at.file = cfg.Audit.File
	}
	return []auditPlace{at}, nil
}

// auditsAt are the audits of these names, each once, and without the files that were set
// aside from one of them: those belong to it. Their snapshots are beside them, or, home
// not being "", there.
func auditsAt(paths []string, home string) (all []auditPlace) {
	aside := map[string]bool{}
	for _, path := range paths {
		files, err := trail.Files(path)
		if err != nil {
			continue // who opens it says why
		}
		for _, file := range files {
			aside[file.Path] = aside[file.Path] || file.First > 0
		}
	}
	seen := map[string]bool{}
	for _, path := range paths {
		clean := filepath.Join(filepath.Dir(path), filepath.Base(path)) // as trail.Files has them
		if seen[clean] || len(paths) > 1 && aside[clean] {
			continue
		}
		seen[clean] = true
		at := auditPlace{path, filepath.Join(filepath.Dir(path), cli.SnapshotsName)}
		if home != "" && !IsDir(at.snapshots) { // it is a run's, or was moved with its audit, or it is our own
			at.snapshots = filepath.Join(home, cli.SnapshotsName)
		}
		all = append(all, at)
	}
	return all
}

// open begins to read the one audit that is meant, or standard input where the file is -.
func (f *auditFlags) open(stdin io.Reader) (*trail.Reader, error) {
	if slices.Contains(f.paths, "-") {
		return trail.NewReader(stdinName, stdin), nil
	}
	at, err := f.where()
	if err != nil {
		return nil, err
	}
	return openAudit(at.file)
}

func openAudit(path string) (*trail.Reader, error) {
	r, err := trail.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no audit at %s (which one is meant is said with -c, --state, --run or --file)", path)
	}
	return r, err
}

// openAll begins to read all that are meant. Who has them closes them.
func (f *auditFlags) openAll(stdin io.Reader) (all []auditreport.Trail, err error) {
	if slices.Contains(f.paths, "-") {
		return []auditreport.Trail{{Lines: trail.NewReader(stdinName, stdin)}}, nil
	}
	places, err := f.places()
	if err != nil {
		return nil, err
	}
	names := shortNames(places)
	for i, at := range places {
		r, err := openAudit(at.file)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, auditreport.Trail{Name: names[i], Lines: r})
	}
	return all, nil
}

func closeAll(trails []auditreport.Trail) {
	for _, t := range trails {
		t.Lines.Close()
	}
}

// shortNames tell audits apart without what their whole paths have in common.
func shortNames(places []auditPlace) (names []string) {
	var parts [][]string
	for _, at := range places {
		parts = append(parts, strings.Split(filepath.ToSlash(daemon.AbsolutePath(at.file)), "/"))
	}
	same := 0
	for ; ; same++ {
		for _, p := range parts {
			if same >= len(p)-1 || p[same] != parts[0][same] {
				for _, p := range parts {
					names = append(names, strings.Join(p[same:], "/"))
				}
				return names
			}
		}
		if len(parts) == 0 {
			return nil
		}
	}
}

// clientName is what a client is called in the audits that are meant: under
// audit.clients: hash the hash of its name, which may be given as well.
func (f *auditFlags) clientName(name string) (string, error) {
	cfg, err := f.Load()
	if err != nil || name == "" || cfg.Audit.Clients != "hash" || audit.IsPseudonym(name) {
		return name, err
	}
	places, err := f.places()
	if err != nil && !errors.Is(err, errStdout) {
		return "", err
	}
	var hash string
	for i, at := range places {
		key, err := os.ReadFile(filepath.Join(filepath.Dir(at.snapshots), cli.KeyName))
		if err != nil {
			return "", fmt.Errorf("the hash of client %s: %w", name, err)
		}
		own := audit.Pseudonym(key)(name)
		if i > 0 && own != hash {
			return "", fmt.Errorf("client %s has another hash in %s than in %s, as each has a key of its own (%s): ask for one audit, or for a hash", name, at.file, places[0].file, cli.KeyName)
		}
		hash = own
	}
	return hash, nil
}
