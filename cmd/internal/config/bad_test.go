package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// There is one file per mistake, and a file beside it with the exact errors, in which DIALECTS stands for the names of all
// dialects.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse("config.yaml", text)
			if err == nil {
				t.Fatal("no error")
			}
			errors := strings.ReplaceAll(string(want), "DIALECTS", strings.Join(DialectNames(), ", "))
			if diff := cmp.Diff(errors, err.Error()+"\n"); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(Config{}, c); diff != "" {
				t.Errorf("a configuration besides the error: %s", diff)
			}
		})
	}
}

// Each check and each rule has a file with a mistake that it finds.
func TestBadFilesAreComplete(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.want")
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found.Write(text)
	}
	for name, c := range checks {
		if !strings.Contains(found.String(), ": must be "+c.allowed+", got ") {
			t.Errorf("testdata/bad has no value that the check %s refuses", name)
		}
	}
	for _, r := range rules(Default()) {
		if !strings.Contains(found.String(), ": "+r.keys[0]+": ") {
			t.Errorf("testdata/bad has no file that breaks the rule on %s", strings.Join(r.keys, ", "))
		}
	}
}
