package testkit

import "testing"

func TestShellComment(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"none", "echo a\n", ""},
		{"at the end of a line", "echo a  # don't\necho b\n", "# don't"},
		{"a whole line", "echo a\n# b\n", "# b"},
		{"after a separator", "echo a;# b", "# b"},
		{"in single quotes", "sed -i '1i # a' b", ""},
		{"in double quotes", `echo "a # b" c`, ""},
		{"in quotes over lines", "echo 'a\n# b'\n", ""},
		{"behind an escaped quote", `echo "a\" # b" # c`, "# c"},
		{"a backslash in single quotes", `echo 'a\' # b`, "# b"},
		{"escaped", `echo \# a`, ""},
		{"in a word", "echo ${a#b} a#b $# http://a.test/#b", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ShellComment(c.script); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
