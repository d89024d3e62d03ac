package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"robotsproxy/cmd/internal/cli"
	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy"
	"robotsproxy/proxy/mitm"
	"robotsproxy/proxy/signature"
)

// An Agent is an identity with which requests are signed.
type Agent struct {
	// Client is the client whose requests are signed; "": all clients without an identity of their own.
	Client string

	// URL is the address of the key directory.
	URL string
	Key *signature.Key

	// Next is the key of the next rotation; nil: there is none yet.
	Next *signature.Key
}

// Keys returns the keys that the directory has to have, the one that signs first.
func (a *Agent) Keys() []signature.PublicKey {
	keys := []signature.PublicKey{a.Key.Public()}
	if a.Next != nil {
		keys = append(keys, a.Next.Public())
	}
	return keys
}

// Agents returns the identities of a configuration, that of all clients first; none: nothing is signed. It
// reads their keys.
func Agents(cfg config.Config) ([]Agent, error) {
	s := cfg.Identity.Sign
	all, err := appendAgent(nil, "identity.sign", Agent{URL: s.Agent}, s.Key, s.KeyNext)
	for i, c := range cfg.Clients {
		if err == nil {
			s := c.Identity.Sign
			section := fmt.Sprintf("clients entry %d: identity.sign", i+1)
			all, err = appendAgent(all, section, Agent{Client: c.Name, URL: s.Agent}, s.Key, s.KeyNext)
		}
	}
	return all, err
}

// appendAgent reads the keys of an agent, if it has any.
func appendAgent(all []Agent, section string, a Agent, key, next string) (_ []Agent, err error) {
	if key == "" {
		return all, nil
	}
	create := "robotsproxy identity key"
	if a.Client != "" {
		create += " --client " + cli.ShellQuote(a.Client)
	}
	if a.Key, err = readSigningKey(section+".key", key, create); err != nil {
		return nil, err
	}
	if next == "" {
		return append(all, a), nil
	}
	if a.Next, err = readSigningKey(section+".key_next", next, create+" --next"); err == nil && a.Next.ID() == a.Key.ID() {
		err = fmt.Errorf("%s.key_next: the key is the same as %s.key: create another one", section, section)
	}
	return append(all, a), err
}

// readSigningKey reads the private key in a file that a configuration key names. The command create makes it.
func readSigningKey(key, file, create string) (*signature.Key, error) {
	text, err := mitm.ReadPrivate(file, key, "the key")
	if missing, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: create the key with %s", key, missing, create)
	}
	if err != nil {
		return nil, err
	}
	read, err := signature.ParseKey(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %s %w", key, file, err)
	case read.ID() == signature.ExampleKeyID:
		return nil, fmt.Errorf("%s: %s contains the example key of RFC 9421, whose private part everybody knows", key, file)
	}
	return read, nil
}

// Signers returns what signs the requests under a configuration, and the agents whose signatures they get.
func Signers(cfg config.Config) (all proxy.Signers, agents []Agent, err error) {
	if agents, err = Agents(cfg); err != nil {
		return all, nil, err
	}
	all = proxy.Signers{PlainHTTP: cfg.Identity.Sign.PlainHTTP, Clients: map[string]*signature.Signer{}}
	for _, a := range agents {
		by, err := signature.New(signature.Options{Key: a.Key, Agent: a.URL, Valid: cfg.Identity.Sign.Valid})
		if err != nil {
			return proxy.Signers{}, nil, err
		}
		if a.Client == "" {
			all.Default = by
		} else {
			all.Clients[a.Client] = by
		}
	}
	return all, agents, nil
}

// keyIDs returns the IDs of all keys of agents, for the log.
func keyIDs(agents []Agent) string {
	var ids []string
	for _, a := range agents {
		for _, k := range a.Keys() {
			ids = append(ids, k.ID())
		}
	}
	return strings.Join(ids, " ")
}

// signingFiles returns the files of the keys that a configuration names.
func signingFiles(cfg config.Config) []string {
	files := []string{cfg.Identity.Sign.Key, cfg.Identity.Sign.KeyNext}
	for _, c := range cfg.Clients {
		files = append(files, c.Identity.Sign.Key, c.Identity.Sign.KeyNext)
	}
	return files
}
