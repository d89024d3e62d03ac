package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"robotsproxy/cmd/internal/config"
	"robotsproxy/cmd/internal/daemon"
)

const (
	runVariable = "ROBOTSPROXY_RUN" // names the directory of the run that a process is in
	aboutName   = "run.yaml"        // is there for as long as the run lasts
)

// about is that part of a daemon's configuration by which doctor looks at it: where it
// listens, and where its state, audit and CA are. It has no secrets.
func about(h *daemon.Daemon, dir string) (config.Config, error) {
	cfg, c := h.Active.Load().Cfg, config.Default()
	c.Listen, c.Admin.Listen = h.Addr(), ""
	c.StateDir = filepath.Dir(filepath.Dir(dir)) // see newRunDir
	c.Audit.File = cfg.Audit.File
	c.TLS = cfg.TLS
	if c.TLS.CACert == "" {
		return c, nil
	}
	var noCert, noKey error // whoever reads it may be in another directory
	c.TLS.CACert, noCert = filepath.Abs(c.TLS.CACert)
	c.TLS.CAKey, noKey = filepath.Abs(c.TLS.CAKey)
	return c, errors.Join(noCert, noKey)
}

// writeAbout writes it into file, in the directory of h's run.
func writeAbout(file string, h *daemon.Daemon) error {
	c, err := about(h, filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return os.WriteFile(file, c.Marshal(), 0o600)
}

// RunAround is the same of the run that this process is in; ok: it is in one, which lasts.
func RunAround(getenv func(string) string) (c config.Config, file string, ok bool) {
	dir := getenv(runVariable)
	if dir == "" {
		return c, "", false
	}
	file = filepath.Join(dir, aboutName)
	c, err := config.Load(file)
	return c, file, err == nil
}
