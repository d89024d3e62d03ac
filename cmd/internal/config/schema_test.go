package config

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// compileSchema compiles the schema, which includes a check against the schema of schemas.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("config.json", text); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	if s.DraftVersion != 2020 {
		t.Errorf("draft %d", s.DraftVersion)
	}
	return s
}

// instance returns a YAML value as JSON has it. Only numbers, booleans and null are not text.
func instance(t *testing.T, n *yaml.Node) any {
	t.Helper()
	switch n.Kind {
	case yaml.DocumentNode:
		return instance(t, n.Content[0])
	case yaml.AliasNode:
		return instance(t, n.Alias)
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = instance(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := []any{}
		for _, item := range n.Content {
			l = append(l, instance(t, item))
		}
		return l
	}
	var v any
	if tag := n.ShortTag(); slices.Contains([]string{"!!null", "!!bool", "!!int", "!!float"}, tag) && n.Decode(&v) == nil {
		if _, err := json.Marshal(v); err == nil { // no infinity
			return v
		}
	}
	return n.Value
}

// follows reports whether a configuration follows the schema, and the error if it does not. A text that
// is not YAML does not.
func follows(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || doc.Kind == 0 {
		return err
	}
	return s.Validate(instance(t, &doc))
}

// beyondSchema are the files in testdata/bad whose mistake the schema does not express: what depends on
// several keys or on the order of entries, a check that is no pattern, and what the YAML reader reports.
var beyondSchema = []string{
	"admin-off-loopback", "admin-on-the-proxy", "archive-total", "audit-checkpoint-stdout", "clients-everybody", "clients-networks",
	"clients-password-cost", "clients-sign", "clients-twice", "duplicate-key", "duplicate-section", "half-ca-cert", "half-ca-key",
	"half-listen-tls", "half-listen-tls-cert", "hosts-order", "limits-memory", "limits-url", "listen-everywhere-by-omission", "listen-open-to-strangers",
	"listen-transparent-open-to-strangers", "listen-with-no-clients", "metrics-everywhere-by-omission", "metrics-on-the-admin",
	"metrics-on-the-proxy", "min-age-above-max-age", "min-age-zero", "network", "network-mapped", "network-of-a-host",
	"parent-not-a-url", "parent-path", "parent-port", "parent-without-host", "parent-without-user", "ports-reversed",
	"retry-too-long", "second-document", "sign-agent-alone", "sign-key-alone", "snapshots-too-small", "store-redis-database", "store-redis-db",
	"store-redis-not-a-url", "store-redis-parameter", "store-redis-parameter-empty", "store-redis-parameter-twice",
	"store-redis-port", "store-redis-sentinel-addr", "store-redis-sentinel-of-none", "store-redis-sentinel-socket",
	"store-redis-skip-verify", "store-redis-socket", "store-redis-user-alone", "store-redis-without-host", "store-replicas-alone",
	"total-below-a-file", "usage-unknown",
}

// The schema rejects what is wrong with a key by itself.
func TestSchemaRejects(t *testing.T) {
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if rejects := follows(t, s, text) != nil; rejects == slices.Contains(beyondSchema, name) {
			t.Errorf("%s: the schema rejects the file: %v, which is not what beyondSchema says", name, rejects)
		}
	}
}

// Every valid configuration follows the schema: those of the repository, and one with every key.
func TestSchemaAccepts(t *testing.T) {
	s := compileSchema(t)
	texts := map[string][]byte{"nothing": nil, "defaults": Default().Marshal(), "every key": everyKey(t, 0).Marshal()}
	for _, text := range []string{
		"~", "identity: {from: bot+x@foo.example}", "pace:\nhosts:\nclients: []\n", "drain: 0", "drain: +1h30.5m", "drain: 1µs", "audit: {max_age: 0, max_total_size: 0, max_size: 100 KiB}",
		"hosts: [{match: a.example, cool_down: off}, {match: b.example, cool_down: {after: 3}}, {match: c.example, cool_down: }]",
		"egress: {ports: [80, 8000-8999, \"21\"]}", "pace: {requests_per_second: 1e-6}", "hosts: [{match: a.example, until: 2027-01-31T18:00:00+07:00}]",
		"hosts: [{match: Bücher.example}, {match: \"2001:db8::1\"}, {match: \"*.b.example\"}]",
	} {
		texts[text] = []byte(text)
		parse(t, text)
	}
	for name, text := range published(t) {
		texts[name] = text
	}
	for name, text := range texts {
		if err := follows(t, s, text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```")
	firstKey  = regexp.MustCompile("(?m)^([a-z_]+):")
)

// published returns the configurations in the documentation, by page.
func published(t *testing.T) map[string][]byte {
	t.Helper()
	const root = "../../.."
	all, known := map[string][]byte{}, map[string]bool{}
	for _, k := range fields(reflect.ValueOf(&Config{}).Elem(), "") {
		known[k.name] = true
	}
	err := filepath.WalkDir(root+"/docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) != ".md" && filepath.Base(path) != "config.yaml" || err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if filepath.Ext(path) == ".yaml" {
			all[path] = text
			return err
		}
		for i, m := range yamlBlock.FindAllSubmatch(text, -1) {
			block := bytes.ReplaceAll(m[1], []byte("$2y$10$…"), []byte(hashed))
			if first := firstKey.FindSubmatch(block); first != nil && known[string(first[1])] { // else it is a file of another program
				all[path+" block "+string(rune('1'+i))] = block
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if all["config.example.yaml"], err = os.ReadFile(root + "/config.example.yaml"); err != nil {
		t.Fatal(err)
	}
	if len(all) < 15 {
		t.Fatalf("only %d configurations found", len(all))
	}
	return all
}
