package config

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Marshal writes every key with its value and its comment; Parse reads it back as it was.
func (c Config) Marshal() []byte {
	var b bytes.Buffer
	defaults := Default()
	writeSection(&b, "", reflect.ValueOf(&c).Elem(), reflect.ValueOf(&defaults).Elem())
	return b.Bytes()
}

// hiddenToken stands for an admin.token, and is none: it cannot be loaded.
const hiddenToken = "(hidden)"

// Redacted is the configuration without its passwords, for people to read. In
// place of each password's hash stands one that no password fits: whoever loads
// it lets nobody in whom it was not meant to let in.
func (c Config) Redacted() Config {
	c.Clients = slices.Clone(c.Clients)
	for i := range c.Clients {
		if m := bcryptHash.FindStringSubmatch(c.Clients[i].PasswordHash); m != nil {
			hidden := m[1] + m[2] + "$hidden"
			c.Clients[i].PasswordHash = hidden + strings.Repeat(".", len(m[0])-len(hidden))
		}
	}
	if c.Admin.Token != "" {
		c.Admin.Token = hiddenToken
	}
	if u, err := url.Parse(c.Egress.Parent); err != nil {
		c.Egress.Parent = "" // none that was read
	} else if _, has := u.User.Password(); has {
		c.Egress.Parent = u.Redacted()
	}
	c.Store.Redis = redactedRedis(c.Store.Redis)
	return c
}

const commentColumn = 34

func writeSection(b *bytes.Buffer, indent string, section, defaults reflect.Value) {
	byDefault := fields(defaults, "")
	for i, k := range fields(section, "") {
		line := indent + k.name + ":"
		if k.section() {
			writeLine(b, line, k.doc())
			writeSection(b, indent+"  ", k.value, byDefault[i].value)
			continue
		}
		if k.entries() {
			writeEntries(b, indent, k)
			continue
		}
		text := k.text()
		if written := k.tag.Get("default"); written != "" && text == byDefault[i].text() {
			text = written // "60s" stays "60s", not "1m"
		}
		writeLine(b, line+" "+text, k.doc())
	}
}

// writeEntries writes a list of sections; where there is none, what one would
// hold, as a comment.
func writeEntries(b *bytes.Buffer, indent string, k key) {
	entry := reflect.New(k.value.Type().Elem()).Elem()
	setDefaults(entry)
	write := func(section reflect.Value, before string) {
		var one bytes.Buffer
		before += indent + "  "
		writeSection(&one, before+"  ", section, entry)
		b.WriteString(before + "- " + one.String()[len(before)+2:])
	}
	if k.value.Len() == 0 {
		writeLine(b, indent+k.name+": []", k.tag.Get("doc"))
		sample := reflect.New(entry.Type()).Elem()
		setTo("example", sample)
		write(sample, "#")
		return
	}
	writeLine(b, indent+k.name+":", k.tag.Get("doc"))
	for i := range k.value.Len() {
		write(k.value.Index(i), "")
	}
}

func writeLine(b *bytes.Buffer, line, doc string) {
	pad := max(commentColumn-utf8.RuneCountInString(line), 1)
	fmt.Fprintf(b, "%s%s# %s\n", line, strings.Repeat(" ", pad), doc)
}

// text is the key's value as it stands in a file.
func (k key) text() string {
	kind := k.kind()
	if !k.list() {
		return kind.yaml(k.value.Interface())
	}
	items := make([]string, k.value.Len())
	for i := range items {
		items[i] = kind.yaml(k.value.Index(i).Interface())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (k kind) yaml(v any) string {
	s := k.write(v)
	if k.bare || plain(s) {
		return s
	}
	return strconv.Quote(s) // Go's escapes are all among those of YAML's double quotes
}

// plainText has nothing in it that YAML could take for something else than text,
// in a list or out of one.
var plainText = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._:/+-]*[A-Za-z0-9/]$`)

// plain says whether s can stand without quotes. That it is no number, date or truth value yaml itself must say.
func plain(s string) bool {
	if !plainText.MatchString(s) {
		return false
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) != 1 {
		return false
	}
	return n.Content[0].Kind == yaml.ScalarNode && n.Content[0].ShortTag() == "!!str" && n.Content[0].Value == s
}
