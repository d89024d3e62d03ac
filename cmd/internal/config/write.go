package config

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Marshal returns a file with every key, its value and its comment. Parse reads the same configuration from it.
func (c Config) Marshal() []byte {
	var b bytes.Buffer
	defaults := Default()
	writeSection(&b, "", reflect.ValueOf(&c).Elem(), reflect.ValueOf(&defaults).Elem())
	return b.Bytes()
}

// hiddenToken replaces an admin.token. It is not a valid token, so Parse refuses it.
const hiddenToken = "(hidden)"

// Redacted returns the configuration without its secrets, for people to read. A password hash is replaced by one that no password
// matches, so that a proxy that loads the redacted configuration lets nobody else in.
func (c Config) Redacted() Config {
	c.Clients = slices.Clone(c.Clients)
	for i := range c.Clients {
		for _, hash := range []*string{&c.Clients[i].PasswordHash, &c.Clients[i].PasswordHashNext} {
			if m := bcryptHash.FindStringSubmatch(*hash); m != nil {
				hidden := m[1] + m[2] + "$hidden"
				*hash = hidden + strings.Repeat(".", len(m[0])-len(hidden))
			}
		}
	}
	if c.Admin.Token != "" {
		c.Admin.Token = hiddenToken
	}
	c.Hosts = slices.Clone(c.Hosts)
	for i := range c.Hosts {
		c.Hosts[i].Parent = redactedURL(c.Hosts[i].Parent)
	}
	c.Egress.Parent, c.Store.Redis = redactedURL(c.Egress.Parent), redactedURL(c.Store.Redis)
	return c
}

// redactedURL returns the URL s without its passwords. It is still valid. Text that is no URL becomes "".
func redactedURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	_, inUser := u.User.Password()
	asked := u.Query()
	if !inUser && !asked.Has("password") {
		return s
	}
	if asked.Has("password") {
		// url.URL.Redacted writes the same for the password of a user.
		asked.Set("password", "xxxxx")
		u.RawQuery = asked.Encode()
	}
	return u.Redacted()
}

// lineWidth is the width of comments, in characters.
const lineWidth = 100

func writeSection(b *bytes.Buffer, indent string, section, defaults reflect.Value) {
	byDefault := fields(defaults, "")
	for i, k := range fields(section, "") {
		if indent == "" && i > 0 {
			b.WriteByte('\n')
		}
		writeComment(b, indent, k.comment())
		switch {
		case k.section():
			fmt.Fprintf(b, "%s%s:\n", indent, k.name)
			writeSection(b, indent+"  ", k.value, byDefault[i].value)
		case k.entries():
			writeEntries(b, indent, k)
		default:
			text := k.text()
			if written := k.tag.Get("default"); written != "" && text == byDefault[i].text() {
				// The default stays as the table has it: "60s", not "1m".
				text = written
			}
			fmt.Fprintf(b, "%s%s: %s\n", indent, k.name, text)
		}
	}
}

// writeEntries writes a list of sections. An empty list is followed by an example entry in comments.
func writeEntries(b *bytes.Buffer, indent string, k key) {
	entry := k.newEntry("default")
	write := func(section reflect.Value, before string) {
		var one bytes.Buffer
		before += indent + "  "
		writeSection(&one, before+"  ", section, entry)
		first := before + "  " + fields(section, "")[0].name + ":"
		b.WriteString(strings.Replace(one.String(), first, before+"- "+first[len(before)+2:], 1))
	}
	if k.value.Len() == 0 {
		fmt.Fprintf(b, "%s%s: []\n", indent, k.name)
		write(k.newEntry("example"), "#")
		return
	}
	fmt.Fprintf(b, "%s%s:\n", indent, k.name)
	for i := range k.value.Len() {
		write(k.value.Index(i), "")
	}
}

// writeComment writes text as comment lines that break between words.
func writeComment(b *bytes.Buffer, indent, text string) {
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line+" "+word) > lineWidth {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// comment returns the key's documentation and its default.
func (k key) comment() string {
	doc := k.doc()
	if !k.section() && !k.entries() && !k.required() {
		doc += " Default: " + k.defaultText() + "."
	}
	return doc
}
