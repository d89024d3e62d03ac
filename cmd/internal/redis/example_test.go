package redis_test

import (
	"context"
	"log/slog"

	"robotsproxy/cmd/internal/redis"
	"robotsproxy/policy/pace"
)

// A Pacer that shares its pace with those of two other replicas.
func Example() {
	fleet, err := redis.Open(redis.Options{URL: "redis://store.example:6379", Replicas: 3, Log: slog.Default()})
	if err != nil {
		panic(err)
	}
	defer fleet.Close()
	pacer := pace.New(pace.Options{Store: fleet})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // after the last request
	go fleet.Run(ctx, redis.Hooks{Clocks: pacer.Clocks, Recheck: pacer.Recheck, BackOff: pacer.MergeBackOff})
}
