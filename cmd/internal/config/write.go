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

// Marshal returns a file with every key, its value and its comment. Parse reads the same
// configuration from it.
func (c Config) Marshal() []byte {
	var b bytes.Buffer
	defaults := Default()
	writeSection(&b, "", reflect.ValueOf(&c).Elem(), reflect.ValueOf(&defaults).Elem())
	return b.Bytes()
}

// hiddenToken replaces an admin.token. It is not a valid token, so Parse refuses it.
const hiddenToken = "(hidden)"

// Redacted returns the configuration without its secrets, for people to read. A
// password hash is replaced by one that no password matches, so that a proxy that
// loads the redacted configuration lets nobody else in.
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
		c.Egress.Parent = "" // Parse accepts no such URL
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

// writeEntries writes a list of sections. An empty list is followed by an example
// entry in comments.
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
