package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

// stageTimeout limits each answer of the stage.
const stageTimeout = 30 * time.Second

// A Confinement is a command in namespaces of its own, and the sockets there.
type Confinement struct {
	o Options

	// stage is the process that becomes the command. running says that it has become the command.
	stage   *exec.Cmd
	running bool

	// control is this process's end of the pair of sockets.
	control *net.UnixConn
	pool    *pool
	ipv6    bool

	// listeners are the sockets inside that accept connections. packets are those of the resolver that get datagrams.
	listeners map[role][]net.Listener
	packets   []net.PacketConn
}

// Start makes the namespaces and the sockets in them. The command itself runs after
// [Confinement.Run].
func Start(o Options) (*Confinement, error) {
	if err := checkInherited(o.Command); err != nil {
		return nil, fmt.Errorf("confinement: %w", err)
	}
	c, err := start(o)
	if err != nil {
		return nil, explained(err)
	}
	return c, nil
}

// Check reports why Start would fail here; nil: it would not.
func Check() error {
	c, err := Start(Options{Command: exec.Command("/proc/self/exe")})
	if err != nil {
		return err
	}
	c.Close()
	return nil
}

func start(o Options) (_ *Confinement, err error) {
	c := &Confinement{o: o, pool: newPool(poolSize, time.Now), listeners: map[role][]net.Listener{}}
	theirs, err := c.connect()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	attr, err := stageAttributes()
	if err != nil {
		return nil, err
	}
	c.stage = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"robotsproxy", stageArgument}, Env: os.Environ(),
		Stdin: o.Command.Stdin, Stdout: o.Command.Stdout, Stderr: o.Command.Stderr,
		ExtraFiles: []*os.File{theirs}, SysProcAttr: attr,
	}
	if err := c.stage.Start(); err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	// While this process has that end open, it does not notice the end of the stage.
	theirs.Close()
	return c, c.receiveSockets()
}

// connect makes the pair of sockets, and returns the end of the stage.
func (c *Confinement) connect() (theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours := os.NewFile(uintptr(pair[0]), "confinement")
	defer ours.Close()
	theirs = os.NewFile(uintptr(pair[1]), "confinement")
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	c.control = conn.(*net.UnixConn)
	return theirs, nil
}

// stageAttributes returns the namespaces of the stage. The command keeps its user and group; root keeps
// all users and groups.
func stageAttributes() (*syscall.SysProcAttr, error) {
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: one(os.Geteuid()), GidMappings: one(os.Getegid()),
		AmbientCaps: neededByStage,
	}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	var noUsers, noGroups error
	attr.UidMappings, noUsers = sameIDs("/proc/self/uid_map")
	attr.GidMappings, noGroups = sameIDs("/proc/self/gid_map")
	attr.GidMappingsEnableSetgroups = true
	return attr, errors.Join(noUsers, noGroups)
}

// sameIDs returns the identity for all ids that this process has, as file says.
func sameIDs(file string) (all []syscall.SysProcIDMap, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
	}
	return all, nil
}

// receiveSockets has the stage set up its network, and takes the sockets over.
func (c *Confinement) receiveSockets() error {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	// SetDeadline fails only on a closed connection.
	c.control.SetDeadline(time.Now().Add(stageTimeout))
	if err := sendMessage(c.control, setup{NetNS: here, AllowLocal: c.o.AllowLocal}); err != nil {
		return fmt.Errorf("start in the new namespaces: %w", err)
	}
	r, files, err := receiveReady(c.control)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err == nil && r.Failure != nil {
		err = r.Failure
	}
	if err != nil {
		return fmt.Errorf("in the new namespaces: %w", err)
	}
	c.ipv6 = r.IPv6
	for i, s := range r.Sockets {
		if err := c.take(s, files[i]); err != nil {
			return err
		}
	}
	return nil
}

// take takes a socket over. The file may be closed afterwards.
func (c *Confinement) take(s insideSocket, f *os.File) error {
	if s.Role == roleDNSPacket {
		p, err := net.FilePacketConn(f)
		if err == nil {
			c.packets = append(c.packets, p)
		}
		return err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	if s.Role == roleDNSStream {
		l = netutil.LimitListener(l, maxResolverConns)
	}
	c.listeners[s.Role] = append(c.listeners[s.Role], l)
	return nil
}

// Proxy returns the listener for programs that know a proxy.
func (c *Confinement) Proxy() net.Listener { return c.listeners[roleProxy][0] }

// Transparent returns the listener that all other TCP connections are redirected to.
func (c *Confinement) Transparent() net.Listener { return c.listeners[roleTransparent][0] }

// NameOf returns the name that the resolver gave an address; "": it gave none. The address keeps the name
// until release is called, which is called once.
func (c *Confinement) NameOf(addr netip.Addr) (name string, release func()) {
	return c.pool.hold(addr)
}

// Run starts the command. dir has the files of the run, which the command finds in InsideDir; Run
// adds those that make programs trust t. The error is a *fs.PathError if the command itself could not
// be executed. notes says which ways to trust are used, for the log.
func (c *Confinement) Run(dir string, t Trust, env []string) (notes []string, err error) {
	over, notes, err := layTrust(dir, t)
	if err != nil {
		return nil, err
	}
	o, err := c.order(env)
	if err != nil {
		return nil, err
	}
	o.Files, o.Over = dir, over
	c.control.SetDeadline(time.Now().Add(stageTimeout))
	if err := sendMessage(c.control, o); err != nil {
		return nil, fmt.Errorf("confinement: %w", err)
	}
	in := json.NewDecoder(c.control)
	var s started
	err = in.Decode(&s)
	if err == nil && s.Failure != nil {
		err = s.Failure
	}
	if err != nil {
		return nil, explained(fmt.Errorf("in the new namespaces: %w", err))
	}
	var failed failure
	switch err := in.Decode(&failed); {
	// The stage's end is closed when the stage becomes the command.
	case errors.Is(err, io.EOF):
		c.running = true
		return append(notes, s.Notes...), nil
	case err != nil:
		return nil, fmt.Errorf("confinement: %w", err)
	default:
		return nil, &os.PathError{Op: "exec", Path: o.Path, Err: failed.Errno}
	}
}

// order returns what the stage has to do, but for the files.
func (c *Confinement) order(env []string) (*order, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	o := &order{Path: c.o.Command.Path, Argv: c.o.Command.Args, Env: env, Dir: dir}
	if o.Path, err = filepath.Abs(o.Path); err != nil {
		return nil, err
	}
	uid := os.Geteuid()
	if c.o.User != nil {
		if o.User, err = accountOf(c.o.User); err != nil {
			return nil, err
		}
		uid = o.User.UID
	}
	if os.Geteuid() == 0 && uid == 0 {
		o.ReadOnly = kernelSettings
	}
	getenv := lookUp(env)
	o.Hide = hiddenDirs(getenv, uid)
	if private := getenv("XDG_RUNTIME_DIR"); isBelow(private, o.Hide) && c.o.User == nil {
		o.Private = private
	}
	for _, path := range c.o.ShowSocket {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("--allow-socket: %w", err)
		}
		o.Show = append(o.Show, real)
	}
	sockets, err := pathSockets()
	if err != nil {
		return nil, err
	}
	for _, path := range append(sockets, namedSockets(getenv)...) {
		if !isBelow(path, o.Hide) && !slices.Contains(o.Show, path) {
			o.Cover = append(o.Cover, path)
		}
	}
	return o, nil
}

// accountOf returns the ids of a user and its groups.
func accountOf(u *user.User) (*account, error) {
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return &account{UID: ids[0], GID: ids[1], Groups: ids[2:]}, nil
}

// lookUp returns a function like os.Getenv for env.
func lookUp(env []string) func(string) string {
	all := map[string]string{}
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		all[name] = value
	}
	return func(name string) string { return all[name] }
}

// Command returns the command, to be signalled and waited for once it runs.
func (c *Confinement) Command() *exec.Cmd { return c.stage }

// Close closes the sockets, and ends the stage if the command does not run.
func (c *Confinement) Close() {
	if c.stage != nil && c.stage.Process != nil && !c.running {
		// Kill fails only if the stage has ended.
		c.stage.Process.Kill()
		c.stage.Wait()
	}
	c.control.Close()
	c.closeServed()
	for _, l := range slices.Concat(c.listeners[roleProxy], c.listeners[roleTransparent]) {
		// The proxy may have closed the listener.
		l.Close()
	}
}
