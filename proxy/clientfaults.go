package proxy

import (
	"errors"
	"net"
	"time"

	"robotsproxy/proxy/clientfault"
	"robotsproxy/proxy/mitm"
)

// atOnce is how soon after its TLS handshake a client closes a tunnel that does not trust the certificate and looks at it
// only then, as GnuTLS clients do. Browsers keep the tunnels that they open in advance for longer.
const atOnce = 3 * time.Second

// ClientFaults returns the clients whose settings do not fit the proxy, the latest first.
func (h *Handler) ClientFaults() []clientfault.Fault { return h.counts.clientFaults.All() }

// countFault counts and logs a fault of a client, in a tunnel to host ("": in none).
func (h *Handler) countFault(k clientfault.Kind, client, host string) {
	if !h.counts.clientFaults.Add(k, client, host, time.Now()) {
		return
	}
	log := h.o.Log.With("client", client)
	if host != "" {
		log = log.With("host", host)
	}
	log.Warn("requests of a client do not arrive", "why", k.String(), "what_to_do", k.Advice())
}

// countHandshake counts a TLS handshake in a tunnel that failed with err, if the cause may be that the client does not trust
// the certificate.
func (h *Handler) countHandshake(t *tunnelConn, err error) {
	kind := clientfault.Distrust
	switch mitm.FaultOf(err) {
	case mitm.FaultUntrusted:
	case mitm.FaultClosed:
		// The proxy itself may have closed the tunnel.
		if errors.Is(err, net.ErrClosed) || h.handoff.isEnded() {
			return
		}
		kind = clientfault.MaybeDistrust
	default:
		return
	}
	h.countFault(kind, t.admitted.Load().client, t.authority)
}
