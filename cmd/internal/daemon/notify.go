package daemon

import (
	"context"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"robotsproxy/policy/explain/humanize"
)

// A notifier reports the state of the process to systemd (sd_notify(3)), if NOTIFY_SOCKET is set. The zero
// value reports nothing.
type notifier struct {
	on bool
}

func newNotifier() notifier { return notifier{on: os.Getenv("NOTIFY_SOCKET") != ""} }

// send ignores errors: systemd has its own time limits.
func (n notifier) send(state string) {
	if n.on {
		daemon.SdNotify(false, state)
	}
}

func (n notifier) ready(status string) { n.send("READY=1\nSTATUS=" + humanize.Escape(status)) }

func (n notifier) reloading() { n.send("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec()) }

func (n notifier) stopping() {
	n.send("STOPPING=1\nSTATUS=shutting down, waiting for requests in flight")
}

// watchdog reports to systemd's watchdog (WATCHDOG_USEC) until ctx ends. It does not report whether the proxy
// is healthy: a restart would not cure a full disk, and breaks off requests in flight.
func (n notifier) watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if !n.on || err != nil || every <= 0 {
		return nil
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		n.send(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
