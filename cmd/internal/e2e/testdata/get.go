// A program without C that gets the URLs in its arguments, and prints their statuses. It knows of no proxy.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	client := &http.Client{Transport: &http.Transport{}}
	for _, url := range os.Args[1:] {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
}
