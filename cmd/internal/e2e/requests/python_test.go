package requests

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"robotsproxy/cmd/internal/e2e"
	"robotsproxy/robots/testkit"
)

// TestGRPC checks that a gRPC client and its server talk through the proxy, with TE: trailers and with trailers that no
// field announces.
func TestGRPC(t *testing.T) {
	t.Parallel()
	python := e2e.NeedPython("grpc")(t)[0]
	name, port := startPython(t, "grpc", "grpc_server.py", python)
	target := name + ":" + port
	p := e2e.StartProxy(t, e2e.Unpaced.With(e2e.Settings{"hosts": []e2e.Entry{{"match": name, "robots": "ignore", "reason": "the test's own"}}}))
	client := exec.CommandContext(t.Context(), python, e2e.Script("grpc_client.py"), target, p.CA)
	client.Env = p.Env(t)
	answer, err := client.CombinedOutput()
	if want := "hello\na b c\nUNIMPLEMENTED\n"; string(answer) != want || err != nil {
		t.Errorf("the client prints %q, %v; want %q", answer, err, want)
	}
}

// TestHTTP11Required checks that an origin that requires HTTP/1.1 gets requests over it.
func TestHTTP11Required(t *testing.T) {
	t.Parallel()
	name, port := startPython(t, "one", "h2_server.py", e2e.NeedPython("h2")(t)[0])
	p := e2e.StartProxy(t, e2e.Unpaced)
	for _, h2 := range []bool{false, true} {
		resp, err := p.Client(t, h2).Post("https://"+name+":"+port+"/", "text/plain", strings.NewReader("hello"))
		testkit.Must(t, err)
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != "POST hello" || err != nil {
			t.Errorf("%s %q, %v", resp.Status, body, err)
		}
	}
}

// startPython starts a script of testdata that is a server with TLS, with arguments for its address, certificate
// and key. The script prints its port.
func startPython(t *testing.T, label, script, python string) (name, port string) {
	t.Helper()
	name, addr := e2e.NewName(label)
	cert, key := e2e.WriteLeaf(t, e2e.Trusted(t).Leaf(t, name, time.Now().Add(time.Hour)))
	server := exec.CommandContext(t.Context(), python, e2e.Script(script), addr.String(), cert, key)
	server.Env = e2e.CleanEnv()
	out, err := server.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, server.Start())
	t.Cleanup(func() { server.Wait() }) // the test's context ends it
	port, err = bufio.NewReader(out).ReadString('\n')
	testkit.Must(t, err)
	return name, strings.TrimSpace(port)
}
