package requests

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// A gRPC client and its server talk through the proxy, with TE: trailers and with trailers that no field
// announces.
func TestGRPC(t *testing.T) {
	t.Parallel()
	python := e2e.NeedPython("grpc")(t)[0]
	name, addr := e2e.NewName("grpc")
	cert, key := e2e.WriteLeaf(t, e2e.Trusted(t).Leaf(t, name, time.Now().Add(time.Hour)))
	server := exec.CommandContext(t.Context(), python, e2e.Script("grpc_server.py"), addr.String(), cert, key)
	server.Env = e2e.CleanEnv()
	out, err := server.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, server.Start())
	t.Cleanup(func() { server.Wait() }) // the test's context ends it
	port, err := bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	target := name + ":" + strings.TrimSpace(port)
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"hosts": []e2e.Entry{{"match": name, "robots": "ignore", "reason": "the test's own"}}}))
	client := exec.CommandContext(t.Context(), python, e2e.Script("grpc_client.py"), target, p.CA)
	client.Env = p.Env(t)
	answer, err := client.CombinedOutput()
	if want := "hello\na b c\nUNIMPLEMENTED\n"; string(answer) != want || err != nil {
		t.Errorf("the client prints %q, %v; want %q", answer, err, want)
	}
}
