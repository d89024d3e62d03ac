package checkcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"time"

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
	in := stdin
	if name == "-" {
		name = "<stdin>"
	} else {
		f, err := os.Open(name)
		if err != nil {
			// The error names the file.
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, robots.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return &File{Name: name, Text: text, Status: http.StatusOK}, nil
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
