// Stores 64 MiB, or fetches them, again and again until it is killed: again put|get.
package main

import (
	"log"
	"os"

	"github.com/piwi3910/nebulaio/client/rdma"
)

func main() {
	client, err := rdma.NewClient(rdma.Config{MemoryPool: rdma.PoolSize(128 << 20)})
	if err != nil {
		log.Fatal(err)
	}
	buf := client.AllocateBuffer(64 << 20)
	for err == nil {
		if os.Args[1] == "put" {
			err = client.PutObject(ctx, "killed", "object", buf)
		} else {
			_, err = client.GetObject(ctx, "killed", "object", buf)
		}
	}
	log.Fatal(err)
}
