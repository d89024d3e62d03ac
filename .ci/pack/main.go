// Command pack makes one archive of a release from a directory with the program in it:
//
//	pack -version 1.2.3 -time 1700000000 DIR ARCHIVE
//
// It adds sbom.cdx.json, which lists the modules that the program was built from (CycloneDX 1.6). The name of the
// archive ends in .tar.gz or .zip. The same directory always becomes the same bytes: the order of the files is
// that of their names, all times are the given one, and owners and modes are fixed.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "version of the release")
	seconds := flag.Int64("time", 0, "time of all files, in seconds since 1970")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := pack(flag.Arg(0), flag.Arg(1), *version, time.Unix(*seconds, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack writes the files of a directory, and the bill of materials, to an archive.
func pack(dir, archive, version string, at time.Time) error {
	bill, err := materials(dir, version, at)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "sbom.cdx.json"), bill, 0o644); err != nil {
		return err
	}
	var out bytes.Buffer
	w := newTar(&out)
	if strings.HasSuffix(archive, ".zip") {
		w = newZip(&out)
	}
	base := filepath.Base(dir)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error { // in the order of names
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if isProgram(name) {
			mode = 0o755
		}
		return w.add(path.Join(base, name), mode, content, at)
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(archive, out.Bytes(), 0o644)
}

func isProgram(name string) bool { return name == "robotsproxy" || name == "robotsproxy.exe" }

// An archiver adds files to an archive.
type archiver struct {
	add func(name string, mode fs.FileMode, content []byte, at time.Time) error
	io.Closer
}

type closers []io.Closer

func (c closers) Close() (err error) {
	for _, one := range c {
		err = errors.Join(err, one.Close())
	}
	return err
}

func newTar(out io.Writer) archiver {
	compressed := gzip.NewWriter(out)
	w := tar.NewWriter(compressed)
	return archiver{func(name string, mode fs.FileMode, content []byte, at time.Time) error {
		header := &tar.Header{Name: name, Mode: int64(mode), Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}
		err := w.WriteHeader(header)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}, closers{w, compressed}}
}

func newZip(out io.Writer) archiver {
	w := zip.NewWriter(out)
	return archiver{func(name string, mode fs.FileMode, content []byte, at time.Time) error {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
		header.SetMode(mode)
		file, err := w.CreateHeader(header)
		if err == nil {
			_, err = file.Write(content)
		}
		return err
	}, w}
}

// The members of a CycloneDX document that a build knows.
type (
	document struct {
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl,omitempty"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// materials returns the bill of materials of the program in a directory, as go version -m has it.
func materials(dir, version string, at time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(filepath.Join(dir, "robotsproxy"))
	if errors.Is(err, fs.ErrNotExist) {
		info, err = buildinfo.ReadFile(filepath.Join(dir, "robotsproxy.exe"))
	}
	if err != nil {
		return nil, err
	}
	root := component{Type: "application", Ref: "robotsproxy@" + version, Name: "robotsproxy", Version: version}
	d := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{at.Format(time.RFC3339), root}}
	d.Components = []component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		d.Components = append(d.Components, library(m.Path, m.Version))
	}
	all := dependency{Ref: root.Ref}
	for _, c := range d.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	d.Dependencies = []dependency{all}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// library returns the component for a Go module.
func library(module, version string) component {
	purl := "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{Type: "library", Ref: purl, Name: module, Version: version, PURL: purl}
}
