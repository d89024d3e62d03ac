package redis

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"robotsproxy/cmd/internal/redis/redistest"
	"robotsproxy/robots/testkit"
)

// sentinel runs a Sentinel that monitors the server, and returns its address.
func sentinel(t *testing.T, s *redistest.Server) string {
	t.Helper()
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	_, watched, _ := net.SplitHostPort(s.Addr)
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	conf := fmt.Sprintf(`bind 127.0.0.1
port %s
dir %s
sentinel monitor pace 127.0.0.1 %s 1
sentinel down-after-milliseconds pace 1000
sentinel failover-timeout pace 2000
`, port, dir, watched)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(redistest.Binaries(t)[0], file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c := client(t, "redis://"+addr)
	testkit.Eventually(t, "the Sentinel answers", func() bool { return c.Ping(t.Context()).Err() == nil })
	return addr
}

// The Sentinels replace a killed server by another one.
func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	first, second := redistest.Start(t), redistest.Start(t)
	host, port, _ := net.SplitHostPort(first.Addr)
	admin := client(t, second.URL())
	if err := admin.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	addr := sentinel(t, first)
	watch := client(t, "redis://"+addr)
	all := fleet(t, first, "redis://"+addr+"?master_name=pace")
	testkit.Eventually(t, "the Sentinel knows of the replica, and that has all", func() bool {
		known, err := watch.Do(t.Context(), "SENTINEL", "REPLICAS", "pace").Slice()
		return err == nil && len(known) == 1 && admin.Exists(t.Context(), epochKey).Val() == 1
	})
	first.Kill()
	for _, r := range all {
		testkit.Eventually(t, "alone", func() bool { return r.Standing().StoreAway })
	}
	comesBack(t, all...)
	if n := admin.ZCard(t.Context(), replicasKey).Val(); n != 3 {
		t.Errorf("%d replicas at the second server", n)
	}
}

func TestSentinelKnowsNoSuchName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	goesAlone(t, NoMaster, run(t, "redis://"+sentinel(t, s)+"?master_name=other", 3))
}
