package main

import (
	_ "embed"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// docs/service-config.json says what gRPC itself repeats, and what waits for a connection.
//
//go:embed service-config.json
var serviceConfig string

// open opens a channel on which calls that may be repeated outlast a restart of the server, up to their deadlines.
func open(address string) (*grpc.ClientConn, error) {
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = 2 * time.Second // the default, two minutes, is for what is gone for long
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}),
	)
}
