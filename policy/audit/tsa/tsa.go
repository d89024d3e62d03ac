// Package tsa gets time-stamp tokens over checkpoints of an audit from a time-stamp authority (TSA, RFC 3161), and verifies
// them. A token proves that the checkpoint, and so every line up to its last one, existed at the time that the token states.
//
// The responses of the TSA are kept in a directory, a file each, and beside each the checkpoint ([Save], [List]), so that
// other programs can verify it too:
//
//	openssl ts -verify -data 9002-dda6….checkpoint -in 9002-dda6….tsr -CAfile ca.pem
//
// Earlier versions got time-stamps over the text of an anchor ([trail.Anchor.String]), which is in the name of the response.
//
// Any number of goroutines may call the functions.
package tsa

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"

	"robotsproxy/policy/audit/trail"
	"robotsproxy/policy/osfile"
)

const (
	// maxResponse bounds a response, in bytes; usual ones have 2 to 8 KiB.
	maxResponse = 64 << 10
	responseExt = ".tsr"
	textExt     = ".checkpoint"
)

// ErrUntrusted is the error of Verify for a signature that no root vouches for.
var ErrUntrusted = errors.New("not signed by a trusted authority")

// Request sends the hash of a text to the TSA at url, and returns the TSA's response, which holds the token.
// It sends by way of rt, follows no redirect, and ends with ctx.
func Request(ctx context.Context, rt http.RoundTripper, url string, text []byte) ([]byte, error) {
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	options := &timestamp.RequestOptions{Hash: crypto.SHA256, Certificates: true, Nonce: nonce}
	query, err := timestamp.CreateRequest(bytes.NewReader(text), options)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(query))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/timestamp-query")
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("unexpected status %d", resp.StatusCode)
	}
	response, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, err
	case len(response) > maxResponse:
		return nil, fmt.Errorf("response longer than %d bytes", maxResponse)
	}
	token, err := parse(response, text)
	if err == nil && (token.Nonce == nil || token.Nonce.Cmp(nonce) != 0) {
		err = errors.New("the response belongs to another request")
	}
	return response, err
}

// parse parses a response, and checks that its token is of the text.
func parse(response, text []byte) (token *timestamp.Timestamp, err error) {
	// The response is ASN.1 of strangers, on which the parsers may panic.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed response: %v", p)
		}
	}()
	token, err = timestamp.ParseResponse(response)
	if err != nil {
		return nil, fmt.Errorf("parse the response: %w", err)
	}
	sum := sha256.Sum256(text)
	if token.HashAlgorithm != crypto.SHA256 || !bytes.Equal(token.HashedMessage, sum[:]) {
		return nil, errors.New("the time-stamp is not for this text")
	}
	return token, nil
}

// Verify checks that a response holds a token of the text that was signed by a TSA whose
// certificate leads to one of the roots, and returns the time that the token states. If the
// signature is not trusted, the error wraps ErrUntrusted, and the time is what the token states.
func Verify(response, text []byte, roots *x509.CertPool) (at time.Time, err error) {
	if len(response) > maxResponse {
		// The time and the stack to parse it have no other bound.
		return time.Time{}, fmt.Errorf("response longer than %d bytes", maxResponse)
	}
	token, err := parse(response, text)
	if err != nil {
		return time.Time{}, err
	}
	if roots == nil {
		return token.Time, ErrUntrusted
	}
	p7, err := pkcs7.Parse(token.RawToken)
	if err != nil {
		return time.Time{}, err
	}
	intermediates := x509.NewCertPool()
	for _, cert := range p7.Certificates {
		intermediates.AddCert(cert)
	}
	if err := p7.VerifyWithOpts(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: token.Time,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping},
	}); err != nil {
		return token.Time, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return token.Time, nil
}

// A Response is the file with a response of the TSA.
type Response struct {
	Path string

	// Text is what got the time-stamp: a signed checkpoint, or an anchor.
	Text []byte

	// Anchor is what got the time-stamp; zero: it was a checkpoint.
	Anchor trail.Anchor
}

// Save writes a response and the checkpoint that got the time-stamp to dir, which it makes if there is none. seq is the
// number of the checkpoint's last line. A file in dir has its name only once the disk has all of it.
func Save(dir string, seq uint64, checkpoint, response []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sum := sha256.Sum256(checkpoint)
	base := filepath.Join(dir, fmt.Sprintf("%d-%x", seq, sum[:16]))
	write := func(name string, b []byte) error {
		return osfile.Replace(name, 0o600, func(w io.Writer) error { _, err := w.Write(b); return err })
	}
	// A response without its checkpoint cannot be verified.
	if err := write(base+textExt, checkpoint); err != nil {
		return err
	}
	return write(base+responseExt, response)
}

// List returns the responses in dir, in the order of their lines; none if there is no such directory.
func List(dir string) (all []Response, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	seqs := map[string]uint64{}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), responseExt)
		a, err := trail.ParseAnchor(strings.Replace(base, "-", ":", 1))
		if !ok || err != nil {
			continue
		}
		r := Response{Path: filepath.Join(dir, e.Name())}
		r.Text, err = os.ReadFile(filepath.Join(dir, base+textExt))
		if errors.Is(err, fs.ErrNotExist) {
			r.Text, r.Anchor, err = []byte(a.String()), a, nil
		}
		if err != nil {
			return nil, err
		}
		seqs[r.Path] = a.Seq
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Response) int { return cmp.Compare(seqs[a.Path], seqs[b.Path]) })
	return all, nil
}
