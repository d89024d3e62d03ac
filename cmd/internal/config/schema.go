package config

import (
	"bytes"
	"encoding/json"
	"reflect"

	"gopkg.in/yaml.v3"
)

// schema is a JSON schema (draft 2020-12), as far as a configuration needs it.
type schema struct {
	Dialect     string `json:"$schema,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`

	// Type is a name or a list of names.
	Type    any      `json:"type"`
	Default any      `json:"default,omitempty"`
	Enum    []string `json:"enum,omitempty"`

	// Only a text has a pattern. A text in place of a section is off.
	Pattern string `json:"pattern,omitempty"`

	// Only a number has bounds.
	Minimum    *float64   `json:"minimum,omitempty"`
	Maximum    *float64   `json:"maximum,omitempty"`
	Items      *schema    `json:"items,omitempty"`
	MinItems   int        `json:"minItems,omitempty"`
	MaxItems   int        `json:"maxItems,omitempty"`
	Properties properties `json:"properties,omitempty"`
	Required   []string   `json:"required,omitempty"`
	Additional *bool      `json:"additionalProperties,omitempty"`
}

// A property is a key of a section.
type property struct {
	name   string
	schema schema
}

// properties are the keys of a section in the order of the table.
type properties []property

// MarshalJSON returns an object with a member for each property.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, one := range p {
		value, err := asJSON(one.schema, "")
		if err != nil {
			return nil, err
		}
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(`"` + one.name + `":`)
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// asJSON returns v without the escapes that only HTML needs.
func asJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return b.Bytes(), err
}

// Schema returns the JSON schema of a configuration. Every valid configuration follows it, except for odd spellings such as fAlse
// or -0s. It does not express every rule: only [Parse] checks what depends on several keys, for example.
func Schema() []byte {
	c := Default()
	s := sectionSchema(reflect.ValueOf(&c).Elem())
	s.Dialect, s.Title = "https://json-schema.org/draft/2020-12/schema", "Configuration of robotsproxy"
	text, err := asJSON(s, "  ")
	if err != nil {
		panic("config: mistake in the table: schema: " + err.Error())
	}
	return text
}

// sectionSchema returns the schema of a section.
func sectionSchema(section reflect.Value) schema {
	s := schema{Type: []string{"object", "null"}, Additional: new(false)}
	for _, k := range fields(section, "") {
		s.Properties = append(s.Properties, property{k.name, k.schema()})
		if k.required() {
			s.Required = append(s.Required, k.name)
			s.Type = "object"
		}
	}
	return s
}

// schema returns the schema of a key, with its documentation.
func (k key) schema() (s schema) {
	switch {
	case k.section():
		s = sectionSchema(k.value)
		if _, ok := k.tag.Lookup("off"); ok {
			s.Type, s.Pattern = []string{"object", "null", "string"}, "^"+off+"$"
		}
		s.Description = k.doc()
		return s
	case k.entries():
		entry := new(sectionSchema(k.newEntry("default")))
		return schema{Description: k.doc(), Type: []string{"array", "null"}, MaxItems: maxEntries, Items: entry}
	}
	s = k.valueSchema()
	if k.list() {
		s = schema{Type: "array", Items: new(s)}
		if c, ok := k.check(); ok {
			s.MinItems = int(c.least)
		}
	}
	s.Description = k.doc()
	if s.Enum == nil {
		s.Description += " Value: " + k.values() + "."
	}
	if !k.required() {
		if err := yaml.Unmarshal([]byte(k.defaultText()), &s.Default); err != nil {
			panic("config: mistake in the table: default of " + k.path + ": " + err.Error())
		}
	}
	return s
}

// valueSchema returns the schema of the key's value; of a list, that of an item.
func (k key) valueSchema() schema {
	kind := k.kind()
	s := schema{Type: "string", Pattern: kind.pattern}
	number := kind.number
	switch {
	case number != nil:
		s.Type = []string{"string", "integer"}
	case kind.bare:
		s.Type = map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Int: "integer", reflect.Float64: "number"}[k.value.Kind()]
		if c, ok := k.check(); ok {
			number = &c.bounds
			if c.also != nil {
				number.least = min(number.least, *c.also)
			}
		}
	}
	if number != nil {
		s.Minimum, s.Maximum = &number.least, &number.most
	}
	if s.Enum = kind.names; kind.names != nil && kind.optional {
		s.Enum = append([]string{""}, s.Enum...)
	}
	return s
}
