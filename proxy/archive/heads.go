package archive

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"robotsproxy/proxy/archive/warc"
	"robotsproxy/robots"
)

var (
	// secretFields are the fields that are left out unless Options.KeepSecrets is set, by their canonical names.
	secretFields = []string{"Authorization", "Proxy-Authorization", "Cookie", "Cookie2", "Set-Cookie", "Set-Cookie2"}

	// urlFields are the fields whose values are URLs, by their canonical names.
	urlFields = []string{"Referer", "Location", "Content-Location"}
)

// withoutSecrets returns a URL without what the Options leave out: its query, and user and password.
func withoutSecrets(url string, o *Options) string {
	if o.DropQuery {
		url, _, _ = strings.Cut(url, "?")
	}
	if scheme, rest, ok := strings.Cut(url, "//"); ok && !o.KeepSecrets && (scheme == "" || strings.HasSuffix(scheme, ":")) {
		end := strings.IndexAny(rest+"/", "/?#")
		url = scheme + "//" + rest[strings.LastIndexByte(rest[:end], '@')+1:]
	}
	return url
}

// lineEnds replaces what some readers take for the end of a line.
var lineEnds = strings.NewReplacer("\n", " ", "\r", " ")

// pathQuery returns the path and query of a request as it was sent, or the path alone.
func pathQuery(r *http.Request, o *Options) string {
	target := robots.PathQueryOf(r.URL)
	if o.DropQuery {
		target, _, _ = strings.Cut(target, "?")
	}
	return target
}

// targetURI returns the URL of a request, without user and password, as WARC-Target-URI has it.
func targetURI(r *http.Request, o *Options) string {
	target := pathQuery(r, o)
	// RFC 9112 3.2.4: "*" means the whole origin.
	if target == "*" {
		target = ""
	}
	return r.URL.Scheme + "://" + r.URL.Host + warc.EscapeURL(target)
}

// requestHead returns the head of a request as HTTP/1.1 has it.
func requestHead(r *http.Request, o *Options) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, pathQuery(r, o), cmp.Or(r.Host, r.URL.Host))
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case r.ContentLength >= 0:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", r.ContentLength)
	default:
		b.WriteString("X-Orig-Transfer-Encoding: chunked\r\n")
	}
	writeFields(&b, r.Header, o, "Host", "Content-Length", "Transfer-Encoding")
	return b.Bytes()
}

// responseHead returns the head of a response as HTTP/1.1 has it. A transfer coding, which is not part of the
// archived body, has the field X-Orig-Transfer-Encoding.
func responseHead(resp *http.Response, o *Options) []byte {
	var b bytes.Buffer
	text := strings.TrimPrefix(strings.TrimPrefix(resp.Status, strconv.Itoa(resp.StatusCode)), " ")
	text = lineEnds.Replace(text)
	if text == "" && resp.ProtoMajor != 1 {
		text = http.StatusText(resp.StatusCode)
	}
	minor := 1
	if resp.ProtoMajor == 1 && resp.ProtoMinor == 0 {
		minor = 0
	}
	fmt.Fprintf(&b, "HTTP/1.%d %03d %s\r\n", minor, resp.StatusCode, text)
	for _, coding := range resp.TransferEncoding {
		fmt.Fprintf(&b, "X-Orig-Transfer-Encoding: %s\r\n", coding)
	}
	writeFields(&b, resp.Header, o, "Transfer-Encoding")
	return b.Bytes()
}

// writeFields writes a header and the blank line behind it. It leaves out the fields in without, and what the Options
// leave out.
func writeFields(b *bytes.Buffer, header http.Header, o *Options, without ...string) {
	kept := make(http.Header, len(header))
	for name, values := range header {
		switch {
		case slices.Contains(without, name), !o.KeepSecrets && slices.Contains(secretFields, name):
		case slices.Contains(urlFields, name):
			for _, v := range values {
				kept[name] = append(kept[name], withoutSecrets(v, o))
			}
		default:
			kept[name] = values
		}
	}
	// Writing to a Buffer returns no error.
	kept.Write(b)
	b.WriteString("\r\n")
}

// protocols returns the values of WARC-Protocol for the connection of a response. version is that of TLS on
// the connection, which may be one to an upstream proxy; 0: none.
func protocols(sent *http.Request, resp *http.Response, version uint16) (all []string) {
	switch {
	case sent.URL.Scheme == "ftp":
		return []string{"ftp"}
	case resp.ProtoMajor == 2:
		all = append(all, "h2")
	default:
		all = append(all, fmt.Sprintf("http/1.%d", resp.ProtoMinor))
	}
	if sent.URL.Scheme != "https" {
		return all
	}
	switch version {
	case tls.VersionTLS12:
		all = append(all, "tls/1.2")
	case tls.VersionTLS13:
		all = append(all, "tls/1.3")
	}
	return all
}
