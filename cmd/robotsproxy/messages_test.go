package main

import (
	"go/ast"
	"go/parser"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"robotsproxy/robots/testkit"
)

// messageAt is the argument of a slog.Logger's method that is the message.
var messageAt = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2,
}

// TestLogMessages: each message of the log is a constant phrase, so that people and programs can
// search for it. What varies is in the attributes.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	found := 0
	eachSource(t, func(path string, text []byte) {
		s, err := readSource(path, text)
		testkit.Must(t, err)
		for n := range ast.Preorder(s.file) {
			if message, ok := logMessage(n); ok {
				found++
				if why := badMessage(message); why != "" {
					t.Errorf("%s: log message %s", s.set.Position(n.Pos()), why)
				}
			}
		}
	})
	if found < 40 {
		t.Errorf("%d log messages found, want at least 40", found)
	}
}

// logMessage returns the message of a call of a logger's method. A logger is called log, logger or
// slog, or is a field of such a name.
func logMessage(n ast.Node) (message ast.Expr, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall {
		return nil, false
	}
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod {
		return nil, false
	}
	at, isLevel := messageAt[method.Sel.Name]
	if !isLevel || at >= len(call.Args) || !isLogger(method.X) {
		return nil, false
	}
	return call.Args[at], true
}

func isLogger(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr: // log.With(...)
		with, ok := x.Fun.(*ast.SelectorExpr)
		return ok && isLogger(with.X)
	}
	return loggerName.MatchString(name)
}

var loggerName = regexp.MustCompile(`(?i)^(s?log|logger)$`)

// formatVerb matches what fmt would replace.
var formatVerb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// badMessage returns what is wrong with a message, "" for nothing.
func badMessage(x ast.Expr) string {
	literal, ok := x.(*ast.BasicLit)
	if !ok {
		return "must be a constant string; put what varies into attributes"
	}
	text, err := strconv.Unquote(literal.Value)
	words := strings.Fields(text)
	switch {
	case err != nil || len(words) < 2:
		return literal.Value + " must have at least two words"
	case strings.ContainsFunc(words[0][:1], unicode.IsUpper) && strings.ToUpper(words[0]) != words[0]:
		return literal.Value + " must begin with a lower-case letter, or an abbreviation"
	case strings.HasSuffix(text, "."):
		return literal.Value + " must not end with a full stop"
	case formatVerb.MatchString(text):
		return literal.Value + " must not contain a format verb"
	case len(text) > 100:
		return literal.Value + " must have at most 100 bytes"
	}
	return ""
}

// TestBadMessages: each fault of a message is found.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	for source, good := range map[string]bool{
		`log.Info("configuration reloaded")`:               true,
		`s.o.Log.Warn("TLS handshake failed", "err", err)`: true,
		`log.With("a", 1).Error("state.db unreadable")`:    true,
		`log.Info("Configuration reloaded")`:               false,
		`log.Info("configuration reloaded.")`:              false,
		`log.Info("reloaded %s twice")`:                    false,
		`log.Info("reloaded " + name)`:                     false,
		`log.Log(ctx, level, text)`:                        false,
		`log.Info("` + strings.Repeat("long ", 30) + `x")`: false,
	} {
		x, err := parser.ParseExpr(source)
		testkit.Must(t, err)
		message, ok := logMessage(x)
		if !ok {
			t.Errorf("%s: not recognised", source)
		} else if why := badMessage(message); (why == "") != good {
			t.Errorf("%s: %q", source, why)
		}
	}
	x, err := parser.ParseExpr(`cli.Warn("look at the disk")`)
	testkit.Must(t, err)
	if _, ok := logMessage(x); ok {
		t.Error("a function of another package is taken for a logger")
	}
}
