package core

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"
)

func mapOf(t *testing.T, client *Client, bucket, key string) *Map {
	t.Helper()
	m, err := client.Map(ctx, bucket, key, "")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// Objects over both transports: touched, read, prefetched, beyond the client's Close.
func TestMap(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme)})
		bucket := bucketOf(t, client)
		data := noise(5<<20+123, 3)
		must(t, client.PutObject(ctx, bucket, "object", data))
		must(t, client.PutObject(ctx, bucket, "empty", nil))
		m := mapOf(t, client, bucket, "object")
		if stats := m.Stats(); stats.Fetches != 0 || len(m.Bytes()) != len(data) {
			t.Fatalf("%s: %d bytes, %+v", scheme, len(m.Bytes()), stats)
		}
		if at := 3 << 20; m.Bytes()[at] != data[at] {
			t.Fatal("another byte")
		}
		stats := m.Stats()
		if stats.Faults == 0 || stats.BytesFetched == 0 || stats.BytesFetched > 1<<20 || (stats.FetchesRDMA > 0) != (scheme == "rdma") {
			t.Fatalf("%s: %+v", scheme, stats)
		}
		must(t, m.Prefetch(ctx, 0, 1<<20))
		if before := m.Stats().Faults; !bytes.Equal(m.Bytes()[:1<<20], data[:1<<20]) || m.Stats().Faults != before {
			t.Fatalf("%s: prefetched: %d faults, %d before", scheme, m.Stats().Faults, before)
		}
		tail := make([]byte, 200)
		if n, err := m.ReadAt(tail, int64(len(data)-100)); n != 100 || err != io.EOF || !bytes.Equal(tail[:n], data[len(data)-100:]) {
			t.Fatal(n, err)
		}
		if !bytes.Equal(m.Bytes(), data) || m.Err() != nil || m.ETag() == "" {
			t.Fatal(m.Err(), m.ETag())
		}
		if err := m.Prefetch(ctx, len(data)+1, 1); !errors.Is(err, syscall.ERANGE) {
			t.Fatal(err)
		}
		if empty := mapOf(t, client, bucket, "empty"); len(empty.Bytes()) != 0 {
			t.Fatal(len(empty.Bytes()))
		}
		if _, err := client.Map(ctx, bucket, "missing", ""); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := client.Map(ended, bucket, "object", ""); err != context.Canceled {
			t.Fatal(err)
		}
		must(t, client.Close())
		if !bytes.Equal(m.Bytes(), data) {
			t.Fatal("other bytes after the client's Close")
		}
		if _, err := client.Map(ctx, bucket, "object", ""); err != ErrClosed {
			t.Fatal(err)
		}
		must(t, m.Close())
		must(t, m.Close())
		if _, err := m.ReadAt(tail, 0); err != fs.ErrClosed || m.Err() != fs.ErrClosed || m.Bytes() != nil {
			t.Fatal(err, m.Err())
		}
	}
}

// touched reads one byte, and returns the signal as an error if there is one.
func touched(data []byte, at int) (b byte, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fault.(error)
		}
	}()
	return data[at], nil
}

// A map whose object is replaced ends: touching it is a panic where the goroutine asked for that, ReadAt an error.
func TestMapEnds(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma")})
	bucket := bucketOf(t, client)
	data := noise(20<<20, 4)
	must(t, client.PutObject(ctx, bucket, "object", data))
	m, other := mapOf(t, client, bucket, "object"), mapOf(t, client, bucket, "object")
	if b, err := touched(m.Bytes(), 0); b != data[0] || err != nil {
		t.Fatal(b, err)
	}
	must(t, client.PutObject(ctx, bucket, "object", data[1:]))
	_, err := touched(m.Bytes(), 19<<20)
	address, has := err.(interface{ Addr() uintptr })
	if !has || address.Addr() == 0 {
		t.Fatalf("a touch of what cannot come: %v", err)
	}
	if err := m.Err(); !errors.Is(err, syscall.ESTALE) {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for _, one := range []*Map{m, other} {
		if n, err := one.ReadAt(buf, 19<<20); n != 0 || !errors.Is(err, syscall.ESTALE) {
			t.Fatal(n, err)
		}
		if err := one.Prefetch(ctx, 0, 100); !errors.Is(err, syscall.ESTALE) {
			t.Fatal(err)
		}
	}
	/* The bytes that were there have gone, too: the copy's own signal is an error. */
	if err := m.copy(buf, 0); !errors.Is(err, syscall.ESTALE) {
		t.Fatal(err)
	}
}

// Goroutines on one place of GOMAXPROCS touch a map of more than may be in memory, while the collector runs: nobody waits
// for another for ever.
func TestMapCollected(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma"), MapBytesMax: mapBytesMin})
	bucket := bucketOf(t, client)
	data := noise(48<<20, 5)
	must(t, client.PutObject(ctx, bucket, "object", data))
	m := mapOf(t, client, bucket, "object")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	end := make(chan struct{})
	var readers, collector sync.WaitGroup
	collector.Add(1)
	go func() {
		defer collector.Done()
		for {
			select {
			case <-end:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for i := 0; i < 4; i++ {
		readers.Add(1)
		go func(i int) {
			defer readers.Done()
			const piece = 12 << 20
			mine := make([]byte, piece)
			copy(mine, m.Bytes()[i*piece:])
			for at := 0; at < piece; at += 4096 {
				if m.Bytes()[i*piece+at] != data[i*piece+at] {
					t.Errorf("another byte at %d", at)
					return
				}
			}
			if !bytes.Equal(mine, data[i*piece:][:piece]) {
				t.Error("other bytes")
			}
		}(i)
	}
	readers.Wait()
	close(end)
	collector.Wait()
	if stats := m.Stats(); stats.BytesResident > mapBytesMin || stats.BytesDropped == 0 {
		t.Errorf("%+v", stats)
	}
	brief, cancel := context.WithTimeout(ctx, time.Nanosecond)
	defer cancel()
	<-brief.Done()
	if err := m.Prefetch(brief, 0, 100); err != context.DeadlineExceeded {
		t.Error(err)
	}
	if _, err := NewClient(Config{Endpoint: "a", AccessKey: "a", SecretKey: "s", MapBytesMax: mapBytesMin - 1}); err == nil {
		t.Error("MapBytesMax below its least")
	}
}
