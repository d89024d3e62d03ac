package lean

import (
	"bytes"

	"golang.org/x/net/http/httpguts"
)

// plain says whether what was read begins with the whole head of a request that is
// served here: GET, HEAD or CONNECT of HTTP/1.1 with one Host, no body and nothing
// that changes the protocol, each line as RFC 9112 2.1 has it. It refuses what
// net/http would put up with: that is for net/http to judge.
func plain(b []byte) bool {
	line, rest, ok := cutLine(b)
	if !ok || !plainLine(line) {
		return false
	}
	hosts := 0
	for {
		line, rest, ok = cutLine(rest)
		if !ok {
			return false
		}
		if len(line) == 0 {
			return hosts == 1
		}
		name, value, ok := cutField(line)
		switch {
		case !ok || changes(name):
			return false
		case equal(name, "host"):
			hosts++
			if !httpguts.ValidHostHeader(string(value)) {
				return false
			}
		}
	}
}

// plainLine judges a request line.
func plainLine(line []byte) bool {
	const version = " HTTP/1.1"
	target, ok := bytes.CutSuffix(line, []byte(version))
	if !ok {
		return false
	}
	for _, method := range [...]string{"GET ", "CONNECT ", "HEAD "} {
		if len(target) > len(method) && string(target[:len(method)]) == method {
			for _, c := range target[len(method):] {
				if c <= ' ' || c >= 0x7f {
					return false
				}
			}
			return true
		}
	}
	return false
}

// changes says of a field whether a request with it is not served here: it has a
// body, or waits for an answer before its answer, or may become something else.
func changes(name []byte) bool {
	switch len(name) {
	case 6:
		return equal(name, "expect")
	case 7:
		return equal(name, "upgrade") || equal(name, "trailer")
	case 14:
		return equal(name, "content-length") || equal(name, "http2-settings")
	case 17:
		return equal(name, "transfer-encoding")
	}
	return false
}

// cutLine takes a line off, which ends with CR LF and has neither inside.
func cutLine(b []byte) (line, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 || b[end-1] != '\r' {
		return nil, nil, false
	}
	return b[:end-1], b[end+1:], true
}

// cutField parts a field line (RFC 9112 5), whose value has no octets but text.
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return nil, nil, false
	}
	for _, c := range line[:colon] {
		if !httpguts.IsTokenRune(rune(c)) {
			return nil, nil, false
		}
	}
	value = line[colon+1:]
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, false
		}
	}
	return line[:colon], bytes.Trim(value, " \t"), true
}

// equal compares a field's name with one in small letters, without regard to case.
func equal(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
