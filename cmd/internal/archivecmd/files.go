package archivecmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/proxy/archive/warc"
)

// flags are those of each subcommand.
type flags struct {
	cli.ConfigFlags
	dir string
}

func (f *flags) add(cmd *cobra.Command) {
	f.Add(cmd)
	cmd.Flags().StringVar(&f.dir, "dir", "", "`DIR` with the WARC files, in place of archive.dir in the configuration")
	cli.OfferDirs(cmd, "dir")
}

// openExt ends the name of a file that is being written.
const openExt = ".open"

// A file is one WARC file of the archive.
type file struct {
	path string

	// open says that the file was being written when its directory was read.
	open bool
}

// name returns the name that the file has when it is complete.
func (f file) name() string { return strings.TrimSuffix(filepath.Base(f.path), openExt) }

// forFiles returns a RunE that calls run with the files of the archive.
func (f *flags) forFiles(run func(*cobra.Command, archive, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		files, err := f.files()
		if err != nil {
			return err
		}
		return run(cmd, files, args)
	}
}

func (f *flags) files() (files archive, err error) {
	dir, err := f.directory()
	if err != nil {
		return nil, err
	}
	if files, err = filesIn(dir); err == nil && len(files) == 0 {
		return nil, fmt.Errorf("no WARC files in %s", dir)
	}
	return files, err
}

// filesIn returns the files in the directory of an archive.
func filesIn(dir string) (files archive, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	for _, e := range entries {
		name, open := strings.CutSuffix(e.Name(), openExt)
		if strings.HasSuffix(name, ".warc") || strings.HasSuffix(name, ".warc.gz") {
			files = append(files, file{filepath.Join(dir, e.Name()), open})
		}
	}
	return files, nil
}

// directory returns the directory of the archive.
func (f *flags) directory() (string, error) {
	// An unset variable of a script must not select the configured directory.
	if f.dir == "" && f.Flags.Changed("dir") {
		return "", cli.UsageErrorf("--dir: empty directory name")
	}
	cfg, err := f.Load()
	if dir := cmp.Or(f.dir, cfg.Archive.Dir); err != nil || dir != "" {
		return dir, err
	}
	return "", errors.New("no archive is configured: set archive.dir in the configuration, and name its file with -c, " +
		"or name the directory with --dir")
}

// openFile opens the file for reading. The proxy may have renamed it.
func (f file) openFile() (*os.File, error) {
	in, err := os.Open(f.path)
	if f.open && errors.Is(err, fs.ErrNotExist) {
		return os.Open(strings.TrimSuffix(f.path, openExt))
	}
	return in, err
}

// errStopped ends the reading of a file that has no further use.
var errStopped = errors.New("stopped")

// records yields the records of the file that begin at offset or later. An error, which names the
// file, ends it. A file that the proxy has removed has no records, and that a file is torn is no
// error while it is written.
func (f file) records(offset int64) iter.Seq2[*warc.Record, error] {
	return func(yield func(*warc.Record, error) bool) {
		in, err := f.openFile()
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		// Without a file, Close returns an error, which does not matter.
		defer in.Close()
		if err == nil {
			_, err = in.Seek(offset, io.SeekStart)
		}
		if err == nil {
			_, err = warc.ForEach(in, func(rec *warc.Record) error {
				rec.Offset += offset
				if !yield(rec, nil) {
					return errStopped
				}
				return nil
			})
		}
		if err != nil && err != errStopped && !(f.open && errors.Is(err, warc.ErrTorn)) {
			yield(nil, f.wrap(err))
		}
	}
}

// wrap adds the name of the file to an error.
func (f file) wrap(err error) error { return fmt.Errorf("%s: %w", f.path, err) }

// An archive is the files of a directory in the order of their names. There is at least one.
type archive []file

// A place is where a record was found. The zero value means that none was.
type place struct {
	file   file
	offset int64

	// id is the WARC-Record-ID.
	id string
}

func (p place) found() bool { return p.id != "" }

// each calls visit for each record. Files that cannot be read to their ends are read up to there,
// and are the error.
func (a archive) each(visit func(rec *warc.Record, at place)) error {
	var errs []error
	for _, file := range a {
		for rec, err := range file.records(0) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			visit(rec, place{file, rec.Offset, rec.ID()})
		}
	}
	return errors.Join(errs...)
}
