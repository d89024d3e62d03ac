package trail

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// Some members of a line can be hidden or erased later, without a break of the chain: the hash of the line covers
// commitments to their values, in place of the values. A commitment is the SHA-256 of a random salt and the value, so that
// nobody can find the value by trying. The line has the values and, after its hash, the salts.

// A committed member is one whose value the hash covers by a commitment.
type committed struct {
	// begins is everything in the line up to the value, and saltBegins up to its salt.
	begins, saltBegins []byte

	// url says that only the path and the query are hidden.
	url bool
}

// These are in the order in which lines have them, except that an event has its client last.
const (
	clientMember = iota
	urlMember
	urlBytesMember
	agentMember
	labelsMember
	robotsAgentMember
	tdmrepAgentMember
	bodyMember
	membersCount
)

var committedMembers = [membersCount]committed{
	clientMember: commit("client"), urlMember: commit("url"), urlBytesMember: commit("url_base64"), agentMember: commit("user_agent"),
	labelsMember:      commit("labels"),
	robotsAgentMember: commit("robots_agent"), tdmrepAgentMember: commit("tdmrep_agent"),
	bodyMember: commit("body_sha256"),
}

// name returns the name of the member.
func (c *committed) name() string { return string(bytes.Trim(c.saltBegins, `":`)) }

func commit(name string) committed {
	return committed{[]byte(`,"` + name + `":"`), []byte(`"` + name + `":"`), name == "url"}
}

const (
	// saltBytes is the length of a salt, and saltLen that in a line.
	saltBytes = 16
	saltLen   = 22

	commitmentName = "sha256:"

	saltsName = `,"salts":{`
	saltsEnd  = `}}`
)

// encoding is that of salts and commitments: base64url without padding (RFC 4648 5).
var encoding = base64.RawURLEncoding.Strict()

// A span is the value of a committed member in a line: line[from:to].
type span struct {
	member   *committed
	from, to int
}

// spans are those of one line, in their order.
type spans struct {
	all [membersCount]span
	n   int
}

// findSpans returns the values of the committed members in a line, of which nothing is empty.
func findSpans(line []byte) (s spans) {
	at := s.find(line, clientMember, 0)
	urlEnd := s.find(line, urlMember, at)
	if urlEnd == 0 && at > 0 {
		// An event has its client last.
		return s
	}
	if rest := line[urlEnd:]; bytes.HasPrefix(rest[min(1, len(rest)):], committedMembers[urlBytesMember].begins) {
		urlEnd = s.find(line, urlBytesMember, urlEnd)
	}
	at = urlEnd
	for _, member := range []int{agentMember, labelsMember, robotsAgentMember, tdmrepAgentMember, bodyMember} {
		at = max(at, s.find(line, member, at))
	}
	return s
}

// find adds the value of a member that begins at line[at:] or later, and returns the place of its last quote; 0: there is none.
func (s *spans) find(line []byte, member, at int) (end int) {
	m := &committedMembers[member]
	// Within a string, the quotes of the name would be escaped.
	i := bytes.Index(line[at:], m.begins)
	if i < 0 {
		return 0
	}
	from := at + i + len(m.begins)
	end = from + stringEnd(line[from:])
	if m.url {
		from += hiddenPart(line[from:end])
	}
	if from < end {
		s.all[s.n] = span{m, from, end}
		s.n++
	}
	return end
}

// stringEnd returns where a JSON string ends, given what follows its first quote.
func stringEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			break
		}
		i += n
		// A quote is escaped if an odd number of backslashes precedes it.
		before := i
		for before > 0 && b[before-1] == '\\' {
			before--
		}
		if (i-before)%2 == 0 {
			return i
		}
	}
	return len(b)
}

// hiddenPart returns where the path and query of a URL begin; the length of the URL if it has neither.
func hiddenPart(url []byte) int {
	i := pathStart(url, 0)
	if i > 0 && url[i-1] == ':' && bytes.HasPrefix(url[i:], []byte("//")) {
		// The slashes are those of the scheme.
		i = pathStart(url, i+len("//"))
	}
	return i
}

// pathStart returns where the first slash or question mark at url[from:] or later is; the length of the URL if there is none.
func pathStart(url []byte, from int) int {
	for i := from; i < len(url); i++ {
		if url[i] == '/' || url[i] == '?' {
			return i
		}
	}
	return len(url)
}

// appendCommitment appends what the hashed form of a line has in place of a value, given its salt.
func (c *committed) appendCommitment(b, salt, value []byte) []byte {
	var text [256]byte
	sum := sha256.Sum256(append(append(text[:0], salt...), value...))
	if c.url {
		b = append(b, '/')
	}
	return encoding.AppendEncode(append(b, commitmentName...), sum[:])
}

// A Salter makes the salts of lines. It is for one goroutine. The zero Salter is valid.
type Salter struct {
	// random has random bytes, of which left are unused.
	random [4096]byte
	left   int

	// form is a buffer.
	form []byte
}

// next returns a new salt, valid until the next call.
func (s *Salter) next() []byte {
	if s.left < saltBytes {
		// rand.Read never fails (since Go 1.24).
		rand.Read(s.random[:])
		s.left = len(s.random)
	}
	s.left -= saltBytes
	return s.random[s.left : s.left+saltBytes]
}

// AppendSalted is [AppendLink] for a line whose hash covers commitments to the values that can be erased. It appends the
// member salts after the hash.
func (s *Salter) AppendSalted(b []byte, start int, seq uint64, prev Hash) ([]byte, Hash) {
	found := findSpans(b[start:])
	b = appendSeqPrev(b, seq, prev)
	if found.n == 0 {
		hash := Hash(sha256.Sum256(b[start:]))
		return append(appendHash(b, hash), "}\n"...), hash
	}
	line, at := b[start:], 0
	var salts [membersCount][saltBytes]byte
	s.form = s.form[:0]
	for i, v := range found.all[:found.n] {
		copy(salts[i][:], s.next())
		s.form = append(s.form, line[at:v.from]...)
		s.form = v.member.appendCommitment(s.form, salts[i][:], line[v.from:v.to])
		at = v.to
	}
	s.form = append(s.form, line[at:]...)
	hash := Hash(sha256.Sum256(s.form))
	b = append(appendHash(b, hash), saltsName...)
	for i, v := range found.all[:found.n] {
		b = append(b, v.member.saltBegins...)
		b = append(encoding.AppendEncode(b, salts[i][:]), `",`...)
	}
	return append(b[:len(b)-1], saltsEnd+"\n"...), hash
}

// cutSalts cuts the member salts from the end of a line, with its brace. salts is what its braces enclose; nil: it has none.
func cutSalts(line []byte) (rest, salts []byte) {
	if !bytes.HasSuffix(line, []byte(saltsEnd)) {
		return line, nil
	}
	from := max(0, len(line)-maxSalts)
	i := bytes.Index(line[from:], []byte(saltsName))
	if i < 0 {
		return line, nil
	}
	i += from
	return line[:i], line[i+len(saltsName) : len(line)-len(saltsEnd)]
}

// A salted is a value of a line with its salt.
type salted struct {
	span
	salt [saltBytes]byte
}

// readSalts returns the values of a line that have salts, given the bytes before its hash. erased is the number of the other
// values, which were replaced by their commitments. ok is false if the salts are not those of values in their order.
func readSalts(body, salts []byte) (all [membersCount]salted, n, erased int, ok bool) {
	found := findSpans(body)
	for _, v := range found.all[:found.n] {
		rest, named := bytes.CutPrefix(salts, v.member.saltBegins)
		if !named {
			erased++
			continue
		}
		if len(rest) <= saltLen || rest[saltLen] != '"' {
			return all, 0, 0, false
		}
		all[n].span = v
		if _, err := encoding.Decode(all[n].salt[:], rest[:saltLen]); err != nil {
			return all, 0, 0, false
		}
		n++
		salts = rest[saltLen+1:]
		if next, more := bytes.CutPrefix(salts, []byte(",")); more && len(next) > 0 {
			salts = next
		}
	}
	return all, n, erased, len(salts) == 0
}

// saltedHash returns the hash of a line whose bytes before the hash are body. erased and ok are as those of readSalts.
func saltedHash(body, salts []byte) (h Hash, erased int, ok bool) {
	all, n, erased, ok := readSalts(body, salts)
	if !ok || n == 0 {
		return sha256.Sum256(body), erased, ok
	}
	var buf [4096]byte
	form, at := buf[:0], 0
	for i := range all[:n] {
		v := &all[i]
		form = append(form, body[at:v.from]...)
		form = v.member.appendCommitment(form, v.salt[:], body[v.from:v.to])
		at = v.to
	}
	return sha256.Sum256(append(form, body[at:]...)), erased, true
}

// Hide returns a line, given without its line feed, in which commitments replace the values for which hide is true, and their
// salts are gone. Its hash and its place in the chain stay the same. hide is called with the name of a member and its value as
// it stands in the line; of a URL, the value is the path and the query. hidden is the number of values that were replaced. The
// error is ErrForm or ErrChanged, as of [ReadLink].
func Hide(line []byte, hide func(name string, value []byte) bool) (result []byte, hidden int, err error) {
	if _, err := ReadLink(line); err != nil {
		return nil, 0, err
	}
	_, body, salts, _ := splitLink(line)
	all, n, _, _ := readSalts(body, salts)
	var kept []byte
	at := 0
	for i := range all[:n] {
		v := &all[i]
		value := body[v.from:v.to]
		if !hide(v.member.name(), value) {
			kept = append(append(kept, v.member.saltBegins...), encoding.EncodeToString(v.salt[:])...)
			kept = append(kept, `",`...)
			continue
		}
		hidden++
		result = v.member.appendCommitment(append(result, body[at:v.from]...), v.salt[:], value)
		at = v.to
	}
	result = append(result, body[at:]...)
	result = append(result, line[len(body):len(body)+hashMemberLen]...)
	if kept == nil {
		return append(result, '}'), hidden, nil
	}
	result = append(append(result, saltsName...), kept[:len(kept)-1]...)
	return append(result, saltsEnd...), hidden, nil
}
