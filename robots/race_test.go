//go:build race

package robots_test

const raced = true
