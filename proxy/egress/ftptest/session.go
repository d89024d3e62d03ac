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

// features is the default of Server.Features.
var features = []string{"EPSV", "MDTM", "MLST type*;size*;modify*;", "REST STREAM", "SIZE", "UTF8"}

// dataTimeout is how long a client may take to open its data connection.
const dataTimeout = 10 * time.Second

// A session is one control connection.
type session struct {
	server *Server
	number int
	conn   net.Conn
	text   *textproto.Conn

	// dir is the working directory: "" or "a/b".
	dir     string
	rest    int64
	passive net.Listener
}

func (s *session) run() {
	defer func() {
		if s.passive != nil {
			s.passive.Close()
		}
	}()
	greeting := s.server.Greeting
	if greeting == "" {
		greeting = "220 ready"
	}
	for ok := s.say(greeting); ok; {
		line, err := s.text.ReadLine()
		if err != nil {
			return
		}
		verb, arg, _ := strings.Cut(line, " ")
		verb = strings.ToUpper(verb)
		s.server.note(s.number, verb, arg)
		reply := ""
		if s.server.Reply != nil {
			reply = s.server.Reply(verb, arg)
		}
		if reply == "" {
			reply = s.reply(verb, arg)
		}
		ok = s.say(reply) && verb != "QUIT"
	}
}

// say sends a reply and reports whether the session continues.
func (s *session) say(reply string) bool {
	if reply == Hangup {
		return false
	}
	_, err := io.WriteString(s.conn, reply+"\r\n")
	return err == nil
}

func (s *session) reply(verb, arg string) string {
	name := strings.TrimPrefix(path.Join("/", s.dir, arg), "/")
	if strings.HasPrefix(arg, "/") {
		name = strings.TrimPrefix(path.Clean(arg), "/")
	}
	content, isFile := s.server.Files[name]
	switch verb {
	case "USER":
		return "331 password, please"
	case "PASS":
		return "230 welcome"
	case "FEAT":
		return s.features()
	case "TYPE", "OPTS", "NOOP":
		return "200 fine"
	case "QUIT":
		return "221 bye"
	case "CWD":
		if isFile || !s.server.isDir(name) {
			return "550 no such directory"
		}
		s.dir = name
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
		s.rest, _ = strconv.ParseInt(arg, 10, 64)
		return "350 restarting"
	case "EPSV", "PASV":
		return s.listen(verb)
	case "RETR":
		if !isFile {
			return "550 no such file: " + name
		}
		content = content[min(s.rest, int64(len(content))):]
		s.rest = 0
		return s.transfer(content)
	case "LIST", "MLSD":
		return s.transfer(s.server.list(name, verb == "MLSD"))
	}
	return "502 not known"
}

func (s *session) features() string {
	list := s.server.Features
	if list == nil {
		list = features
	}
	if len(list) == 0 {
		return "502 not known"
	}
	return "211-features\r\n " + strings.Join(list, "\r\n ") + "\r\n211 end"
}

// listen opens a port for one data connection.
func (s *session) listen(verb string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "425 no port"
	}
	if s.passive != nil {
		s.passive.Close()
	}
	s.passive = l
	port := l.Addr().(*net.TCPAddr).Port
	if verb == "EPSV" {
		return fmt.Sprintf("229 Entering Extended Passive Mode (|||%d|)", port)
	}
	ip := s.server.PassiveIP
	if ip == "" {
		ip = "127.0.0.1"
	}
	return fmt.Sprintf("227 Entering Passive Mode (%s,%d,%d)", strings.ReplaceAll(ip, ".", ","), port>>8, port&255)
}

// transfer sends content on the data connection and returns the last reply.
func (s *session) transfer(content string) string {
	if s.passive == nil {
		return "425 no data connection"
	}
	s.passive.(*net.TCPListener).SetDeadline(time.Now().Add(dataTimeout))
	data, err := s.passive.Accept()
	s.passive.Close()
	s.passive = nil
	if err != nil || !s.server.hold(data) {
		return Hangup
	}
	defer s.server.drop(data)
	if !s.say("150 here it comes") {
		return Hangup
	}
	if s.server.Transfer != nil {
		return s.server.Transfer(data, content)
	}
	if _, err := io.WriteString(data, content); err != nil {
		return "426 broken off"
	}
	return "226 done"
}
