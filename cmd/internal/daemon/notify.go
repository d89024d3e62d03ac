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
func (h notifier) send(state string) {
	if h.on {
		daemon.SdNotify(false, state)
	}
}

func (h notifier) ready(status string) { h.send("READY=1\nSTATUS=" + humanize.Escape(status)) }

func (h notifier) reloading() { h.send("RELOADING=1\n" + daemon.SdNotifyMonotonicUsec()) }

func (h notifier) stopping() { h.send("STOPPING=1\nSTATUS=requests in flight finish") }

// watchdog reports to systemd's watchdog (WATCHDOG_USEC) until ctx ends. It does not report whether the proxy
// is healthy: a restart would not cure a full disk, and breaks off requests in flight.
func (h notifier) watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if !h.on || err != nil || every <= 0 {
		return nil
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		h.send(daemon.SdNotifyWatchdog)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
