package trail_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"strings"

	"robotsproxy/policy/audit/trail"
)

// Two lines are sealed, read, and verified; then one is changed.
func Example() {
	text, hash := trail.AppendLink([]byte(`{"url":"http://a.test/","decision":"allow"`), 0, 1, trail.Hash{})
	start := len(text)
	text, _ = trail.AppendLink(append(text, `{"url":"http://a.test/x","decision":"block"`...), start, 2, hash)

	r := trail.NewReader("audit", strings.NewReader(string(text)))
	for {
		line, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		e, err := trail.Read(line.Text)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.URL, e.Decision)
	}

	res, err := trail.Verify(trail.NewReader("audit", strings.NewReader(string(text))), trail.VerifyOptions{})
	fmt.Println(res.Lines, res.Anchor(), err)

	changed := strings.Replace(string(text), "block", "allow", 1)
	_, err = trail.Verify(trail.NewReader("audit", strings.NewReader(changed)), trail.VerifyOptions{})
	if fault, ok := errors.AsType[*trail.Fault](err); ok {
		fmt.Println(fault.Kind)
	}
	fmt.Println(err)
	// Output:
	// 1 http://a.test/ allow
	// 2 http://a.test/x block
	// 2 2:7e488a525b997ee6d67dfba896ddea91 <nil>
	// changed
	// audit:2: seq 2: changed: the hash does not match the bytes of the line
}
