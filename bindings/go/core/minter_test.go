package core

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

func minterOf(t *testing.T, config Config) *Minter {
	t.Helper()
	minter, err := NewMinter(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { minter.Close() })
	return minter
}

// The requests with tokens are this client's, by HTTP: it knows nothing of tokens but the header.
func sendToken(t *testing.T, client *Client, method, path string, token *Token, headers map[string]string) (Result, error) {
	t.Helper()
	all := map[string]string{TokenHeader: token.String()}
	for name, value := range headers {
		all[name] = value
	}
	return client.Do(ctx, &Request{Op: S3, Method: method, Path: path, Headers: all})
}

func window(t *testing.T, minter *Minter, use TokenUse, memory []byte) *Token {
	t.Helper()
	token, err := minter.Token(use, memory)
	must(t, err)
	return token
}

// PUT, a part, GET and a range from and into memory of the program, byte by byte.
func TestMinterMoves(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "http")})
	bucket := bucketOf(t, client)
	minter := minterOf(t, Config{Endpoint: server(t, "http"), DeviceName: "simulated"})
	must(t, minter.Available())
	memory, err := minter.Allocate(1 << 20)
	must(t, err)
	data := noise(len(memory), 1)
	copy(memory, data)
	token := window(t, minter, TokenPut, memory)
	_, err = sendToken(t, client, "PUT", "/"+bucket+"/minted", token, nil)
	must(t, err)
	must(t, token.Release())
	got, err := client.GetObjectData(ctx, bucket, "minted")
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Fatal("the object has other bytes")
	}
	for i := range memory {
		memory[i] = 0
	}
	token = window(t, minter, TokenGet, memory[4096:4096+70000])
	result, err := sendToken(t, client, "GET", "/"+bucket+"/minted", token, map[string]string{"range": "bytes=1000-70999"})
	must(t, err)
	must(t, token.Release())
	if result.Status != http.StatusPartialContent || !bytes.Equal(memory[4096:4096+70000], data[1000:71000]) {
		t.Fatalf("%+v", result)
	}
	if bytes.Count(memory[:4096], []byte{0}) != 4096 || bytes.Count(memory[74096:], []byte{0}) != len(memory)-74096 {
		t.Fatal("bytes beside the window")
	}
	must(t, minter.Free(memory))
}

// A token is of its minter's registered memory, and ends once.
func TestMinterRefuses(t *testing.T) {
	minter := minterOf(t, Config{Endpoint: server(t, "http"), DeviceName: "simulated"})
	memory, err := minter.Allocate(4096)
	must(t, err)
	for name, wrong := range map[string][]byte{"nothing": nil, "Go's heap": make([]byte, 4096)} {
		if _, err := minter.Token(TokenGet, wrong); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	token := window(t, minter, TokenEither, memory[:16])
	must(t, token.Release())
	if err := token.Release(); !errors.Is(err, syscall.ENOENT) {
		t.Fatal(err)
	}
	if err := minter.Unregister(memory); !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("memory of Allocate ends by Free: %v", err)
	}
	must(t, minter.Free(memory))
	for _, wrong := range []Config{{Endpoint: server(t, "rdma")}, {Endpoints: []string{server(t, "http"), "http://127.0.0.1:1"}}} {
		wrong.DeviceName, wrong.Log = "simulated", func(LogLevel, string) {}
		if _, err := NewMinter(wrong); !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("%+v: %v", wrong, err)
		}
	}
	must(t, minter.Close())
	must(t, minter.Close())
	if _, err := minter.Token(TokenGet, memory[:0]); err == nil {
		t.Fatal("a closed minter mints")
	}
	if err := minter.Available(); err == nil {
		t.Fatal("a closed minter is available")
	}
}

// A failure ends the queue pair, and the next token has another; a key that nobody knows is told.
func TestMinterFailed(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "http")})
	bucket := bucketOf(t, client)
	must(t, client.PutObject(ctx, bucket, "object", []byte("seventeen letters")))
	minter := minterOf(t, Config{Endpoint: server(t, "http"), DeviceName: "simulated"})
	memory, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	must(t, err)
	defer syscall.Munmap(memory)
	must(t, minter.Register(memory))
	token := window(t, minter, TokenGet, memory)
	must(t, token.Failed())
	if result, err := sendToken(t, client, "GET", "/"+bucket+"/object", token, nil); err == nil || result.Status == 200 {
		t.Fatalf("%+v", result)
	}
	must(t, token.Release())
	if memory[0] != 0 {
		t.Fatal("bytes by a token that failed")
	}
	token = window(t, minter, TokenGet, memory)
	_, err = sendToken(t, client, "GET", "/"+bucket+"/object", token, nil)
	must(t, err)
	must(t, token.Release())
	if string(memory[:17]) != "seventeen letters" {
		t.Fatalf("%q", memory[:17])
	}
	must(t, minter.Unregister(memory))
	stranger := minterOf(t, Config{Endpoint: server(t, "http"), DeviceName: "simulated", AccessKey: "nobody", SecretKey: "nothing-at-all"})
	if err := stranger.Available(); !errors.Is(err, syscall.EACCES) {
		t.Fatal(err)
	}
}

// Close beside Allocate, while Available asks a server that accepts and is silent: all of them return.
func TestMinterClosedMeanwhile(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	config := Config{Endpoint: "http://" + listener.Addr().String(), DeviceName: "simulated", AccessKey: "key", SecretKey: "secret"}
	minter := minterOf(t, config)
	ends := make(chan error, 3)
	go func() { ends <- minter.Available() }()
	asked, err := listener.Accept()
	must(t, err)
	go func() { ends <- minter.Close() }()
	for minter.mutex.TryRLock() { // until Close waits for Available
		minter.mutex.RUnlock()
		runtime.Gosched()
	}
	go func() {
		_, err := minter.Allocate(4096)
		ends <- err
	}()
	for minter.memories.TryLock() { // until Close or Allocate has it
		minter.memories.Unlock()
		runtime.Gosched()
	}
	listener.Close()
	asked.Close()
	var failed int
	for i := 0; i < 3; i++ {
		if <-ends != nil {
			failed++
		}
	}
	if failed != 2 {
		t.Fatalf("%d of Available and Allocate failed", failed)
	}
}

// Any goroutine may mint.
func TestMinterGoroutines(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "http")})
	bucket := bucketOf(t, client)
	minter := minterOf(t, Config{Endpoint: server(t, "http"), DeviceName: "simulated"})
	memory, err := minter.Allocate(8 * 4096)
	must(t, err)
	copy(memory, noise(len(memory), 2))
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for i := 0; i < 8; i++ {
		all.Add(1)
		go func(part []byte, path string) {
			defer all.Done()
			token, err := minter.Token(TokenPut, part)
			if err == nil {
				_, err = sendToken(t, client, "PUT", path, token, nil)
				token.Release()
			}
			errs <- err
		}(memory[i*4096:(i+1)*4096], "/"+bucket+"/"+strconv.Itoa(i))
	}
	all.Wait()
	for i := 0; i < 8; i++ {
		must(t, <-errs)
		got, err := client.GetObjectData(ctx, bucket, strconv.Itoa(i))
		if err != nil || !bytes.Equal(got, memory[i*4096:(i+1)*4096]) {
			t.Fatalf("object %d: %v", i, err)
		}
	}
}
