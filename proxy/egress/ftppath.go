package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"robotsproxy/robots"
)

// maxFTPName bounds what is asked for, in octets, so that a command is written
// in one piece.
const maxFTPName = 2 << 10

// ErrFTPPath marks the path of an ftp URL that is not asked for.
var ErrFTPPath = errors.New("no path that is asked for by FTP")

// An ftpPath is a file or a directory, from the login directory on: what the
// rules are asked about is what the server is asked for, so there is no way
// above the login directory.
type ftpPath struct {
	names []string // decoded; none: the login directory itself
	dir   bool
}

// CheckFTPPath says, without using the network, whether the path and query of
// an ftp URL, as they would be sent, can be asked for: ErrFTPPath if not.
//
// RFC 1738 3.2.2 makes each segment a directory of its own, and so lets an
// empty one or one with an escaped slash lead to the root. Rules of robots.txt
// would not follow there: a segment that is empty, "." or "..", or holds a
// slash, is refused. So are octets that would end or change a command (control
// characters, and 255, Telnet's escape; RFC 959 4.1.3, RFC 854), and names that
// begin or end with a space, which servers take off; a backslash, which separates
// names on some; and a "~" before the first, which stands for another directory.
// A "?" is part of a name: ftp URLs have no query.
func CheckFTPPath(pathQuery string) error {
	_, err := parseFTPPath(pathQuery)
	return err
}

func parseFTPPath(pathQuery string) (ftpPath, error) {
	path, code := robots.CutFTPType(pathQuery)
	p := ftpPath{dir: code == 'd' || strings.HasSuffix(path, "/")}
	path, ok := strings.CutPrefix(path, "/")
	if !ok {
		return ftpPath{}, fmt.Errorf("%w: it does not begin with a slash", ErrFTPPath)
	}
	if path == "" {
		return p, nil
	}
	size := 0
	for segment := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		name, err := url.PathUnescape(segment)
		if err != nil || !isFTPName(name) || len(p.names) == 0 && name[0] == '~' {
			return ftpPath{}, fmt.Errorf("%w: a segment is no plain name", ErrFTPPath)
		}
		p.names = append(p.names, name)
		size += len(name) + len("/")
	}
	if size > maxFTPName {
		return ftpPath{}, fmt.Errorf("%w: it is longer than %d octets", ErrFTPPath, maxFTPName)
	}
	return p, nil
}

// isFTPName says whether a name can stand between two slashes, and in a command.
func isFTPName(name string) bool {
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

// String gives the path as the server is asked for it.
func (p ftpPath) String() string { return strings.Join(p.names, "/") }

// url gives the path of the directory as its URL has it.
func (p ftpPath) url() string {
	var b strings.Builder
	b.WriteByte('/')
	for _, name := range p.names {
		b.WriteString(url.PathEscape(name))
		b.WriteByte('/')
	}
	return b.String()
}
