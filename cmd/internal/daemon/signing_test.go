package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/signature"
	"robotsproxy/robots/testkit"
)

// exampleKey is that of RFC 9421 B.1.4.
const exampleKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n"

func TestSigningKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	good, _ := newSigningKey(t)
	file := func(text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "bot.pem")
		testkit.Must(t, os.WriteFile(name, []byte(text), mode))
		return name
	}
	for _, c := range []struct{ name, key, next, want string }{
		{"missing", "/nowhere/bot.pem", "", "identity.sign.key: open /nowhere/bot.pem: no such file or directory: create the key with robotsproxy identity key"},
		{"others may read it", file(string(signature.NewKey().PEM()), 0o644), "", "has mode 0644, which lets other users access it: run chmod 600 on it, and replace the key"},
		{"the group may read it", file(string(signature.NewKey().PEM()), 0o640), "", "has mode 0640"},
		{"no key", file("text", 0o600), "", "contains neither a PEM private key (PKCS #8) nor a JWK"},
		{"everybody's key", file(exampleKey, 0o600), "", "contains the example key of RFC 9421"},
		{"the next key is missing", good, "/nowhere/next.pem", "identity.sign.key_next: open /nowhere/next.pem: no such file or directory: create the key with robotsproxy identity key --next"},
		{"the next key is the same", good, good, "identity.sign.key_next: the key is the same as identity.sign.key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Identity.Sign.Key, cfg.Identity.Sign.KeyNext, cfg.Identity.Sign.Agent = c.key, c.next, "https://bot.example/keys"
			if _, _, err := Signers(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := CheckFiles(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("config check: %v, want %q", err, c.want)
			}
		})
	}
}

func TestSigningKeyOfAClientNamesItsEntry(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Clients = []config.Client{{Name: "a"}, {Name: "b"}}
	cfg.Clients[1].Identity.Sign = config.ClientSign{Key: "/nowhere/b.pem", Agent: "https://bot.example/b"}
	if _, err := Agents(cfg); err == nil || !strings.HasPrefix(err.Error(), "clients entry 2: identity.sign.key: open ") {
		t.Error(err)
	}
}

// TestSigningKeyIsReloaded checks that a key that changes in its file takes effect, and that a broken one
// does not.
func TestSigningKeyIsReloaded(t *testing.T) {
	t.Parallel()
	file, first := newSigningKey(t)
	s := stand(t, keys{"identity.sign": item{"key": file, "agent": "https://bot.example/keys"}})
	if _, watched := fileSums(s.daemon.Active.Load().Cfg)[file]; !watched {
		t.Error("the file of the key is not watched")
	}
	signer := func() string { return s.daemon.Active.Load().rules.Signers.Default.KeyID() }
	if signer() != first {
		t.Errorf("signs with %s, want %s", signer(), first)
	}
	second := signature.NewKey()
	testkit.Must(t, os.WriteFile(file, second.PEM(), 0o600))
	testkit.Must(t, s.reload(nil))
	if signer() != second.ID() || !strings.Contains(s.said.String(), "signing_keys="+second.ID()) {
		t.Errorf("signs with %s, want %s; the log: %s", signer(), second.ID(), s.said)
	}
	testkit.Must(t, os.Chmod(file, 0o644))
	if err := s.reload(nil); err == nil || !strings.Contains(err.Error(), "has mode 0644") || signer() != second.ID() {
		t.Errorf("%v, signs with %s, want %s", err, signer(), second.ID())
	}
	if text := strings.Split(string(second.PEM()), "\n")[1]; strings.Contains(s.said.String(), text) {
		t.Error("the log shows the private key")
	}
}
