module robotsproxy/robots/internal/bench

go 1.26.0

require (
	github.com/temoto/robotstxt v1.1.2
	robotsproxy v0.0.0
)

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace robotsproxy => ../../..
