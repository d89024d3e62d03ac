package bolt

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"robotsproxy/proxy/archive"
	"robotsproxy/robots/testkit"
)

func TestPayloads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "payloads.db")
	open := func() *Payloads {
		t.Helper()
		p, err := OpenPayloads(file, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open()
	if _, err := OpenPayloads(file, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a second process can open the file")
	}
	all := map[archive.Digest]archive.Original{}
	for i := range 2000 {
		all[archive.Digest{byte(i), byte(i >> 8)}] = archive.Original{ID: fmt.Sprint(i), URI: "http://a.example/", File: fmt.Sprintf("a-%d.warc", i%2)}
	}
	if err := p.Add(all); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p = open()
	for d, want := range all {
		if got, ok := p.Find(d); !ok || got != want {
			t.Fatalf("%x: %+v, %t, want %+v", d, got, ok, want)
		}
	}
	if err := p.Remove("a-0.warc"); err != nil {
		t.Fatal(err)
	}
	for d, of := range all {
		if _, ok := p.Find(d); ok != (of.File == "a-1.warc") {
			t.Fatalf("after the removal of a-0.warc, a payload of %s is found: %t", of.File, ok)
		}
	}
	p.Close()
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o600); err != nil { // damage
		t.Fatal(err)
	}
	p = open()
	defer p.Close()
	for d := range all {
		if _, ok := p.Find(d); ok {
			t.Fatal("a damaged file has payloads")
		}
	}
	if err := p.Add(all); err != nil {
		t.Error(err)
	}
}

// What several files have remains the payload of the file that was added last.
func TestPayloadOfTwoFiles(t *testing.T) {
	t.Parallel()
	p, err := OpenPayloads(filepath.Join(t.TempDir(), "payloads.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	payload := archive.Digest{1}
	for _, file := range []string{"a-1.warc", "a-2.warc"} {
		if err := p.Add(map[archive.Digest]archive.Original{payload: {File: file}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		removed string
		left    bool
	}{{"a-1.warc", true}, {"a-2.warc", false}} {
		if err := p.Remove(c.removed); err != nil {
			t.Fatal(err)
		}
		if of, ok := p.Find(payload); ok != c.left || ok && of.File != "a-2.warc" {
			t.Errorf("after the removal of %s: %+v, %t", c.removed, of, ok)
		}
	}
}

// TestPurge: only the payloads of some records are removed, and nothing of them is left in the free pages of the file.
func TestPurge(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "payloads.db")
	open := func() *Payloads {
		p, err := OpenPayloads(file, slog.New(slog.DiscardHandler))
		testkit.Must(t, err)
		return p
	}
	p := open()
	testkit.Must(t, p.Add(map[archive.Digest]archive.Original{
		{1}: {ID: "1", URI: "http://a.example/secret", File: "a.warc"}, {2}: {ID: "2", URI: "http://a.example/other", File: "a.warc"},
	}))
	testkit.Must(t, p.RemoveRecords(func(id string) bool { return id == "1" }))
	testkit.Must(t, p.Purge())
	content, err := os.ReadFile(file)
	testkit.Must(t, err)
	if bytes.Contains(content, []byte("secret")) || !bytes.Contains(content, []byte("other")) {
		t.Errorf("%q", content)
	}
	p = open()
	defer p.Close()
	if _, ok := p.Find(archive.Digest{2}); !ok {
		t.Error("the other payload is lost")
	}
	testkit.Must(t, p.Remove("a.warc"))
	if _, ok := p.Find(archive.Digest{2}); ok {
		t.Error("the other payload is not removed with its file")
	}
}

// The file never grows beyond its limit: the payloads of the oldest files go first.
func TestPayloadsFull(t *testing.T) {
	t.Parallel()
	p, err := OpenPayloads(filepath.Join(t.TempDir(), "payloads.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.db.MaxSize, p.db.AllocSize = 1<<20, 64<<10
	digest := func(file, i int) archive.Digest { return archive.Digest{byte(file), byte(i), byte(i >> 8)} }
	for file := range 20 {
		all := map[archive.Digest]archive.Original{}
		for i := range 500 {
			all[digest(file, i)] = archive.Original{ID: "<urn:uuid:00000000-0000-0000-0000-000000000000>", URI: "http://a.example/", File: fmt.Sprintf("a-%02d.warc", file)}
		}
		if err := p.Add(all); err != nil {
			t.Fatalf("file %d: %v", file, err)
		}
	}
	if _, ok := p.Find(digest(19, 0)); !ok {
		t.Error("the newest payloads are lost")
	}
	if _, ok := p.Find(digest(0, 0)); ok {
		t.Error("the oldest payloads are kept")
	}
}
