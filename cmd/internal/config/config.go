// Package config reads and writes the YAML configuration file: its keys, their defaults, and the errors of a file.
//
// It is strict. An unknown key, a key given twice, and a value of the wrong type or out of range are errors that name the file,
// the line and the key. Parse reports all errors of a file at once, one per line, in the order of the file.
//
// The structs in table.go and entries.go are the table of keys. The comment above a field says what the key does and what its zero
// value means; config.example.yaml, [Reference] and [Schema] print it. The tags of a field hold the key's name, its
// default as a file would have it, its kind where the Go type is not enough (see kinds), its valid values (oneof, or
// check, see checks), its unit, whether it is required, and whether a change needs a restart (see [Changes]). The
// constraints between keys are in rules.
//
// After a change of the table, go generate writes config.example.yaml and docs/configuration.md.
//
// The package opens only the file that it is given, and checks nothing that needs the disk or the network. Its types never
// leave cmd.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// The first command fails if the program does not compile; the others would leave empty files.
//
//go:generate go vet robotsproxy/cmd/robotsproxy
//go:generate sh -c "go run robotsproxy/cmd/robotsproxy config example >../../../config.example.yaml"
//go:generate sh -c "go run robotsproxy/cmd/robotsproxy docs config >../../../docs/configuration.md"

// Default returns the configuration that is used without a file.
func Default() Config {
	var c Config
	setDefaults(reflect.ValueOf(&c).Elem())
	return c
}

// Load reads the file at path; "-" is standard input. It makes the paths in the file absolute: a relative one is resolved
// against the directory of path, or, if path is a pipe or standard input, against the working directory.
func Load(path string) (Config, error) {
	name, f := "standard input", os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return Config{}, fileError(path, err)
		}
		defer f.Close()
		name = path
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Config{}, fileError(name, err)
	}
	c, err := Parse(name, b)
	if err != nil {
		return Config{}, err
	}
	dir := ""
	if IsRegular(path) {
		dir = filepath.Dir(path)
	}
	if err := c.resolve(dir); err != nil {
		return Config{}, fileError(name, err)
	}
	return c, nil
}

// IsRegular reports whether path, as [Load] takes it, names a regular file at a place of its own: no pipe and not standard
// input. The names in /dev and /proc stand for files that are open already, such as /dev/stdin.
func IsRegular(path string) bool {
	info, err := os.Stat(path)
	clean := filepath.Clean(path)
	open := path == "-" || strings.HasPrefix(clean, "/dev/") || strings.HasPrefix(clean, "/proc/")
	return err == nil && info.Mode().IsRegular() && !open
}

// resolve makes the paths in c absolute. A relative one is resolved against dir, which may itself be relative to the working
// directory.
func (c *Config) resolve(dir string) error {
	for _, k := range leaves(reflect.ValueOf(c).Elem(), "") {
		name, file := k.tag.Get("kind"), k.value.String()
		isFile := name == "path" || name == "path-or-stdout" && file != "-"
		if !isFile || file == "" || filepath.IsAbs(file) {
			continue
		}
		absolute, err := filepath.Abs(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		k.value.SetString(absolute)
	}
	return nil
}

// fileError formats err so that the file is named once: "config.yaml: no such file or directory".
func fileError(path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", printable(path), err)
}

// Parse reads the configuration b. Errors call it name. A key that b leaves out has its default. The error has one line for each
// mistake.
func Parse(name string, b []byte) (Config, error) {
	r := reader{bad: map[string]bool{}, lines: map[string]int{}}
	c := Default()
	if root := r.document(b); root != nil {
		r.section(root, "", reflect.ValueOf(&c).Elem())
		r.checkRules(c)
	}
	if err := r.err(name); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Check validates a configuration whose keys outside of hosts and clients were changed after it was read, by a flag. The error
// has one line for each invalid key.
func (c Config) Check() error {
	var errs []error
	bad := map[string]bool{}
	for _, k := range leaves(reflect.ValueOf(&c).Elem(), "") {
		if why := k.invalid(); why != "" {
			errs = append(errs, fmt.Errorf("%s: %s", k.path, why))
			bad[k.path] = true
		}
	}
	for _, r := range c.brokenRules(bad) {
		errs = append(errs, fmt.Errorf("%s: %s", r.keys[0], r.why))
	}
	return errors.Join(errs...)
}

// State returns the absolute path of the state directory: state_dir, else robotsproxy in the XDG state home, or on Windows in the
// local application data. The directory need not exist.
func (c Config) State(getenv func(string) string) (string, error) {
	if c.StateDir != "" {
		return filepath.Abs(c.StateDir)
	}
	// The XDG base directory specification says to ignore a relative path.
	if home := getenv("XDG_STATE_HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, "robotsproxy"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Abs(filepath.Join(home, ".local", "state", "robotsproxy"))
	}
	if local := getenv("LOCALAPPDATA"); local != "" {
		return filepath.Abs(filepath.Join(local, "robotsproxy"))
	}
	return "", errors.New("no state directory: neither XDG_STATE_HOME nor HOME is set (use state_dir or --state)")
}
