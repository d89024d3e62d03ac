package egress

// peeked is not called: connections are not peeked at here.
func peeked(uintptr) bool { return true }
