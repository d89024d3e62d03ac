package checkcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"time"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/robots"
	"robotsproxy/robots/fetch"
)

// A File is a robots.txt that every origin is taken to have. It is a cache.Fetcher.
type File struct {
	// Name is for people: the name of a file, or a URL.
	Name string

	// Text has up to one byte more than robots.MaxBytes, so that a longer file is recognised.
	Text []byte

	// Status is that of the response by which origins send the file.
	Status int
}

// readFile reads the file that --robots names.
func readFile(name string, stdin io.Reader) (*File, error) {
	file := &File{Name: name, Status: http.StatusOK}
	var err error
	if name == "-" {
		file.Name = "<stdin>"
		file.Text, err = io.ReadAll(io.LimitReader(stdin, robots.MaxBytes+1))
	} else {
		file.Text, err = cli.ReadFile(name, robots.MaxBytes+1)
	}
	return file, err
}

// Fetch returns the file as the response of an origin.
func (f *File) Fetch(context.Context, fetch.Request) *fetch.Result {
	body := f.Text[:min(len(f.Text), robots.MaxBytes)]
	sum := sha256.Sum256(body)
	return &fetch.Result{
		URL: f.Name, Status: f.Status, Body: body, SHA256: hex.EncodeToString(sum[:]),
		MaxAge: -1, Connected: true, Fetched: time.Now(),
	}
}
