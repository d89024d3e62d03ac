package daemon

import (
	"os"
	"testing"

	"robotsproxy/robots/testkit"
)

func TestMain(m *testing.M) {
	testkit.SetParallel()
	os.Exit(m.Run())
}
