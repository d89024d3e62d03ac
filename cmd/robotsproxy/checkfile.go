package main

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

// oneFile is the robots.txt of every origin.
type oneFile struct {
	name string // as people are told
	text []byte // one octet more than is read where the file is too long

	status int // that it is answered with
}

// readRobots reads the file that --robots names.
func readRobots(name string, stdin io.Reader) (*oneFile, error) {
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
	return &oneFile{name: name, text: text, status: http.StatusOK}, nil
}

// Fetch answers with the file, as an origin would.
func (f *oneFile) Fetch(context.Context, fetch.Request) *fetch.Answer {
	body := f.text[:min(len(f.text), robots.MaxBytes)]
	sum := sha256.Sum256(body)
	return &fetch.Answer{
		URL: f.name, Status: f.status, Body: body, SHA256: hex.EncodeToString(sum[:]),
		MaxAge: -1, Connected: true, Fetched: time.Now(),
	}
}
