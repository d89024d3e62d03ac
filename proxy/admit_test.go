package proxy

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"robotsproxy/policy"
)

func TestLogin(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	wrong := policy.Login{Offered: true}
	is := func(name, password string) policy.Login {
		return policy.Login{Offered: true, Name: name, Password: password}
	}
	longest := strings.Repeat("x", maxCredentials/4*3-5) // including "Basic " and the colon
	for _, c := range []struct {
		name   string
		fields []string
		want   policy.Login
	}{
		{"no field", nil, policy.Login{}},
		{"RFC 7617 2", []string{"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}, is("Aladdin", "open sesame")},
		{"RFC 7617 2.1: UTF-8", []string{"Basic dGVzdDoxMjPCow=="}, is("test", "123£")},
		{"RFC 9110 11.1: the scheme is case-insensitive", []string{"bAsIc " + b64([]byte("a:b"))}, is("a", "b")},
		{"RFC 9110 11.4: blanks", []string{"Basic    " + b64([]byte("a:b"))}, is("a", "b")},
		{"a colon in the password", []string{"Basic " + b64([]byte("a:b:c"))}, is("a", "b:c")},
		{"empty password", []string{"Basic " + b64([]byte("a:"))}, is("a", "")},
		{"empty name", []string{"Basic " + b64([]byte(":b"))}, is("", "b")},
		{"no colon", []string{"Basic " + b64([]byte("ab"))}, wrong},
		{"empty field", []string{""}, wrong},
		{"no token", []string{"Basic"}, wrong},
		{"an empty token", []string{"Basic "}, wrong},
		{"no base64", []string{"Basic a:b"}, wrong},
		{"half of base64", []string{"Basic " + b64([]byte("a:bcde"))[:5]}, wrong},
		{"a token and more", []string{"Basic " + b64([]byte("a:b")) + ", realm=x"}, wrong},
		{"Bearer", []string{"Bearer " + b64([]byte("a:b"))}, wrong},
		{"Digest", []string{`Digest username="a", realm="robotsproxy", nonce="x", response="y"`}, wrong},
		{"two fields", []string{"Basic " + b64([]byte("a:b")), "Basic " + b64([]byte("a:b"))}, wrong},
		{"maximum length", []string{"Basic " + b64([]byte("a:"+longest[3:]))}, is("a", longest[3:])},
		{"longer than the maximum", []string{"Basic " + b64([]byte("a:"+longest))}, wrong},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := login(http.Header{"Proxy-Authorization": c.fields}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func BenchmarkLogin(b *testing.B) {
	h := http.Header{"Proxy-Authorization": {"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}}
	b.ReportAllocs()
	for b.Loop() {
		login(h)
	}
}
