package auditcmd

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"robotsproxy/cmd/internal/checkcmd"
	"robotsproxy/cmd/internal/cli"
	"robotsproxy/policy/audit/bundle"
	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/explain/humanize"
	"robotsproxy/proxy/archive/warc"
)

// isBundle reports whether a regular file is a zip file. It reads nothing from a pipe, whose bytes are those of an audit.
func isBundle(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = io.ReadFull(f, magic)
	return err == nil && string(magic) == "PK\x03\x04"
}

// verifyBundles verifies the bundles that the flags name.
func (f *verifyFlags) verifyBundles(v *verification) error {
	for _, flag := range []string{"anchor", "from", "since-anchor", "no-snapshots"} {
		if f.Flags.Changed(flag) {
			return cli.UsageErrorf("--%s is for audits, not for bundles", flag)
		}
	}
	if i := slices.IndexFunc(f.paths, func(path string) bool { return !isBundle(path) }); i >= 0 {
		return cli.UsageErrorf("%s is not a bundle: verify audits and bundles in separate runs", humanize.Printable(f.paths[i]))
	}
	known, err := v.readCheckpoints(nil)
	if err != nil {
		return err
	}
	var errs []error
	agreed := 0
	for i, path := range f.paths {
		if len(f.paths) > 1 {
			fmt.Fprint(v.out, strings.Repeat("\n", min(i, 1)), humanize.Printable(path), "\n")
		}
		result, err := v.verifyBundle(path, known)
		if err == nil {
			agreed += result.Held
			err = writeRows(v.out, verifiedText, result)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || agreed > 0 || len(v.checkpoints) == 0 {
		return err
	}
	return errors.New("the bundle has nothing that can be compared with the files of --checkpoint: ask for one that was made with them")
}

// verifyBundle verifies a bundle.
func (v *verification) verifyBundle(path string, known *knownCheckpoints) (result verifiedBundle, err error) {
	f, info, err := openBundle(path)
	if err != nil {
		return result, err
	}
	defer f.Close()
	trust := &bundle.Trust{Roots: v.tsaRoots, Judge: new(judge).again}
	for _, h := range known.held {
		trust.Held = append(trust.Held, h.Checkpoint)
	}
	if v.keys != nil {
		// A nil slice in the interface would not be nil.
		trust.Keys = v.keys
	}
	result.Trusted, result.HasRoots = v.keys != nil, v.tsaRoots != nil
	result.Findings, err = bundle.Verify(f, info.Size(), trust)
	if err == nil && result.HasContent {
		err = result.verifyContent(f, info.Size())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", humanize.Printable(path), err)
	}
	return result, err
}

func openBundle(path string) (*os.File, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
	}
	return f, info, err
}

// again makes the decision of a record again, and returns an error if another one comes out.
func (j *judge) again(e *trail.Entry, text []byte, status int, tdmrep []byte) error {
	d := j.rederive(context.Background(), e, &checkcmd.File{Name: e.RobotsURL, Text: text, Status: status}, tdmrep)
	if d.Same || len(d.Differs) == 0 {
		return nil
	}
	differs := d.Differs[0]
	return fmt.Errorf("the decision does not follow from the files in the bundle: %s is %q in the record, and should be %q",
		differs.Member, differs.Record, differs.Derived)
}

// verifyContent verifies the WARC records of the bundle, and that they have what its records say.
func (b *verifiedBundle) verifyContent(r io.ReaderAt, size int64) error {
	check := warc.NewCheck()
	check.Partial = true
	if err := eachContent(r, size, func(in io.Reader) error {
		check.File(bundle.ContentName, in, false)
		return nil
	}); err != nil {
		return err
	}
	if res := check.Result(); len(res.Faults) > 0 {
		return res.Faults[0]
	}
	for id, sha := range b.Captures {
		// A malformed digest is none.
		sum, _ := hex.DecodeString(sha)
		switch check.Find(id, sum) {
		case warc.Same:
			b.SameCaptures++
		case warc.Other:
			return fmt.Errorf("the capture %.100q has another payload than its record says", id)
		case warc.Unknown:
			b.UnknownCaptures++
		default:
			b.MissingCaptures++
		}
	}
	isNamed := func(id string) bool { _, is := b.Captures[id]; return is }
	return eachContent(r, size, func(in io.Reader) error {
		_, err := warc.ForEach(in, func(rec *warc.Record) error {
			if isNamed(rec.ID()) || slices.ContainsFunc(rec.All("WARC-Concurrent-To"), isNamed) {
				return nil
			}
			return fmt.Errorf("%s: %.100q belongs to no record of the bundle", bundle.ContentName, rec.ID())
		})
		return err
	})
}

// eachContent calls use with the WARC records of a bundle.
func eachContent(r io.ReaderAt, size int64, use func(in io.Reader) error) error {
	content, err := bundle.Content(r, size)
	if err != nil {
		return err
	}
	defer content.Close()
	return use(content)
}

//go:embed bundleverify.tmpl
var verifiedText string

// A verifiedBundle is a bundle without a fault, as bundleverify.tmpl describes it.
type verifiedBundle struct {
	*bundle.Findings

	// Trusted says that the keys are those of --key, and HasRoots that --tsa-ca names authorities.
	Trusted, HasRoots bool

	// SameCaptures is the number of captures with the payload that a record names, UnknownCaptures that of those which cannot be
	// compared, and MissingCaptures that of those which are not there.
	SameCaptures, UnknownCaptures, MissingCaptures int
}
