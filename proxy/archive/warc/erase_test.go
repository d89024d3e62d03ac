package warc

import (
	"bytes"
	"compress/gzip"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"robotsproxy/robots/testkit"
)

// TestErase: blank records replace a record and those that were written with it, revisits lose its URL, and everything else
// stays as and where it is.
func TestErase(t *testing.T) {
	// Without it, the revisit takes less space than with it, whatever the digest.
	secret := crand.Text()
	for _, zipped := range []bool{false, true} {
		for _, length := range []int{0, 1, 500, 40_000, 65_000, 130_000, 1 << 20} {
			t.Run(fmt.Sprintf("zipped %v, %d bytes", zipped, length), func(t *testing.T) {
				block := make([]byte, length)
				rand.NewChaCha8([32]byte{}).Read(block)
				var file bytes.Buffer
				addRecord(t, &file, zipped, block, TypeRequest, "0", Field{concurrentTo, "1"})
				addRecord(t, &file, zipped, block, TypeResource, "1", Field{"WARC-Target-URI", "https://site.example/secret"})
				addRecord(t, &file, zipped, block, TypeResource, "2", Field{"WARC-Target-URI", "https://site.example/other"})
				addRecord(t, &file, zipped, []byte("head"), TypeRevisit, "3", Field{refersTo, "1"}, Field{refersToURI, "https://site.example?" + secret})
				whole := file.Len()
				file.WriteString("torn")

				var erased bytes.Buffer
				e := Erasure{IDs: map[string]bool{"1": false, "9": false}}
				changed, err := e.Erase(&erased, bytes.NewReader(file.Bytes()), int64(file.Len()))
				if err != nil || !changed || e.Changed != 3 || e.Captures != 1 || e.Orphans != 1 || erased.Len() != file.Len() || !strings.HasSuffix(erased.String(), "torn") {
					t.Fatalf("%+v, %v, %d bytes of %d", e, err, erased.Len(), file.Len())
				}
				if !e.IDs["1"] || e.IDs["9"] {
					t.Errorf("found: %v", e.IDs)
				}
				e = Erasure{IDs: e.IDs}
				if changed, err := e.Erase(io.Discard, bytes.NewReader(erased.Bytes()), int64(erased.Len())); err != nil || changed || e.Captures != 0 || e.Orphans != 1 {
					t.Errorf("again: %v, %+v, %v", changed, e, err)
				}
				want := recordsOf(t, file.Bytes()[:whole])
				for i, text := range []string{` "metadata" "2026-11-29" "" "" ""`, ` "metadata" "2026-11-29" "" "" ""`} {
					place, _, _ := strings.Cut(want[i], ` "re`)
					want[i] = place + text
				}
				want[3] = strings.Replace(want[3], secret, strings.Repeat("x", len(secret)), 1)
				if got := recordsOf(t, erased.Bytes()[:whole]); !slices.Equal(got, want) {
					t.Errorf("%q\nwant %q", got, want)
				}
			})
		}
	}
}

// TestEraseTorn: a record to be erased that is not complete is cut off.
func TestEraseTorn(t *testing.T) {
	for id, fields := range map[string][]Field{"1": nil, "2": {{refersTo, "1"}, {refersToURI, "https://site.example/secret"}}} {
		var file, erased bytes.Buffer
		addRecord(t, &file, true, nil, TypeResource, "0")
		whole := file.Len()
		addRecord(t, &file, true, []byte("secret"), TypeRevisit, id, fields...)
		e := Erasure{IDs: map[string]bool{"1": false}}
		changed, err := e.Erase(&erased, bytes.NewReader(file.Bytes()), int64(file.Len()-12))
		if err != nil || !changed || !bytes.Equal(erased.Bytes(), file.Bytes()[:whole]) {
			t.Errorf("%s: %v, %v, %d bytes", id, changed, err, erased.Len())
		}
	}
}

// TestEraseDamaged: nothing counts as erased if a part of the file cannot be read.
func TestEraseDamaged(t *testing.T) {
	var file bytes.Buffer
	addRecord(t, &file, false, nil, TypeResource, "0")
	file.WriteString("damage\r\n\r\n")
	addRecord(t, &file, false, []byte("secret"), TypeResource, "1")
	e := Erasure{IDs: map[string]bool{"1": false}}
	if changed, err := e.Erase(io.Discard, bytes.NewReader(file.Bytes()), int64(file.Len())); err == nil {
		t.Errorf("%v, %+v", changed, e)
	}
}

// TestEraseWhatDoesNotFit: a revisit becomes blank if it does not fit without its URL.
func TestEraseWhatDoesNotFit(t *testing.T) {
	var member, file, erased bytes.Buffer
	block := make([]byte, 500)
	rand.NewChaCha8([32]byte{}).Read(block)
	addRecord(t, &member, false, block, TypeRevisit, "1", Field{refersTo, "0"}, Field{refersToURI, "https://site.example/ab"})
	// The copy has as many bytes, and an extra field.
	zip, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	testkit.Must(t, err)
	_, err = zip.Write(member.Bytes())
	testkit.Must(t, errors.Join(err, zip.Close()))
	e := Erasure{IDs: map[string]bool{"0": false}}
	if changed, err := e.Erase(&erased, bytes.NewReader(file.Bytes()), int64(file.Len())); err != nil || !changed {
		t.Errorf("%v, %v", changed, err)
	}
	want := []string{fmt.Sprintf(`0 %d 1 "metadata" "2026-11-29" "" "" ""`, file.Len())}
	if got := recordsOf(t, erased.Bytes()); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func addRecord(t *testing.T, file *bytes.Buffer, zipped bool, block []byte, kind, id string, fields ...Field) {
	t.Helper()
	h := AppendField(AppendType(nil, kind), "WARC-Record-ID", id)
	h = AppendField(h, "WARC-Date", "2026-11-29")
	for _, f := range fields {
		h = AppendField(h, f.Name, f.Value)
	}
	// A digest, as the proxy writes it, makes the record larger than a blank one.
	h = AppendField(h, "WARC-Block-Digest", fmt.Sprintf("sha256:%064x", rand.Uint64()))
	record := slices.Concat(AppendLength(h, int64(len(block))), block, []byte(End))
	if !zipped {
		file.Write(record)
		return
	}
	zip := gzip.NewWriter(file)
	_, err := zip.Write(record)
	testkit.Must(t, err)
	testkit.Must(t, zip.Close())
}

// recordsOf returns the place, the size, the ID, the type, the date, the URLs and the digest of each record.
func recordsOf(t *testing.T, file []byte) (all []string) {
	t.Helper()
	_, err := ForEach(bytes.NewReader(file), func(r *Record) error {
		var block bytes.Buffer
		if _, err := block.ReadFrom(r.Block); err != nil {
			return err
		}
		if r.IsBlank() && r.IsCapture() || r.IsBlank() && len(bytes.Trim(block.Bytes(), " ")) > 0 {
			t.Errorf("a blank record has the block %.100q", block.String())
		}
		all = append(all, fmt.Sprintf("%d %d %s %q %q %q %q %q", r.Offset, r.Size, r.ID(), r.Type(), r.Get("WARC-Date"),
			r.TargetURI(), r.Get(refersToURI), r.Get("WARC-Block-Digest")))
		return nil
	})
	testkit.Must(t, err)
	return all
}
