package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStripHop(t *testing.T) {
	for _, c := range []struct {
		name      string
		in, after http.Header
	}{
		{"RFC 9110 7.6.1: known hop-by-hop fields", http.Header{
			"Connection": {"close"}, "Keep-Alive": {"timeout=5"}, "Proxy-Connection": {"keep-alive"}, "Te": {"deflate"},
			"Transfer-Encoding": {"chunked"}, "Upgrade": {"h2c"}, "Trailer": {"X"}, "Proxy-Authorization": {"Basic x"}, "Http2-Settings": {"AAA"}, "Accept": {"*/*"},
		}, http.Header{"Accept": {"*/*"}}},
		{"RFC 9110 7.6.1: fields named by Connection", http.Header{"Connection": {"x-one, X-Two", "x-three"}, "X-One": {"1"}, "X-Two": {"2"}, "X-Three": {"3"}, "X-Four": {"4"}},
			http.Header{"X-Four": {"4"}}},
		{"an empty element", http.Header{"Connection": {" , ,"}, "X": {"1"}}, http.Header{"X": {"1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stripHop(c.in)
			if diff := cmp.Diff(c.after, c.in); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMayTrail lists fields in the form of http.Header, which is canonical only without "_".
func TestMayTrail(t *testing.T) {
	for name, want := range map[string]bool{
		"X-Sum": true, "Server-Timing": true, "Digest": true, "Grpc-Status": true, "X_sum": true, "X-Hostname": true,
		"Content-Length": false, "Connection": false, "User-Agent": false, "X-Forwarded-Host": false, "X-Real-Ip": false,
		"X-Original-Host": false, "X-Host": false, "X-Http-Host-Override": false, "X-Client-Ip": false, "True-Client-Ip": false,
		"X-Forwarded": false, "X-Original-Forwarded-For": false, "Cf-Connecting-Ip": false, "X-Cluster-Client-Ip": false,
		"X-Remote-Addr": false, "X-Rewrite-Url": false, "X-Http-Method-Override": false,
		"X_forwarded_host": false, "User_agent": false, "X_original-Url": false,
	} {
		if got := allowedInTrailer(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestUpgradeTo(t *testing.T) {
	for _, c := range []struct {
		name string
		h    http.Header
		want string
	}{
		{"none", http.Header{}, ""},
		{"websocket", http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"WebSocket"}}, "websocket"},
		{"h2c, which would carry unchecked requests", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, ""},
		{"not named by Connection", http.Header{"Upgrade": {"websocket"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := upgradeTo(c.h); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"seconds", "120", 2 * time.Minute},
		{"white space", " 7 ", 7 * time.Second},
		{"date", "Sat, 21 Nov 2026 10:01:00 GMT", time.Minute},
		{"past date", "Sat, 21 Nov 2026 09:00:00 GMT", 0},
		{"none", "", 0},
		{"negative", "-5", 0},
		{"fraction", "1.5", 0},
		{"2^31 s", "2147483648", (1<<31 - 1) * time.Second},
		{"overflow", "99999999999999999999", (1<<31 - 1) * time.Second},
		{"a sign", "+5", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parseRetryAfter(c.value, now); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
