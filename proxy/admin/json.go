package admin

import (
	"bufio"
	"bytes"
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

	"robotsproxy/policy/audit"
	"robotsproxy/robots"
)

// isAPI says whether it is a program that asks, by where.
func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// mute takes of an answer the status and the header.
type mute struct {
	header http.Header
	status int
}

func (m *mute) Header() http.Header { return m.header }

func (m *mute) WriteHeader(status int) { m.status = status }

func (m *mute) Write(b []byte) (int, error) { return len(b), nil }

// A trouble is RFC 9457's problem details; its type is about:blank, the status says all.
type trouble struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors,omitempty"`
}

func problem(w http.ResponseWriter, status int, detail string, errors ...string) {
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, status, trouble{http.StatusText(status), status, detail, errors})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	write(w, status, v)
}

func write(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // rules and addresses are full of "&"
	if err := enc.Encode(v); err != nil {
		panic(err) // our own types
	}
	w.WriteHeader(status)
	w.Write(audit.EscapeJSON(b.Bytes()))
}

// given are the parameters of a request, each named at most once.
type given struct {
	values url.Values
	wrong  error // the first that is
}

// parameters reads what stands behind the "?", where nothing may stand but what is
// known; else it answers.
func parameters(w http.ResponseWriter, r *http.Request, known ...string) (given, bool) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		problem(w, http.StatusBadRequest, "The parameters cannot be read.")
		return given{}, false
	}
	for name, all := range values {
		if !slices.Contains(known, name) {
			there := "none"
			if len(known) > 0 {
				there = strings.Join(known, ", ")
			}
			problem(w, http.StatusBadRequest, fmt.Sprintf("There is no parameter %q here; there are: %s.", clip(name), there))
			return given{}, false
		}
		if len(all) > 1 {
			problem(w, http.StatusBadRequest, fmt.Sprintf("The parameter %s is there twice.", name))
			return given{}, false
		}
	}
	return given{values: values}, true
}

func (g *given) text(name string) string { return g.values.Get(name) }

// number gives one from 1 to most, or zero's stand-in.
func (g *given) number(name string, otherwise, most int) int {
	text := g.values.Get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		g.not(name, fmt.Sprintf("a number from 1 to %d", most))
	}
	return n
}

// line gives the number of a line, and whether there is one.
func (g *given) line(name string) (n uint64, ok bool) {
	text := g.values.Get(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		g.not(name, "the number of a line")
	}
	return n, err == nil
}

// oneOf gives one of a few words, the first where there is none.
func (g *given) oneOf(name string, words ...string) string {
	text := g.values.Get(name)
	if text == "" {
		return words[0]
	}
	if !slices.Contains(words, text) {
		g.not(name, "one of "+strings.Join(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" }), ", "))
	}
	return text
}

func (g *given) not(name, what string) {
	if g.wrong == nil {
		g.wrong = fmt.Errorf("%s is not %s", name, what)
	}
}

// bad answers where a parameter is wrong.
func (g *given) bad(w http.ResponseWriter) bool {
	if g.wrong != nil {
		problem(w, http.StatusBadRequest, g.wrong.Error())
	}
	return g.wrong != nil
}

// body reads a request's JSON object into to; else it answers. Nothing may stand there
// that to does not have, and nothing behind it.
func body(w http.ResponseWriter, r *http.Request, to any) bool {
	if _, ok := parameters(w, r); !ok {
		return false
	}
	return object(w, http.MaxBytesReader(w, r.Body, maxBody), to)
}

// object reads a JSON object alone.
func object(w http.ResponseWriter, from io.Reader, to any) bool {
	dec := json.NewDecoder(from)
	dec.DisallowUnknownFields()
	err := dec.Decode(to)
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return true
		}
		err = errors.New("something stands behind the object")
	}
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it ends before the object does")
	}
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is longer than %d octets.", maxBody))
		return false
	}
	problem(w, http.StatusBadRequest, "The body is not the JSON object that this takes.", clip(err.Error()))
	return false
}

// nothing reads a body that has to be empty, or an object without members; else it answers.
func nothing(w http.ResponseWriter, r *http.Request) bool {
	if _, ok := parameters(w, r); !ok {
		return false
	}
	from := bufio.NewReader(http.MaxBytesReader(w, r.Body, maxBody))
	if _, err := from.Peek(1); errors.Is(err, io.EOF) {
		return true
	}
	return object(w, from, &struct{}{})
}

// clip bounds what a stranger's word takes in a sentence.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// stamp is a time as the audit has it, to be read by what reads RFC 3339; "": none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// parseOrigin reads scheme://host, with a port or without.
func parseOrigin(text string) (robots.Origin, error) {
	if text == "" {
		return robots.Origin{}, errors.New("origin is required, as in https://example.com")
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return robots.Origin{}, errors.New("origin is not as in https://example.com or http://example.com:8080")
	}
	o, err := robots.ParseOrigin(u.Scheme, u.Host)
	if err != nil {
		return robots.Origin{}, fmt.Errorf("origin: %w", err)
	}
	return o, nil
}

// named reads the origin that a request is about; else it answers.
func named(w http.ResponseWriter, text string) (robots.Origin, bool) {
	o, err := parseOrigin(text)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
	}
	return o, err == nil
}

// maxBody bounds what is read of any request, in octets.
const maxBody = 64 << 10

// enter takes a place, if there is one.
func enter(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

func leave(places chan struct{}) { <-places }
