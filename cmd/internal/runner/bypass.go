package runner

import (
	"fmt"
	"io"
)

// printBypass prints what the command argv sent past the proxy, why, and how to prevent that. nothing says that the
// proxy received no request, and so the command may have sent all of them past it.
func printBypass(w io.Writer, argv []string, past *directConns, nothing bool) {
	pairs := past.pairs()
	if len(pairs) == 0 && !nothing {
		return
	}
	past.print(w)
	hint := clientOf(argv)
	// The command may have run several programs.
	if len(pairs) > 0 {
		hint = clientNamed(pairs[0].program)
	}
	verdict := "The proxy judged none of these connections."
	if nothing {
		verdict = "NOTHING WAS JUDGED."
	}
	switch {
	case hint != nil:
		hint.print(w)
	case nothing:
		fmt.Fprintln(w, "  (Go, Ruby, Java and Chromium bypass any proxy for addresses of this machine.)")
	}
	fmt.Fprintf(w, "robotsproxy: %s Use robotsproxy run --confine -- COMMAND (Linux), "+
		"or set the URL that COMMAND finds in $http_proxy in the client's own settings.\n", verdict)
}

// print prints the hint.
func (c *client) print(w io.Writer) {
	fmt.Fprintf(w, "  %s\n", c.why)
	for _, line := range c.try {
		fmt.Fprintf(w, "    %s\n", line)
	}
}
