package warc

import (
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("x"))
	for _, c := range []struct {
		name, field          string
		known, valid, equals bool
	}{
		{"as the proxy writes it", fmt.Sprintf("sha256:%x", sum), true, true, true},
		{"another content", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", true, true, false},
		{"another name", "SHA-256:2D711642B726B04401627CA9FBAC32F5C8530FB1903CC4DB02258717921A4881", true, true, true},
		{"base32, as in the examples of annex B", "sha1:CH3K3FIVCXGLP5J4KUECVFCLDMC2BP5F", true, true, false},
		{"base32 with padding", "sha256:FVYRMQVXE2YEIALCPSU7XLBS6XEFGD5RSA6MJWYCEWDRPEQ2JCAQ====", true, true, true},
		{"md5", "md5:9dd4e461268c8034f5c8564e155c67a6", true, true, true},
		{"too short", "sha256:2d711642", true, false, false},
		{"neither", "sha1:!", true, false, false},
		{"an unknown algorithm", "crc32:00000000", false, true, false},
		{"no algorithm", "2d711642", false, true, false},
	} {
		d, known, err := parseDigest(c.field)
		equals := false
		if d.Hash != nil {
			io.WriteString(d, "x")
			equals = d.matches()
		}
		if known != c.known || (err == nil) != c.valid || equals != c.equals {
			t.Errorf("%s: known %v, error %v, equal %v; want %v, %v, %v", c.name, known, err, equals, c.known, c.valid, c.equals)
		}
	}
}
