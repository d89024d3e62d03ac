package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"robotsproxy/policy/labels"
)

// hopByHop reports whether a field, by its canonical name, concerns only one connection (RFC 9110
// 7.6.1, and further fields that older software treats in this way).
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Proxy-Authentication-Info", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// stripHop removes the hop-by-hop fields and those that Connection names.
func stripHop(h http.Header) { strip(h, hopByHop) }

// stripRequest removes hop-by-hop fields, as stripHop does, fields that name another target, and labels.
func stripRequest(h http.Header) {
	strip(h, func(name string) bool { return hopByHop(name) || namesTarget(name) || name == labelField })
}

// labelField is the field in which a client gives a request labels. It is for the proxy alone.
const labelField = "Robotsproxy-Label"

// labelsOf returns the labels that a client gives a request. An error matches errLabels.
func labelsOf(h http.Header) (labels.Set, error) {
	fields := h[labelField]
	if len(fields) == 0 {
		return "", nil
	}
	l, err := labels.Parse(fields...)
	if err != nil {
		err = fmt.Errorf("%w: %w", errLabels, err)
	}
	return l, err
}

// namesTarget reports whether some servers use the URL in a field of this name instead of the
// request's target, which is the one that was judged. Some servers treat "_" like "-".
func namesTarget(name string) bool {
	const original, rewrite = "X-Original-Url", "X-Rewrite-Url"
	if len(name) != len(original) && len(name) != len(rewrite) {
		return false
	}
	name = strings.ReplaceAll(name, "_", "-")
	return strings.EqualFold(name, original) || strings.EqualFold(name, rewrite)
}

// strip removes the fields that Connection names and those for which remove returns true.
func strip(h http.Header, remove func(name string) bool) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	for name := range h {
		if remove(name) {
			delete(h, name)
		}
	}
}

// stripTrailer removes trailer fields that must not pass: those that allowedInTrailer
// forbids, and those that the message's Connection header names (RFC 9110 7.6.1).
func stripTrailer(trailer http.Header, connection []string) {
	for name := range trailer {
		if !allowedInTrailer(name) || httpguts.HeaderValuesContainsToken(connection, name) {
			delete(trailer, name)
		}
	}
}

// allowedInTrailer reports whether a field, by its canonical name, may follow a body. It forbids
// fields that frame, route or authenticate a message, say how to read it (RFC 9110 6.5.1), identify
// its sender, or concern one connection. A recipient that merges the trailer into the head would
// take them for fields of the head, which the proxy and others have already used. Many recipients
// treat "_" like "-".
func allowedInTrailer(name string) bool {
	name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
	switch name {
	// These identify the sender.
	case "User-Agent", "From", "Cookie", "Set-Cookie", "Origin", "Referer",
		// These route.
		"Forwarded", "Via", "Location", "Alt-Svc", "Alt-Used", "X-Real-Ip", "X-Host", "X-Method-Override":
		return false
	}
	for _, prefix := range [...]string{
		"Proxy-", "Sec-", "Signature", "X-Forwarded", "X-Original-", "X-Rewrite-", "X-Http-", "X-Client-", "X-Remote-",
	} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	// Such fields have the address of the client.
	for _, suffix := range [...]string{"Client-Ip", "Connecting-Ip"} {
		if strings.HasSuffix(name, suffix) {
			return false
		}
	}
	return httpguts.ValidTrailerHeader(name) && !hopByHop(name)
}

// announcedTrailer returns the trailer fields that a request announced and that may pass,
// without values, or nil. Only these fields are sent, whatever follows the body.
func announcedTrailer(r *http.Request) http.Header {
	if len(r.Trailer) == 0 {
		return nil
	}
	trailer := make(http.Header, len(r.Trailer))
	for name := range r.Trailer {
		trailer[name] = nil
	}
	stripTrailer(trailer, r.Header["Connection"])
	if len(trailer) == 0 {
		return nil
	}
	return trailer
}

// upgradeTo returns the protocol to which a request asks to change, in lower case, or "". It
// supports only websocket: the proxy does not check what follows an upgrade, and h2c would
// carry further requests.
func upgradeTo(h http.Header) string {
	hasToken := httpguts.HeaderValuesContainsToken
	if len(h["Upgrade"]) == 0 || !hasToken(h["Connection"], "upgrade") || !hasToken(h["Upgrade"], "websocket") {
		return ""
	}
	return "websocket"
}

// isLoop reports whether a request has been through the proxy with this pseudonym.
func isLoop(h http.Header, pseudonym string) bool {
	for _, v := range h["Via"] {
		if strings.Contains(v, pseudonym) {
			return true
		}
	}
	return false
}

// prepareResponse changes the header of an origin's response into that of the response to the
// client.
func prepareResponse(status int, header http.Header, via []string) {
	stripHop(header)
	if status == http.StatusNoContent || status == http.StatusNotModified {
		// Such a response has no body (RFC 9110 8.6), for which some clients would wait.
		delete(header, "Content-Length")
	}
	addVia(header, via)
	if before := header["Proxy-Status"]; len(before) > 0 {
		// The last member belongs to the nearest proxy (RFC 9209 2), which is this one. Without
		// it, an origin could imitate a refusal of this proxy.
		header["Proxy-Status"] = append(before, "robotsproxy; received-status="+strconv.Itoa(status))
	}
	for _, name := range [...]string{"Content-Type", "Date"} {
		if _, ok := header[name]; !ok {
			// net/http adds its own unless the field is there without a value.
			header[name] = nil
		}
	}
}

// addVia adds via, which has one value, to the Via header of a message (RFC 9110 7.6.3).
// Messages without a Via header share the slice, which nobody changes.
func addVia(header http.Header, via []string) {
	if before := header["Via"]; len(before) > 0 {
		header["Via"] = append(before, via[0])
		return
	}
	header["Via"] = via
}

// parseRetryAfter parses Retry-After (RFC 9110 10.2.3): seconds or a date. It returns 0 if the
// field is absent or invalid. Values from 2^31 s on count as 2^31-1 s.
func parseRetryAfter(v string, now time.Time) time.Duration {
	v = textproto.TrimString(v)
	if s, err := strconv.ParseUint(v, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		// ParseUint returns the largest number of 31 bits for one that is out of range.
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
