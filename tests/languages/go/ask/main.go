// Asks the server at os.Args[1] on the example's channel until the input ends. Writes a line for each call: its error, or
// <nil>. os.Args[2] is the deadline of each, as 30s.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	topospreadv1 "github.com/topospread/topospread/gen/go/topospread/v1"
)

const callers = 4 // at once, so that one of them waits for an answer whenever a server is killed

func main() {
	patience, err := time.ParseDuration(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	channel, err := open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()
	decisions := topospreadv1.NewDecisionServiceClient(channel)
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				fmt.Println(ask(decisions, patience))
			}
		})
	}
	running.Wait()
}

func ask(decisions topospreadv1.DecisionServiceClient, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pod := &topospreadv1.PodReference{Namespace: "default", Name: "web-0"}
	_, err := decisions.EvaluatePod(ctx, &topospreadv1.EvaluatePodRequest{
		Pod: &topospreadv1.PodSource{Source: &topospreadv1.PodSource_Ref{Ref: pod}},
	})
	return err
}
