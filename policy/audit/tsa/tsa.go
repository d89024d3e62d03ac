// Package tsa gets time-stamp tokens over anchors of a trail from a time-stamp authority (TSA, RFC
// 3161), and verifies them. A token proves that the anchor, and so every line up to its line,
// existed at the time that the token states.
//
// The responses of the TSA are kept in a directory, a file each ([Save], [List]). What is stamped is
// the text of the anchor ([trail.Anchor.String]), so that other programs can verify a file too:
//
//	printf %s 9002:dda6… | openssl ts -verify -data /dev/stdin -in 9002-dda6….tsr -CAfile ca.pem
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
)

// ErrUntrusted is the error of Verify for a signature that no root vouches for.
var ErrUntrusted = errors.New("not signed by a trusted authority")

// Request sends an anchor to the TSA at url, and returns the TSA's response, which holds the token.
// It sends by way of rt, follows no redirect, and ends with ctx.
func Request(ctx context.Context, rt http.RoundTripper, url string, a trail.Anchor) ([]byte, error) {
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	options := &timestamp.RequestOptions{Hash: crypto.SHA256, Certificates: true, Nonce: nonce}
	query, err := timestamp.CreateRequest(strings.NewReader(a.String()), options)
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
	token, err := parse(response, a)
	if err == nil && (token.Nonce == nil || token.Nonce.Cmp(nonce) != 0) {
		err = errors.New("the response belongs to another request")
	}
	return response, err
}

// parse parses a response, and checks that its token is of the anchor.
func parse(response []byte, a trail.Anchor) (token *timestamp.Timestamp, err error) {
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
	sum := sha256.Sum256([]byte(a.String()))
	if token.HashAlgorithm != crypto.SHA256 || !bytes.Equal(token.HashedMessage, sum[:]) {
		return nil, errors.New("the time-stamp is not for this anchor")
	}
	return token, nil
}

// Verify checks that a response holds a token of the anchor that was signed by a TSA whose
// certificate leads to one of the roots, and returns the time that the token states. If the
// signature is not trusted, the error wraps ErrUntrusted, and the time is what the token states.
func Verify(response []byte, a trail.Anchor, roots *x509.CertPool) (at time.Time, err error) {
	token, err := parse(response, a)
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
	Anchor trail.Anchor
	Path   string
}

// Save writes a response to dir, which it makes if there is none. A file in dir has its name only once
// the disk has all of it.
func Save(dir string, a trail.Anchor, response []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, strings.Replace(a.String(), ":", "-", 1)+responseExt)
	temp := path + ".new"
	err := os.WriteFile(temp, response, 0o600)
	if err == nil {
		err = osfile.Sync(temp)
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		// An error of this matters less than err.
		os.Remove(temp)
	}
	return err
}

// List returns the responses in dir, in the order of their lines; none if there is no such directory.
func List(dir string) (all []Response, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), responseExt)
		if a, err := trail.ParseAnchor(strings.Replace(name, "-", ":", 1)); ok && err == nil {
			all = append(all, Response{a, filepath.Join(dir, e.Name())})
		}
	}
	slices.SortFunc(all, func(a, b Response) int { return cmp.Compare(a.Anchor.Seq, b.Anchor.Seq) })
	return all, nil
}
