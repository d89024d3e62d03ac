package config

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page in the repository describes the table of keys, and its example is valid.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(page), string(Reference())); diff != "" {
		t.Error("docs/configuration.md (-) is not what go generate ./cmd/internal/config writes (+):\n", diff)
	}
	_, example, _ := strings.Cut(string(page), "```yaml file=robotsproxy.yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	parse(t, example)
}

// The page has a row for each key.
func TestReferenceIsComplete(t *testing.T) {
	c := Default()
	c.Hosts, c.Clients = make([]Host, 1), make([]Client, 1)
	keys := leaves(reflect.ValueOf(&c).Elem(), "")
	if rows := strings.Count(string(Reference()), "\n| `"); rows != len(keys) {
		t.Errorf("%d rows for %d keys", rows, len(keys))
	}
}

// Each key has a comment in whole sentences, which says what the zero value means if that is valid. Each number has a unit.
func TestEveryKeyIsDescribed(t *testing.T) {
	c := Default()
	c.Hosts, c.Clients = make([]Host, 1), make([]Client, 1)
	for _, k := range everyField(reflect.ValueOf(&c).Elem(), "") {
		doc := comments()[k.field]
		if len(doc) > 500 || !strings.HasSuffix(doc, ".") || len(strings.Fields(doc)) < 4 {
			t.Errorf("%s: the comment %q is no short paragraph of whole sentences", k.path, doc)
		}
		if k.section() || k.entries() {
			continue
		}
		zero, name := k, "An empty list"
		if k.list() {
			zero.value = reflect.MakeSlice(k.value.Type(), 0, 0)
		} else {
			zero.value = reflect.New(k.value.Type()).Elem()
			name = zero.plainText()
		}
		if name == "" {
			name = "An empty value"
		}
		says := strings.HasPrefix(doc, name+" means ") || strings.Contains(doc, ". "+name+" means ")
		if valid := zero.invalid() == "" && !k.required(); valid != says {
			t.Errorf("%s: zero is valid: %v; the comment says %q: %v", k.path, valid, name+" means", says)
		}
		number := k.value.CanInt() && k.tag.Get("kind") == "" && k.value.Type() == reflect.TypeFor[int]() || k.value.CanFloat()
		if has := k.tag.Get("unit") != ""; has != number {
			t.Errorf("%s: is a number: %v; has a unit: %v", k.path, number, has)
		}
	}
}

// everyField returns the keys of a section and of all sections in it, the sections themselves among them.
func everyField(section reflect.Value, path string) (all []key) {
	for _, k := range fields(section, path) {
		all = append(all, k)
		switch {
		case k.section():
			all = append(all, everyField(k.value, k.path)...)
		case k.entries():
			all = append(all, everyField(k.value.Index(0), entryPath(k.path, 0))...)
		}
	}
	return all
}
