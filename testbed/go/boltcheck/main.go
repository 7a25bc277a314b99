// Command boltcheck lets bbolt itself speak about bolt files: it checks and dumps the ones we wrote, goes on
// writing into them, and makes files for our reader that only bbolt could have made.
//
//	boltcheck check FILE          bbolt's own consistency check; one error per line, exit 1 if any
//	boltcheck dump FILE           every bucket's rows and hash, as JSON
//	boltcheck make FILE SPEC      a new file from a specification (JSON, see makeSpec)
//	boltcheck commits FILE SPEC   many put and delete transactions on a file (JSON, see commitSpec)
//
// On some damaged files bbolt panics in goroutines of its own; that ends the process with Go's exit code 2, which
// tells as much as the 1 of an error.  64 is a wrong call.
package main

import (
	"errors"
	"fmt"
	"os"
)

var errUsage = errors.New("usage: boltcheck check FILE | dump FILE | make FILE SPEC | commits FILE SPEC")

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "check":
		return check(arguments[1])
	case len(arguments) == 2 && arguments[0] == "dump":
		return dump(arguments[1])
	case len(arguments) == 3 && arguments[0] == "make":
		return makeFile(arguments[1], arguments[2])
	case len(arguments) == 3 && arguments[0] == "commits":
		return commit(arguments[1], arguments[2])
	}
	return errUsage
}

func main() {
	err := run(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, errUsage) {
		os.Exit(64)
	}
	os.Exit(1)
}
