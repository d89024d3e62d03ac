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

// OneFile is the robots.txt of every origin.
type OneFile struct {
	Name string // as people are told
	Text []byte // one octet more than is read where the file is too long

	Status int // that it is answered with
}

// readRobots reads the file that --robots names.
func readRobots(name string, stdin io.Reader) (*OneFile, error) {
	in := stdin
	if name == "-" {
		name = "<stdin>"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err // which names the file
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, robots.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return &OneFile{Name: name, Text: text, Status: http.StatusOK}, nil
}

// Fetch answers with the file, as an origin would.
func (f *OneFile) Fetch(context.Context, fetch.Request) *fetch.Result {
	body := f.Text[:min(len(f.Text), robots.MaxBytes)]
	sum := sha256.Sum256(body)
	return &fetch.Result{
		URL: f.Name, Status: f.Status, Body: body, SHA256: hex.EncodeToString(sum[:]),
		MaxAge: -1, Connected: true, Fetched: time.Now(),
	}
}
