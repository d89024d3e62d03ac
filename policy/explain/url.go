package explain

import (
	"errors"
	"net/url"
	"strings"

	"robotsproxy/robots"
)

// ParseURL reads the URL of a request as the proxy does, or says why the proxy would not take it.
func ParseURL(address string) (o robots.Origin, pathQuery string, err error) {
	if !strings.Contains(address, "://") { // url.Parse would take "site.test:8000" for a scheme
		return o, "", errors.New("no scheme: a URL begins with http://, https:// or ftp://")
	}
	u, err := url.Parse(address)
	if err != nil {
		return o, "", errors.Unwrap(err) // without the URL, which the caller knows
	}
	if u.User != nil {
		return o, "", errors.New("credentials in the URL, which the proxy refuses")
	}
	o, err = robots.ParseOrigin(u.Scheme, u.Host)
	return o, u.RequestURI(), err
}
