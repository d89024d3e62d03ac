package daemon

import (
	"robotsproxy/cmd/internal/config"
	"robotsproxy/proxy/guide"
	"robotsproxy/proxy/mitm"
)

// guidePage is what the proxy says of itself, at its own address.
func guidePage(cfg config.Config, ca *mitm.Authority, ready func() error) (*guide.Page, error) {
	version, _ := buildInfo()
	return guide.New(guide.Options{
		CAPEM:    ca.CertPEM,
		Ready:    ready,
		Operator: cfg.Identity.From,
		TLS:      cfg.ListenTLS.Cert != "",
		Sealed:   !cfg.TLS.Intercept,
		Monitor:  cfg.Mode == "monitor",
		Version:  version,
	})
}
