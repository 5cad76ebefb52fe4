// checkpoint saves a gigabyte of a model's state and loads it again, without a copy on the way.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"time"

	"github.com/piwi3910/nebulaio/bindings/go/rdma"
)

const bytes = 256 << 20

func main() {
	client, err := rdma.NewClient(rdma.Config{MemoryPool: rdma.PoolSize(bytes)}) // NEBULAIO_ENDPOINT and keys
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.CreateBucket(ctx, "checkpoints"); err != nil && !errors.Is(err, fs.ErrExist) {
		log.Fatal(err)
	}
	state := client.AllocateBuffer(bytes)
	defer client.ReleaseBuffer(state)
	for i := range state {
		state[i] = byte(i * 7)
	}
	var result rdma.Result
	if err := client.PutObject(rdma.WithResult(ctx, &result), "checkpoints", "step-1", state); err != nil {
		log.Fatal(err)
	}
	for i := range state {
		state[i] = 0
	}
	n, err := client.GetObject(ctx, "checkpoints", "step-1", state)
	if err != nil {
		log.Fatal(err)
	}
	for i := range state {
		if state[i] != byte(i*7) {
			log.Fatalf("byte %d differs", i)
		}
	}
	fmt.Printf("%d bytes by %s, %d copied, the same\n", n, result.Transport, client.Stats().BytesCopied)
}
