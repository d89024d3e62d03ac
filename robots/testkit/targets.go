package testkit

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Targets returns paths and queries that a client may send: each byte, complete and broken escapes, dot
// segments, several slashes, and long ones.
func Targets() []string {
	all := []string{
		"/", "/?", "/AC%2FDC|live", "/a%2f..%2fb|z", `/x%3By%2Bz"`,
		"/100%/x", "/%", "/%4", "/%zz", "/%%", "/%2", "/a?%", "/a?%zz=%4",
		"/..", "/a/../b|", "/./a%", "/%2e%2E/x^",
		"//", "//a", "//a|b", "///%", "//\u0085", "/a//b^", "/a;b=c|", "/*|$", "/\u00fc", "/\xff\xfe?\xff",
		"/http://b.test/%", "/se%2Fcret|", "/private%2Fx|", "/x|y",
		"/" + strings.Repeat("|", 8000), "/" + strings.Repeat("%", 8000), "/?" + strings.Repeat("\xff", 7000),
	}
	pieces := []string{
		"/", "..", ".", "%", "%2F", "%2f", "%5c", "|", "^", "\"", "?", ";", "a", "\u00fc", "\xff", "%C3", "*", "$", "%zz",
	}
	for c := 0x21; c < 0x100; c++ {
		if c != 0x7f && c != '#' {
			all = append(all, "/a"+string([]byte{byte(c)})+"b")
		}
	}
	for c := 0; c < 0x100; c += 4 {
		all = append(all, fmt.Sprintf("/%%%02X%%%02x%%%02X%%%02x%%", c, c+1, c+2, c+3))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		target := "/"
		for range random.IntN(30) {
			target += pieces[random.IntN(len(pieces))]
		}
		all = append(all, target)
	}
	return all
}
