// Package config reads and writes the YAML configuration file: its keys, their
// defaults, and the errors of a file.
//
// It is strict. An unknown key, a key given twice, and a value of the wrong type
// or out of range are errors that name the file, the line and the key. Parse
// reports all errors of a file at once, one per line, in the order of the file.
//
// The structs in table.go are the table of keys. The tags of a field hold the
// key's name, its default as a file would have it, its kind where the Go type is
// not enough (see kinds), its valid values (oneof, or check, see checks), its unit, whether it is required, whether
// a change needs a restart (see [Changes]), and what it does and what its zero value
// means, for config.example.yaml and [Reference]. The constraints between keys are in rules.
//
// The package opens only the file that it is given, and checks nothing that needs
// the disk or the network. Its types never leave cmd.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// Default returns the configuration that is used without a file.
func Default() Config {
	var c Config
	setDefaults(reflect.ValueOf(&c).Elem())
	return c
}

// Load reads the file at path.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fileError(path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Config{}, fileError(path, err)
	}
	return Parse(path, b)
}

// fileError formats err so that the file is named once: "config.yaml: no such file or directory".
func fileError(path string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", printable(path), err)
}

// Parse reads the configuration b. Errors call it name. A key that b leaves out has
// its default. The error has one line for each mistake.
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

// Check validates a configuration that was changed after it was read, by a flag. The
// error has one line for each invalid key.
func (c Config) Check() error {
	var errs []error
	for _, k := range leaves(reflect.ValueOf(&c).Elem(), "") {
		if why := k.invalid(); why != "" {
			errs = append(errs, fmt.Errorf("%s: %s", k.path, why))
		}
	}
	for _, rule := range rules {
		if why := rule.broken(c); why != "" {
			errs = append(errs, fmt.Errorf("%s: %s", rule.keys[0], why))
		}
	}
	return errors.Join(errs...)
}

// State returns the absolute path of the state directory: state_dir, else robotsproxy in
// the XDG state home. The directory need not exist.
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
	return "", errors.New("no state directory: neither XDG_STATE_HOME nor HOME is set (use state_dir or --state)")
}
