package ftptest

import (
	"fmt"
	"io"
	"net"
	"net/textproto"
	"path"
	"strconv"
	"strings"
	"time"
)

// features are the default of Server.Features.
var features = []string{"EPSV", "MDTM", "MLST type*;size*;modify*;", "REST STREAM", "SIZE", "UTF8"}

// dataTimeout is how long a client may take to open its data connection.
const dataTimeout = 10 * time.Second

// A session is one control connection.
type session struct {
	server *Server
	number int
	conn   net.Conn
	text   *textproto.Conn

	dir     string // the working directory: "" or "a/b"
	rest    int64
	passive net.Listener
}

func (x *session) run() {
	defer func() {
		if x.passive != nil {
			x.passive.Close()
		}
	}()
	greeting := x.server.Greeting
	if greeting == "" {
		greeting = "220 ready"
	}
	for ok := x.say(greeting); ok; {
		line, err := x.text.ReadLine()
		if err != nil {
			return
		}
		verb, arg, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		x.server.note(x.number, verb, arg)
		reply := ""
		if x.server.Reply != nil {
			reply = x.server.Reply(verb, arg)
		}
		if reply == "" {
			reply = x.reply(verb, arg)
		}
		ok = x.say(reply) && verb != "QUIT"
	}
}

// say sends a reply and reports whether the session goes on.
func (x *session) say(reply string) bool {
	if reply == Hangup {
		return false
	}
	_, err := io.WriteString(x.conn, reply+"\r\n")
	return err == nil
}

func (x *session) reply(verb, arg string) string {
	name := strings.TrimPrefix(path.Join("/", x.dir, arg), "/")
	if strings.HasPrefix(arg, "/") {
		name = strings.TrimPrefix(path.Clean(arg), "/")
	}
	content, isFile := x.server.Files[name]
	switch verb {
	case "USER":
		return "331 password, please"
	case "PASS":
		return "230 welcome"
	case "FEAT":
		return x.features()
	case "TYPE", "OPTS", "NOOP":
		return "200 fine"
	case "QUIT":
		return "221 bye"
	case "CWD":
		if isFile || !x.server.isDir(name) {
			return "550 no such directory"
		}
		x.dir = name
		return "250 there"
	case "SIZE":
		if isFile {
			return "213 " + strconv.Itoa(len(content))
		}
		return "550 no plain file"
	case "MDTM":
		if isFile {
			return "213 " + Modified.Format("20060102150405")
		}
		return "550 no plain file"
	case "REST":
		x.rest, _ = strconv.ParseInt(arg, 10, 64)
		return "350 restarting"
	case "EPSV", "PASV":
		return x.listen(verb)
	case "RETR":
		if !isFile {
			return "550 no such file: " + name
		}
		content = content[min(x.rest, int64(len(content))):]
		x.rest = 0
		return x.transfer(content)
	case "LIST", "MLSD":
		return x.transfer(x.server.list(name, verb == "MLSD"))
	}
	return "502 not known"
}

func (x *session) features() string {
	list := x.server.Features
	if list == nil {
		list = features
	}
	if len(list) == 0 {
		return "502 not known"
	}
	return "211-features\r\n " + strings.Join(list, "\r\n ") + "\r\n211 end"
}

// listen opens a port for one data connection.
func (x *session) listen(verb string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "425 no port"
	}
	if x.passive != nil {
		x.passive.Close()
	}
	x.passive = l
	port := l.Addr().(*net.TCPAddr).Port
	if verb == "EPSV" {
		return fmt.Sprintf("229 Entering Extended Passive Mode (|||%d|)", port)
	}
	ip := x.server.PassiveIP
	if ip == "" {
		ip = "127.0.0.1"
	}
	return fmt.Sprintf("227 Entering Passive Mode (%s,%d,%d)", strings.ReplaceAll(ip, ".", ","), port>>8, port&255)
}

// transfer sends content on the data connection and returns the last reply.
func (x *session) transfer(content string) string {
	if x.passive == nil {
		return "425 no data connection"
	}
	x.passive.(*net.TCPListener).SetDeadline(time.Now().Add(dataTimeout))
	data, err := x.passive.Accept()
	x.passive.Close()
	x.passive = nil
	if err != nil || !x.server.hold(data) {
		return Hangup
	}
	defer x.server.drop(data)
	if !x.say("150 here it comes") {
		return Hangup
	}
	if x.server.Transfer != nil {
		return x.server.Transfer(data, content)
	}
	if _, err := io.WriteString(data, content); err != nil {
		return "426 broken off"
	}
	return "226 done"
}
