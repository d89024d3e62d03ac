package trail

import (
	"bytes"
	"testing"
)

func FuzzReadLink(f *testing.F) {
	line, hash := AppendLink([]byte(`{"time":"2026"`), 0, 1, Hash{})
	f.Add(line[:len(line)-1])
	line, _ = AppendLink([]byte(`{"a":"\"seq\":1"`), 0, 18446744073709551615, hash)
	f.Add(line[:len(line)-1])
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, err := ReadLink(line)
		if err != nil {
			return
		}
		// What is taken for a line of a trail is what AppendLink makes of its beginning.
		body := line[:bytes.LastIndex(line, []byte(seqName))]
		again, hash := AppendLink(bytes.Clone(body), 0, l.Seq, l.Prev)
		if hash != l.Hash || !bytes.Equal(again, append(bytes.Clone(line), '\n')) {
			t.Errorf("%q is read as %v, which is sealed as %q", line, l, again)
		}
	})
}
