package daemon

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"robotsproxy/cmd/internal/config"
)

// TestAddRoots: the error names the file, and the line of the certificate that cannot be read.
func TestAddRoots(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	good := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	bad := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}))
	for _, c := range []struct{ name, text, want string }{
		{"one", good, ""},
		{"with comments and a key", "# ours\n" + good + key + "# theirs\n" + good, ""},
		{"empty", "", ".pem: no PEM certificate in the file"},
		{"a key", key, ".pem: no PEM certificate in the file"},
		{"not PEM", "hello\n", ".pem: no PEM certificate in the file"},
		{"a broken one", bad, ".pem:1: x509: "},
		{"a broken one behind others", "# ours\n\n" + good + "# theirs\n" + bad, ".pem:" + strconv.Itoa(4+strings.Count(good, "\n")) + ": x509: "},
	} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		err := AddRoots(roots, file)
		if c.want == "" && (err != nil || roots.Equal(x509.NewCertPool())) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestMaxWait: auto depends on the command, and another value does not.
func TestMaxWait(t *testing.T) {
	for _, c := range []struct {
		name          string
		set           config.Wait
		adapt         func(config.Config) config.Config
		slot, backOff time.Duration
	}{
		{"auto, serve", config.AutoWait, func(c config.Config) config.Config { return c }, time.Minute, 0},
		{"auto, run", config.AutoWait, ForOneUser, 365 * 24 * time.Hour, 10 * time.Minute},
		{"5s, serve", config.Wait(5 * time.Second), func(c config.Config) config.Config { return c }, 5 * time.Second, 0},
		{"5s, run", config.Wait(5 * time.Second), ForOneUser, 5 * time.Second, 0},
	} {
		cfg := config.Default()
		cfg.Pace.MaxWait = c.set
		cfg = c.adapt(cfg)
		if err := cfg.Check(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		o, err := engineOptions(cfg, nil, nil)
		if err != nil || o.Pace.MaxWait != c.slot || o.Pace.MaxBackOff != c.backOff {
			t.Errorf("%s: %v and %v, %v; want %v and %v", c.name, o.Pace.MaxWait, o.Pace.MaxBackOff, err, c.slot, c.backOff)
		}
	}
}

// TestListenSaysWhatToDo about a port that another program has.
func TestListenSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ listen, admin, metrics, want string }{
		{taken.Addr().String(), "", "", "listen: "},
		{"127.0.0.1:0", taken.Addr().String(), "", "admin.listen: "},
		{"127.0.0.1:0", "", taken.Addr().String(), "admin.metrics_listen: "},
	} {
		d := &Daemon{}
		err := d.listen(config.Config{Listen: c.listen, Admin: config.Admin{Listen: c.admin, MetricsListen: c.metrics}})
		d.close()
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()+": choose another address with ") {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
