package admin

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"robotsproxy/cmd/internal/redis"
	"robotsproxy/proxy/guide"
)

// writeHealth answers with the result of a check of health.
func writeHealth(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "%v\n", err)
		return
	}
	io.WriteString(w, "ok\n")
}

// caCertificate identifies the CA.
type caCertificate struct {
	Subject string `json:"subject"`

	// SHA256 is the fingerprint, as robotsproxy ca show prints it.
	SHA256  string `json:"sha256"`
	Expires string `json:"expires"`
}

// caCertificate parses the CA certificate. It returns nil if it cannot.
func (o *Options) caCertificate() *caCertificate {
	block, _ := pem.Decode(o.CAPEM())
	if block == nil {
		return nil
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return &caCertificate{c.Subject.String(), guide.Fingerprint(c.Raw), formatTime(c.NotAfter)}
}

// reloadStatus is the outcome of the reloads so far.
type reloadStatus struct {
	OK      uint64 `json:"ok"`
	Refused uint64 `json:"refused"`
	Since   string `json:"in_force_since,omitempty"`
	LastOK  string `json:"last_ok,omitempty"`

	// Errors say why the last reload was refused, line by line; nil: it succeeded.
	Errors []string `json:"errors,omitempty"`

	// NeedRestart are the keys whose values in the configuration file apply only after a restart.
	NeedRestart []string `json:"needs_restart,omitempty"`

	// Active is when the active configuration was read; zero: unknown.
	Active time.Time `json:"-"`
}

// reloadStatus returns the outcome of the reloads, or nil if the proxy cannot reload.
func (o *Options) reloadStatus() *reloadStatus {
	if o.Reloads == nil {
		return nil
	}
	ok, refused, last, err := o.Reloads()
	r := &reloadStatus{OK: ok, Refused: refused, LastOK: formatTime(last), NeedRestart: o.NeedRestart(), Active: last}
	if last.IsZero() {
		r.Active = o.About().Started
	}
	r.Since = formatTime(r.Active)
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
	}
	return r
}

// warning says that the active configuration is not the one in the file. It returns "" if it
// is.
func (r *reloadStatus) warning() string {
	switch {
	case r == nil || r.Errors == nil:
		return ""
	case r.Active.IsZero():
		return "The last reload failed. The previous configuration stays active."
	}
	return "The last reload failed. The configuration of " + utcTime(r.Active) + " stays active."
}

// status answers with the version, the files, the health and the reloads of the proxy.
func (s *Server) status(http.ResponseWriter, *http.Request, *queryParams) (any, error) {
	about := s.opts.About()
	st := struct {
		Version  string  `json:"version"`
		Commit   string  `json:"commit,omitempty"`
		Go       string  `json:"go"`
		Started  string  `json:"started,omitempty"`
		Uptime   float64 `json:"uptime_s,omitempty"`
		Config   string  `json:"config_file,omitempty"`
		State    string  `json:"state_dir,omitempty"`
		Audit    string  `json:"audit_file,omitempty"`
		Proxy    string  `json:"proxy"`
		ProxyTLS bool    `json:"proxy_tls"`

		// Mode is "enforce" or "monitor".
		Mode    string         `json:"mode"`
		Dialect string         `json:"dialect"`
		CA      *caCertificate `json:"ca,omitempty"`
		Healthy bool           `json:"healthy"`
		Ready   bool           `json:"ready"`

		// Reasons say why the proxy is not healthy or not ready.
		Reasons []string `json:"reasons"`

		// Warnings say what the operator should see to before it stops requests.
		Warnings []string      `json:"warnings,omitempty"`
		Oldest   string        `json:"oldest_record,omitempty"`
		Reloads  *reloadStatus `json:"reloads,omitempty"`
		Store    *storeStatus  `json:"store,omitempty"`
	}{
		Version: s.opts.Version, Commit: about.Commit, Go: runtime.Version(), Started: formatTime(about.Started),
		Config: about.Config, State: about.State, Audit: about.Audit, Proxy: s.opts.Proxy.String(), ProxyTLS: s.opts.ProxyTLS,
		Mode: s.opts.mode(), Dialect: s.opts.Dialect().Name, CA: s.opts.caCertificate(),
		Healthy: s.opts.Healthy() == nil, Ready: s.opts.Ready() == nil, Reasons: append([]string{}, s.healthErrors()...),
		Warnings: s.opts.warnings(), Oldest: formatTime(s.opts.Space().Oldest), Reloads: s.opts.reloadStatus(), Store: s.opts.storeStatus(),
	}
	if !about.Started.IsZero() {
		st.Uptime = time.Since(about.Started).Round(time.Millisecond).Seconds()
	}
	return st, nil
}

// mode returns the value of mode in the configuration.
func (o *Options) mode() string {
	if o.Monitor() {
		return "monitor"
	}
	return "enforce"
}

// healthErrors returns why the proxy is not healthy or not ready, without duplicates.
func (s *Server) healthErrors() (all []string) {
	for _, check := range []func() error{s.opts.Healthy, s.opts.Ready} {
		if err := check(); err != nil && !slices.Contains(all, printable(err.Error())) {
			all = append(all, printable(err.Error()))
		}
	}
	return all
}

// warning says that this replica paces alone. It returns "" if it does not.
func (s *Store) warning() string {
	if !s.StoreAway {
		return ""
	}
	since := ""
	if !s.Since.IsZero() {
		since = " since " + utcTime(s.Since)
	}
	if s.Returning {
		if since != "" {
			since = " (" + since[1:] + ")"
		}
		return fmt.Sprintf("The shared store answers. This replica still paces alone%s, and will soon share the pace.", since)
	}
	return fmt.Sprintf("The shared store is unavailable: %s. This replica paces alone%s, %s.", printable(s.Why), since, s.PaceText())
}

// PaceText says how fast the replica paces.
func (s *Store) PaceText() string {
	if s.Times <= 1 {
		return "at the permitted rate"
	}
	return strconv.FormatFloat(s.Times, 'g', 3, 64) + " times slower than permitted"
}

// storeStatus is a [Store] in the API.
type storeStatus struct {
	Replica string `json:"replica"`
	Shared  bool   `json:"shared"`

	// Detail says why the store is not shared.
	Detail   string  `json:"detail,omitempty"`
	Since    string  `json:"since,omitempty"`
	Times    float64 `json:"times_slower"`
	Members  int     `json:"replicas"`
	Expected int     `json:"expected_replicas"`

	// Guard is the time by which the clocks of the replicas may differ, in milliseconds.
	Guard int64 `json:"clock_guard_ms"`

	// All are the replicas that share the store.
	All []redis.Member `json:"members"`
}

// storeStatus returns nil if the proxy is no replica.
func (o *Options) storeStatus() *storeStatus {
	if o.Store == nil {
		return nil
	}
	s := o.Store()
	return &storeStatus{s.Replica, !s.StoreAway, s.warning(), formatTime(s.Since), max(s.Times, 1), s.Members, s.Expected,
		s.Guard.Milliseconds(), append([]redis.Member{}, s.Replicas...)}
}

// storeWarning says that this replica paces alone. It returns "" if it does not, or if the
// proxy is no replica.
func (o *Options) storeWarning() string {
	if s := o.storeStatus(); s != nil {
		return s.Detail
	}
	return ""
}

// warnings returns Options.Warnings, fit for a page.
func (o *Options) warnings() (all []string) {
	for _, w := range o.Warnings() {
		all = append(all, printable(w))
	}
	return all
}

// healthz answers whether the proxy is healthy. A line for each warning follows.
func (o *Options) healthz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, o.Healthy())
	for _, warning := range o.warnings() {
		io.WriteString(w, "warning: "+warning+"\n")
	}
}

// readyz answers whether the proxy takes requests. It does while the store is unavailable,
// which a second line tells.
func (o *Options) readyz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, o.Ready())
	if warning := o.storeWarning(); warning != "" {
		io.WriteString(w, warning+"\n")
	}
}
