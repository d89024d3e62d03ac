package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"robotsproxy/policy/audit"
	"robotsproxy/robots"
)

// isAPIRequest reports whether a request is for the API.
func isAPIRequest(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// A statusRecorder is an http.ResponseWriter that keeps the status and the header and drops
// the body.
type statusRecorder struct {
	header http.Header
	status int
}

func (s *statusRecorder) Header() http.Header { return s.header }

func (s *statusRecorder) WriteHeader(status int) { s.status = status }

func (s *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }

// problemDetails is an error response of the API (RFC 9457). Its type is about:blank: the status says
// all.
type problemDetails struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors,omitempty"`
}

func newProblem(status int, detail string, errors ...string) *problemDetails {
	return &problemDetails{http.StatusText(status), status, detail, errors}
}

func (p *problemDetails) Error() string { return p.Detail }

// writeError answers with a problem. Any other error is a mistake in the request.
func writeError(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problemDetails](err)
	if !ok {
		p = newProblem(http.StatusBadRequest, err.Error())
	}
	w.Header().Set("Content-Type", "application/problem+json")
	writeEscapedJSON(w, p.Status, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeEscapedJSON(w, status, v)
}

func writeEscapedJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// Rules and URLs contain many "&".
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Only a mistake in our own types can cause an error.
		panic(err)
	}
	w.WriteHeader(status)
	w.Write(audit.EscapeJSON(b.Bytes()))
}

// queryParams are the query parameters of a request, each of which occurs at most once.
type queryParams struct {
	values url.Values

	// err names the first invalid value; nil: all values that were read are valid.
	err error
}

// parseQuery parses the query of a request. It returns an error if the query is malformed, or has a parameter that is
// repeated or not in known.
func parseQuery(r *http.Request, known []string) (queryParams, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return queryParams{}, newProblem(http.StatusBadRequest, "The query is malformed.")
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			allowed := cmp.Or(strings.Join(known, ", "), "none")
			detail := fmt.Sprintf("Unknown parameter %q. Allowed parameters: %s.", clipInput(name), allowed)
			return queryParams{}, newProblem(http.StatusBadRequest, detail)
		}
		if len(all) > 1 {
			return queryParams{}, newProblem(http.StatusBadRequest, fmt.Sprintf("The parameter %s occurs more than once.", name))
		}
	}
	return queryParams{values: values}, nil
}

func (p *queryParams) get(name string) string { return p.values.Get(name) }

// intUpTo returns an integer from 1 to limit, or defaultValue if the parameter is missing.
func (p *queryParams) intUpTo(name string, defaultValue, limit int) int {
	text := p.values.Get(name)
	if text == "" {
		return defaultValue
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limit {
		p.setError(name, fmt.Sprintf("a whole number from 1 to %d", limit))
	}
	return n
}

// lineNumber returns the number of an audit line, and whether the parameter is there.
func (p *queryParams) lineNumber(name string) (n uint64, ok bool) {
	text := p.values.Get(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		p.setError(name, "the number of a line")
	}
	return n, err == nil
}

// oneOf returns one of words, or the first of them if the parameter is missing.
func (p *queryParams) oneOf(name string, words ...string) string {
	text := p.values.Get(name)
	if text == "" {
		return words[0]
	}
	if !slices.Contains(words, text) {
		p.setError(name, "one of "+strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" }), ", "))
	}
	return text
}

func (p *queryParams) setError(name, what string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: must be %s, got %q", name, what, clipInput(p.get(name)))
	}
}

// decodeBody decodes the JSON object in the body of a request into dst. It returns an error if the body is too long or no
// such object, or has an unknown member.
func decodeBody(w http.ResponseWriter, r *http.Request, dst any) error {
	return decodeObject(http.MaxBytesReader(w, r.Body, maxBody), dst)
}

// decodeObject decodes exactly one JSON object.
func decodeObject(src io.Reader, dst any) error {
	body, err := io.ReadAll(src)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	switch {
	case err != nil:
	// encoding/json would replace these bytes, and judge another URL.
	case !utf8.Valid(body):
		err = errors.New("must be UTF-8: percent-encode other bytes of a URL")
	default:
		err = dec.Decode(dst)
	}
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("unexpected text after the object")
	}
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("empty body")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("incomplete object")
	}
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		return newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is longer than %d bytes.", maxBody))
	}
	return newProblem(http.StatusBadRequest, "The body is not the JSON object that this endpoint expects.", clipInput(err.Error()))
}

// requireEmptyBody returns an error unless the body is empty or an object without members.
func requireEmptyBody(w http.ResponseWriter, r *http.Request) error {
	src := bufio.NewReader(http.MaxBytesReader(w, r.Body, maxBody))
	if _, err := src.Peek(1); errors.Is(err, io.EOF) {
		return nil
	}
	return decodeObject(src, &struct{}{})
}

// clipInput shortens untrusted input that an error message quotes.
func clipInput(s string) string {
	const maxBytes = 200
	if len(s) > maxBytes {
		return s[:maxBytes] + "..."
	}
	return s
}

// formatTime formats a time as the audit trail does (RFC 3339). It returns "" for the zero
// time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// parseOrigin parses scheme://host or scheme://host:port.
func parseOrigin(text string) (robots.Origin, error) {
	if text == "" {
		return robots.Origin{}, errors.New("origin: required (example: https://example.com)")
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return robots.Origin{}, errors.New("origin: must be a scheme, a host and an optional port (example: http://example.com:8080)")
	}
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		return robots.Origin{}, fmt.Errorf("origin: %w", err)
	}
	return o, nil
}

const badHost = "The host must be a name or an address, without scheme, port or pattern."

// hostOf returns the host in the path of a request.
func hostOf(r *http.Request) (string, error) {
	host, err := robots.ParseHost(r.PathValue("host"))
	if err != nil {
		return "", newProblem(http.StatusBadRequest, badHost, err.Error())
	}
	return host, nil
}

// maxBody bounds the body of any request, in bytes.
const maxBody = 64 << 10
