package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds the symbolic links from a name to its file, as Linux does.
const maxLinks = 40

// A watcher reports when files may have changed. It watches the directories of all names on the way from a
// file's name to the file, so that it also notices when the file is replaced, or removed and created again,
// or when a symbolic link changes, as Kubernetes does with a ConfigMap (..data) and certbot with a
// certificate. The zero watcher watches nothing.
type watcher struct {
	fs *fsnotify.Watcher

	// events and errors are those of fs.
	events <-chan fsnotify.Event
	errors <-chan error

	// names are those in watched directories, and of these directories, that lead to a file.
	names map[string]bool
}

// newWatcher returns the zero watcher with an error.
func newWatcher() (watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return watcher{}, err
	}
	return watcher{fs: fs, events: fs.Events, errors: fs.Errors}, nil
}

func (w *watcher) close() {
	if w.fs != nil {
		w.fs.Close()
	}
}

// relevant reports whether an event may be about one of the files.
func (w *watcher) relevant(e fsnotify.Event) bool {
	return w.names[filepath.Clean(e.Name)]
}

// watch watches these files and no others. It is called again after each change, since links may lead
// elsewhere. more reports whether it watches a directory in which changes were not noticed before.
func (w *watcher) watch(files []string) (more bool, err error) {
	if w.fs == nil {
		return false, nil
	}
	// most bounds the tries if the names change meanwhile.
	const most = 3
	for range most {
		dirs, names := map[string]bool{}, map[string]bool{}
		for _, file := range files {
			traceLinks(file, dirs, names)
		}
		w.names = names
		missing := w.setDirs(dirs)
		if len(missing) == 0 {
			return more, nil
		}
		if err = w.add(missing); err != nil {
			return more, err
		}
		more = true
	}
	return more, nil
}

// setDirs stops watching directories that are not in dirs, and returns those that are not watched yet.
func (w *watcher) setDirs(dirs map[string]bool) (missing []string) {
	watched := w.fs.WatchList()
	for _, dir := range watched {
		if !dirs[dir] {
			// Remove fails if the directory is gone.
			w.fs.Remove(dir)
		}
	}
	for dir := range dirs {
		if !slices.Contains(watched, dir) {
			missing = append(missing, dir)
		}
	}
	return missing
}

func (w *watcher) add(dirs []string) (err error) {
	for _, dir := range dirs {
		if e := w.fs.Add(dir); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// traceLinks follows a name to its file. It adds to dirs and names the directories and names on the way that
// may change their meaning, also a name that does not exist.
func traceLinks(file string, dirs, names map[string]bool) {
	if !filepath.IsAbs(file) {
		here, err := os.Getwd()
		if err != nil {
			return
		}
		// The path is not cleaned, because the name before .. may be a link.
		file = here + "/" + file
	}
	dir, rest := "/", strings.Split(file, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		at := filepath.Join(dir, name)
		info, err := os.Lstat(at)
		if err == nil && info.IsDir() {
			dir = at
			continue
		}
		dirs[dir], names[dir], names[at] = true, true, true
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			return
		}
		to, err := os.Readlink(at)
		if links++; err != nil || links > maxLinks {
			return
		}
		if filepath.IsAbs(to) {
			dir = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
}
