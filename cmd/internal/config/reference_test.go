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
		t.Error("docs/configuration.md (-) is not what go run ./cmd/robotsproxy docs config prints (+):\n", diff)
	}
	_, example, _ := strings.Cut(string(page), "```yaml file=robotsproxy.yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("the page has no example")
	}
	parse(t, example)
}

// Each key documents its zero value, if that is valid, and the unit of its numbers.
func TestEveryKeyIsDescribed(t *testing.T) {
	c := Default()
	c.Hosts, c.Clients = make([]Host, 1), make([]Client, 1)
	for _, k := range leaves(reflect.ValueOf(&c).Elem(), "") {
		zero := k
		zero.value = reflect.New(k.value.Type()).Elem()
		if k.list() {
			zero.value = reflect.MakeSlice(k.value.Type(), 0, 0)
		}
		_, says := k.tag.Lookup("zero")
		if valid := zero.invalid() == "" && !k.required(); valid != says {
			t.Errorf("%s: zero is valid: %v; the table says what it means: %v", k.path, valid, says)
		}
		number := k.value.CanInt() && k.tag.Get("kind") == "" && k.value.Type() == reflect.TypeFor[int]() || k.value.CanFloat()
		if has := k.tag.Get("unit") != ""; has != number {
			t.Errorf("%s: is a number: %v; has a unit: %v", k.path, number, has)
		}
		checkSentences(t, k)
	}
}

// checkSentences checks that a key's documentation is made of full sentences, and shorter than a
// paragraph.
func checkSentences(t *testing.T, k key) {
	t.Helper()
	doc := k.tag.Get("doc")
	if len(doc) > 300 || !strings.HasSuffix(doc, ".") || len(strings.Fields(doc)) < 4 {
		t.Errorf("%s: %q is not a short sentence with a full stop", k.path, doc)
	}
	if zero, ok := k.tag.Lookup("zero"); ok && !strings.HasPrefix(zero, "means ") {
		t.Errorf("%s: %q does not say what the zero value means", k.path, zero)
	}
}
