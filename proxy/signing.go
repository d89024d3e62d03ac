package proxy

import (
	"net/http"

	"robotsproxy/policy"
	"robotsproxy/proxy/signature"
)

// Signers sign the requests that the proxy sends. The zero Signers sign none.
type Signers struct {
	// Default signs the requests of all clients; nil: it signs none.
	Default *signature.Signer

	// Clients sign in place of Default, by the name of the client.
	Clients map[string]*signature.Signer

	// PlainHTTP also signs requests without TLS.
	PlainHTTP bool
}

// of returns the Signer of a client's requests; nil: they are not signed.
func (s *Signers) of(client string) *signature.Signer {
	if signer := s.Clients[client]; signer != nil {
		return signer
	}
	return s.Default
}

// choose returns the Signer of a client's request, or nil and why the request is sent without a
// signature of the proxy.
func (s *Signers) choose(client, scheme string, header http.Header) (signer *signature.Signer, why policy.Unsigned) {
	signer = s.of(client)
	switch {
	case signature.Signed(header):
		return nil, policy.UnsignedClient
	case signer == nil:
		return nil, ""
	case scheme == "ftp":
		return nil, policy.UnsignedFTP
	case scheme != "https" && !s.PlainHTTP:
		return nil, policy.UnsignedPlain
	}
	return signer, ""
}
