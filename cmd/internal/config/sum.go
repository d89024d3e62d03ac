package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
)

// ownKinds are the kinds of values that differ between replicas that do the same: names of what is on their machine, and of
// themselves.
var ownKinds = []string{"path", "path-or-stdout", "address", "address-or-off", "dashboard", "file-prefix", "origin", "replica", "secret"}

// SharedSum returns a short hash of the keys that must have the same values in all replicas of a fleet: all but files,
// addresses, names of replicas and admin.token. It tells nothing of a password.
func (c Config) SharedSum() string {
	shown := c.Redacted()
	// A hash of a bcrypt hash tells nothing of the password.
	shown.Clients = c.Clients
	sum := sha256.New()
	for _, k := range leaves(reflect.ValueOf(&shown).Elem(), "") {
		if !slices.Contains(ownKinds, k.kindName()) {
			fmt.Fprintf(sum, "%s: %s\n", k.path, k.text())
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}
