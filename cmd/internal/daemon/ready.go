package daemon

import (
	"cmp"
	"errors"
)

// ready returns why the proxy accepts no requests at present; nil: it does.
func (d *Daemon) ready() error {
	if d.draining.Load() {
		return errors.New("shutting down")
	}
	if d.fleet != nil && isStoreUntried(d.fleet.Stats()) {
		return errors.New("this replica has not connected to the shared store yet")
	}
	return d.refusal()
}

// refusal returns why requests must be refused because they cannot be recorded or archived.
func (d *Daemon) refusal() error {
	err := d.evidence.Refusal()
	if d.archive != nil {
		err = cmp.Or(err, d.archive.Refusal())
	}
	return err
}

// healthy returns why requests cannot be recorded or archived, whether or not they are refused for that.
func (d *Daemon) healthy() error {
	err := d.evidence.Err()
	if d.archive != nil {
		err = cmp.Or(err, d.archive.Err())
	}
	return err
}
