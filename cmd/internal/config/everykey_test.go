package config

import (
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// hashed is crypt_blowfish's vector for U*U.
const hashed = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"

// samples holds values of each kind, more for those whose texts need care in YAML.
var samples = map[string][]any{
	"bool":             {true, false},
	"int":              {3, 1},
	"float64":          {0.25, 1e-6},
	"time.Duration":    {75 * time.Second, 10 * time.Minute, time.Hour, 2160 * time.Hour, 1500 * time.Millisecond},
	"config.Wait":      {Wait(time.Minute + time.Second), AutoWait},
	"netip.Prefix":     {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	"time.Time":        {time.Date(2027, 1, 31, 18, 30, 0, 5, time.UTC), time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)},
	"config.Size":      {Size(65_537), Size(64 << 10), Size(3 << 40)},
	"config.AutoSize":  {AutoSize(1 << 40), Auto},
	"config.PortRange": {PortRange{8000, 8999}, PortRange{443, 443}},
	"path":             {"a dir/with: all\t\"sorts\"", "true", "~", "/etc/ca.pem", "123", "-"},
	"path-or-stdout":   {"a.jsonl", "no"},
	"address":          {"[::1]:3128"},
	"address-or-off":   {"127.0.0.1:8082", "[::1]:8083", "localhost:8084", ""},
	"server":           {"[2001:db8::1]:53"},
	"parent":           {"https://we:p%20w@proxy.example:3128", "env"},
	"host-parent":      {"socks5://we:p%20w@proxy.example:1080", "direct"},
	"tsa":              {"https://tsa.example/tsr"},
	"dashboard":        {"https://proxy-1.example:8081/"},
	"directory":        {"https://foo.example/keys"},
	"redis":            {"rediss://we:p%40w@redis.example:7000/2"},
	"replica":          {"proxy#1:\"a\""},
	"file-prefix":      {"a.b_c-1", "2027"},
	"origin":           {"example.org/crawls", "a:b"},
	"pattern":          {"*.example.com", "*", "bücher.example"},
	"pattern-or-none":  {"*.Bücher.example", "2001:db8::1", "*"},
	"robots-pattern":   {"/data/", "/*.pdf$", "/a?b=*&c"},
	"config.Status":    {Status(400), Status(451), Status(599)},
	"hours":            {"22:00-05:00 Europe/Berlin", "Sat-Sun", "robots", "Mon,Wed 06:00-24:00 America/Port-au-Prince"},
	"token":            {"123", "FooBot"},
	"purpose":          {"train-ai", "tdm"},
	"dialect":          {"google-2019", "coccoc"},
	"label":            {"job=news", "a.b_c-1=2"},
	"name":             {"lab-a", "Viện 2", "123"},
	"bcrypt":           {hashed},
	"secret":           {"0123456789abcdef", "1234567890123456"},
	"line":             {"permitted by Ms. Đặng: \"yes\", ticket #7", "true"},
	"email":            {"bot+x@foo.example"},
	"header":           {"FooBot/1.0 (+https://foo.example) # 'x'"},
}

// everyKey returns a configuration in which no key has its default. A greater round takes other samples of texts.
func everyKey(t *testing.T, round int) Config {
	t.Helper()
	c := Default()
	c.Hosts, c.Clients = make([]Host, 3), make([]Client, 3)
	for i := range 3 {
		setDefaults(reflect.ValueOf(&c.Hosts[i]).Elem())
		setDefaults(reflect.ValueOf(&c.Clients[i]).Elem())
	}
	taken := map[string]int{}
	for _, k := range leaves(reflect.ValueOf(&c).Elem(), "") {
		all, name := k.samples(), k.kindName()
		if k.kind().text() && len(all) > 0 {
			// The keys of one kind take different samples, so that a mix-up shows.
			first := (round + taken[name]) % len(all)
			taken[name]++
			all = slices.Concat(all[first:], all[:first])
		}
		if !k.take(all) {
			t.Errorf("samples has no valid value for %s (%s) besides its default", k.path, name)
		}
	}
	if runtime.GOOS != "linux" {
		c.ListenTransparent = ""
	}
	return c
}

// samples returns values of the key; of a list, one with all samples.
func (k key) samples() []any {
	if names := k.kind().names; names != nil {
		var all []any
		for _, name := range slices.Backward(names) {
			all = append(all, name)
		}
		return all
	}
	all := samples[k.kindName()]
	if !k.list() {
		return all
	}
	list := reflect.MakeSlice(k.value.Type(), 0, len(all))
	for _, v := range all {
		list = reflect.Append(list, reflect.ValueOf(v))
	}
	return []any{list.Interface()}
}

// take sets the key to the first of values that is valid and not its default.
func (k key) take(values []any) bool {
	byDefault := k.text()
	for _, v := range values {
		k.value.Set(reflect.ValueOf(v))
		if k.invalid() == "" && k.text() != byDefault {
			return true
		}
	}
	return false
}

// A configuration in which no key has its default comes back as it was written.
func TestEveryKey(t *testing.T) {
	for round := range 6 {
		c := everyKey(t, round)
		if err := c.Check(); err != nil {
			t.Error("Check:", err)
		}
		text := c.Marshal()
		if diff := cmp.Diff(c, parse(t, string(text)), compare); diff != "" {
			t.Errorf("%s\n%s", diff, text)
		}
	}
}

// Every sample is written so that it is read as the same value.
func TestSamples(t *testing.T) {
	for name, k := range kinds {
		if len(samples[name]) == 0 {
			t.Errorf("the kind %s has no samples", name)
		}
		for _, v := range samples[name] {
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(k.yaml(v)), &doc); err != nil {
				t.Errorf("%s: %s: %v", name, k.yaml(v), err)
				continue
			}
			if got, why := k.scalar(doc.Content[0]); got != v || why != "" {
				t.Errorf("%s: %s is read as %v, want %v: %s", name, k.yaml(v), got, v, why)
			}
		}
	}
}
