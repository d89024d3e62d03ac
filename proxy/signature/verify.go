package signature

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"robotsproxy/robots"
)

// The errors of Verify. All other errors concern signatures that are malformed, or not of Web Bot Auth.
var (
	ErrNone      = errors.New("the request has no signature with the tag " + tag)
	ErrKey       = errors.New("the signature is made with another key")
	ErrTime      = errors.New("the signature is not valid at this time")
	ErrSignature = errors.New("the signature does not fit the request")
)

// A Result is a signature that was verified.
type Result struct {
	KeyID string

	// Agent is the URL of the key directory.
	Agent   string
	Created time.Time
	Expires time.Time

	// Nonce is the nonce; "": none.
	Nonce string

	// Covered is what is signed, as the Signature-Input field has it.
	Covered string
}

// Verify verifies the first Web Bot Auth signature of r at a time with one of keys. It accepts what
// the draft permits, whoever the signer is. It does not know nonces that were used before.
func Verify(r *http.Request, keys []PublicKey, now time.Time) (Result, error) {
	inputs, err := httpsfv.UnmarshalDictionary(r.Header[fieldInput])
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", fieldInput, err)
	}
	for _, name := range inputs.Names() {
		member, _ := inputs.Get(name)
		if list, ok := member.(httpsfv.InnerList); ok && stringParam(list.Params, "tag") == tag {
			return verify(r, name, list, keys, now)
		}
	}
	return Result{}, ErrNone
}

// verify verifies the signature with a label.
func verify(r *http.Request, label string, input httpsfv.InnerList, keys []PublicKey, now time.Time) (Result, error) {
	agent, err := agentOf(r, label)
	if err != nil {
		return Result{}, err
	}
	var names []string
	for _, c := range input.Items {
		name, err := httpsfv.Marshal(c)
		if err != nil {
			return Result{}, err
		}
		names = append(names, name)
	}
	result := Result{
		KeyID: stringParam(input.Params, "keyid"), Agent: agent, Nonce: stringParam(input.Params, "nonce"),
		Covered: strings.Join(names, " "),
	}
	created, _ := input.Params.Get("created")
	expires, _ := input.Params.Get("expires")
	from, hasCreated := created.(int64)
	until, hasExpires := expires.(int64)
	switch algorithmOf, has := input.Params.Get("alg"); {
	case !slices.Contains(names, `"@authority"`) && !slices.Contains(names, `"@target-uri"`):
		return Result{}, errors.New("the signature covers neither @authority nor @target-uri")
	case !slices.Contains(names, `"signature-agent";key="`+label+`"`):
		return Result{}, fmt.Errorf("the signature does not cover the member %s of %s", label, fieldAgent)
	case has && algorithmOf != algorithm:
		return Result{}, errors.New("the algorithm of the signature is not " + algorithm)
	case !hasCreated || !hasExpires:
		return Result{}, errors.New("the signature does not say when it was created, or when it expires")
	}
	result.Created, result.Expires = time.Unix(from, 0).UTC(), time.Unix(until, 0).UTC()
	switch at := slices.IndexFunc(keys, func(k PublicKey) bool { return k.id == result.KeyID }); {
	case at < 0:
		return Result{}, fmt.Errorf("%w: %q", ErrKey, result.KeyID)
	case now.Before(result.Created):
		return Result{}, fmt.Errorf("%w: it was created at %s", ErrTime, result.Created.Format(time.RFC3339))
	case !now.Before(result.Expires):
		return Result{}, fmt.Errorf("%w: it expired at %s", ErrTime, result.Expires.Format(time.RFC3339))
	default:
		return result, checkSignature(r, label, input, keys[at])
	}
}

// stringParam returns a parameter that is a string; "": there is none.
func stringParam(p *httpsfv.Params, name string) string {
	value, _ := p.Get(name)
	s, _ := value.(string)
	return s
}

// agentOf returns the URL in the member of Signature-Agent with a label.
func agentOf(r *http.Request, label string) (string, error) {
	agents, err := httpsfv.UnmarshalDictionary(r.Header[fieldAgent])
	if err != nil {
		return "", fmt.Errorf("%s: %w", fieldAgent, err)
	}
	member, _ := agents.Get(label)
	item, _ := member.(httpsfv.Item)
	agent, ok := item.Value.(string)
	if !ok || len(item.Params.Names()) > 0 {
		return "", fmt.Errorf("%s has no member %s that is a string without parameters", fieldAgent, label)
	}
	if _, err := checkAgent(agent); err != nil {
		return "", fmt.Errorf("%s: the URL %w", fieldAgent, err)
	}
	return agent, nil
}

// checkSignature checks the signature with a label, whatever it is for.
func checkSignature(r *http.Request, label string, input httpsfv.InnerList, key PublicKey) error {
	signatures, err := httpsfv.UnmarshalDictionary(r.Header[fieldSignature])
	if err != nil {
		return fmt.Errorf("%s: %w", fieldSignature, err)
	}
	member, _ := signatures.Get(label)
	item, _ := member.(httpsfv.Item)
	value, ok := item.Value.([]byte)
	if !ok {
		return fmt.Errorf("%s has no member %s", fieldSignature, label)
	}
	base, err := baseOf(r, input)
	if err != nil {
		return err
	}
	if len(key.key) != ed25519.PublicKeySize || !ed25519.Verify(key.key, []byte(base), value) {
		return ErrSignature
	}
	return nil
}

// baseOf returns the signature base of a request (RFC 9421 2.5).
func baseOf(r *http.Request, input httpsfv.InnerList) (string, error) {
	var b strings.Builder
	seen := map[string]bool{}
	for _, c := range input.Items {
		name, err := httpsfv.Marshal(c)
		if err != nil {
			return "", err
		}
		if seen[name] {
			return "", fmt.Errorf("the signature covers %s twice", name)
		}
		seen[name] = true
		value, err := component(r, c)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		b.WriteString(name + ": " + value + "\n")
	}
	params, err := httpsfv.Marshal(input)
	b.WriteString(`"@signature-params": ` + params)
	return b.String(), err
}

// component returns the value of a component (RFC 9421 2.1 and 2.2).
func component(r *http.Request, c httpsfv.Item) (string, error) {
	name, ok := c.Value.(string)
	if !ok {
		return "", errors.New("not the name of a component")
	}
	if strings.HasPrefix(name, "@") {
		return derived(r, name, c.Params.Names())
	}
	if name != strings.ToLower(name) {
		return "", errors.New("the name of a field must be in lower case")
	}
	values := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
	if name == "host" {
		// net/http removes Host from the header.
		values = []string{r.Host}
	}
	if len(values) == 0 {
		return "", errors.New("the request has no such field")
	}
	switch params := c.Params.Names(); {
	case len(params) == 0:
		var trimmed []string
		for _, v := range values {
			trimmed = append(trimmed, textproto.TrimString(v))
		}
		return strings.Join(trimmed, ", "), nil
	case !slices.Equal(params, []string{"key"}):
		return "", errors.New("unsupported parameter")
	}
	dictionary, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return "", err
	}
	member, ok := dictionary.Get(stringParam(c.Params, "key"))
	if !ok {
		return "", errors.New("the field has no such member")
	}
	return httpsfv.Marshal(member)
}

// derived returns the value of a component that is no field.
func derived(r *http.Request, name string, params []string) (string, error) {
	target := robots.PathQueryOf(r.URL)
	// The request of a server has the target as it was sent.
	if strings.HasPrefix(r.RequestURI, "/") {
		target = r.RequestURI
	}
	whole := target
	path, query, _ := strings.Cut(target, "?")
	// RFC 9112 3.2.4: "*" means the whole origin.
	if target == "*" {
		whole, path = "", "/"
	}
	switch {
	case len(params) > 0:
		return "", errors.New("unsupported parameter")
	case name == "@method":
		return r.Method, nil
	case name == "@authority":
		return authorityOf(r), nil
	case name == "@scheme":
		return schemeOf(r), nil
	case name == "@path":
		return path, nil
	case name == "@query":
		return "?" + query, nil
	case name == "@request-target":
		return target, nil
	case name == "@target-uri":
		return schemeOf(r) + "://" + authorityOf(r) + whole, nil
	}
	return "", errors.New("unsupported component")
}
