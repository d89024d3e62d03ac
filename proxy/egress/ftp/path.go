package ftp

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"robotsproxy/robots"
)

// maxPath is the maximum length of the path in a command, in bytes, so that a command is
// sent in one piece.
const maxPath = 2 << 10

// ErrPath marks the path of an ftp URL that the proxy does not request.
var ErrPath = errors.New("path not allowed for FTP")

// A remotePath is a file or a directory, relative to the login directory. It cannot lead
// out of the login directory: the server must get exactly the path that was matched
// against robots.txt.
type remotePath struct {
	// names are decoded; empty: the login directory itself.
	names []string
	dir   bool
}

// CheckPath reports whether the path and query of an ftp URL can be requested, in the
// form in which they would be sent. It does not use the network. Its error is ErrPath.
//
// CheckPath refuses segments that are empty, ".", "..", or contain a slash: with RFC 1738
// 3.2.2, an empty segment or an escaped slash can lead to the root, where the rules of
// robots.txt would not match. It refuses bytes that would end or change a command:
// control characters, and 255, the escape of Telnet (RFC 959 4.1.3, RFC 854). It refuses
// names that begin or end with a space, which servers remove, names with a backslash,
// which separates names on some servers, and a "~" before the first name, which means
// another directory. A "?" is part of a name: ftp URLs have no query.
func CheckPath(pathQuery string) error {
	_, err := parsePath(pathQuery)
	return err
}

func parsePath(pathQuery string) (remotePath, error) {
	path, code := robots.CutFTPType(pathQuery)
	p := remotePath{dir: code == 'd' || strings.HasSuffix(path, "/")}
	path, ok := strings.CutPrefix(path, "/")
	if !ok {
		return remotePath{}, fmt.Errorf("%w: must begin with a slash", ErrPath)
	}
	if path == "" {
		return p, nil
	}
	size := 0
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		name, err := url.PathUnescape(segment)
		if err != nil || !isName(name) || len(p.names) == 0 && name[0] == '~' {
			return remotePath{}, fmt.Errorf("%w: a segment is not a plain name", ErrPath)
		}
		p.names = append(p.names, name)
		size += len(name) + len("/")
	}
	if size > maxPath {
		return remotePath{}, fmt.Errorf("%w: longer than %d bytes", ErrPath, maxPath)
	}
	return p, nil
}

// isName reports whether a name can stand between two slashes, and in a command.
func isName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.Trim(name, " ") != name {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c == 0x7f || c == 0xff || c == '/' || c == '\\' {
			return false
		}
	}
	return true
}

// String returns the path in the form of a command.
func (p remotePath) String() string { return strings.Join(p.names, "/") }

// url returns the path of the directory in the form of its URL.
func (p remotePath) url() string {
	var b strings.Builder
	b.WriteByte('/')
	for _, name := range p.names {
		b.WriteString(url.PathEscape(name))
		b.WriteByte('/')
	}
	return b.String()
}
