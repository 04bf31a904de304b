// Command smelt turns Hugging Face checkpoints into Core ML bundles, runs
// them, and holds them against reference results.
//
//	go build -o smelt ./cmd/convert
//	./smelt demo
//
// Every verb is a few lines over a public function of the packages beside it;
// smelt VERB -h shows flags and examples. Exit codes: 0 pass, 1 a gate failed,
// 2 an error, wrong usage included.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run is main with an exit code, for tests that run the command in process.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end, the second one ends.
	context.AfterFunc(ctx, stop)
	s := &session{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	return s.execute(ctx, os.Args)
}
