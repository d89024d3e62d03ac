package audit

// Use puts other Options in force, those from MaxSize to Continue, for the records
// that are written from now on; the others stay as the Log was opened. The chain goes
// on: it says nothing of them.
func (l *Log) SetOptions(o Options) {
	if o.MaxSize <= 0 {
		o.MaxSize = 100 << 20
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 10
	}
	l.terms.Store(&o)
	select {
	case l.full <- struct{}{}: // fewer files may be kept
	default:
	}
}

// Refusal is Err where a failure refuses requests (on_error: refuse).
func (l *Log) Refusal() error {
	if l.terms.Load().Continue {
		return nil
	}
	return l.Err()
}
