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
)

// An endpoint is a part of the API.
type endpoint struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	What    string `json:"what"`
	handler http.HandlerFunc
}

func (s *server) endpoints() []endpoint {
	return []endpoint{
		{"GET", "/api/v1/status", "what this proxy is, where it has its things, and how it is", s.status},
		{"GET", "/api/v1/decisions", "the last lines of the audit", s.decisions},
		{"GET", "/api/v1/decisions/stream", "those that follow, as server-sent events", s.stream},
		{"GET", "/api/v1/series", "requests allowed, blocked and waiting over time", s.series},
		{"GET", "/api/v1/blockers", "the rules and reasons that have blocked most", s.blockers},
		{"GET", "/api/v1/hosts", "hosts, their pace and their robots.txt", s.listHosts},
		{"GET", "/api/v1/hosts/{host}", "one host, what decided its requests, and the text of its robots.txt", s.oneHost},
		{"POST", "/api/v1/explain", "what would be decided of a request, and why", s.explain},
		{"POST", "/api/v1/purge", "forget the robots.txt of an origin", s.purge},
		{"POST", "/api/v1/refetch", "fetch the robots.txt of an origin now", s.refetch},
		{"POST", "/api/v1/reload", "read the configuration anew", s.reload},
		{"GET", "/api/v1/ca.pem", "the certificate that clients have to trust", s.caPEM},
		{"GET", "/api/v1/proxy.pac", "how a browser finds the proxy", s.proxyPAC},
	}
}

func (s *server) newAPI() *http.ServeMux {
	mux := http.NewServeMux()
	all := s.endpoints()
	for _, e := range all {
		mux.HandleFunc(e.Method+" "+e.Path, e.handler)
	}
	mux.HandleFunc("GET /api/v1/{$}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := parameters(w, r); ok {
			writeJSON(w, http.StatusOK, struct {
				Version   string     `json:"version"`
				Endpoints []endpoint `json:"endpoints"`
			}{s.o.Version, all})
		}
	})
	return mux
}

// serveAPI answers a program: what the mux has no answer for too.
func (s *server) serveAPI(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.api.Handler(r)
	if pattern != "" {
		s.api.ServeHTTP(w, r) // which also finds what stands in the path
		return
	}
	muted := mute{header: w.Header(), status: http.StatusOK}
	handler.ServeHTTP(&muted, r)
	w.Header().Del("Content-Length")
	if allowed := w.Header().Get("Allow"); muted.status == http.StatusMethodNotAllowed && allowed != "" {
		problem(w, muted.status, "This is asked for by "+strings.ReplaceAll(allowed, ", ", " or ")+".")
		return
	}
	problem(w, muted.status, "GET /api/v1/ lists what there is.")
}

// mute takes of an answer the status and the header.
type mute struct {
	header http.Header
	status int
}

func (m *mute) Header() http.Header         { return m.header }
func (m *mute) WriteHeader(status int)      { m.status = status }
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
