package core

// These tests use the server that the environment names: NEBULAIO_TEST_RDMA, NEBULAIO_TEST_HTTP.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var ctx = context.Background()

func server(t *testing.T, scheme string) string {
	address := os.Getenv("NEBULAIO_TEST_" + strings.ToUpper(scheme))
	if address == "" {
		t.Skip("no server: NEBULAIO_TEST_RDMA and NEBULAIO_TEST_HTTP name none")
	}
	return scheme + "://" + address
}

func clientOf(t *testing.T, config Config) *Client {
	t.Helper()
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func bucketOf(t *testing.T, client *Client) string {
	t.Helper()
	bucket := fmt.Sprintf("go-%d-%d", os.Getpid(), time.Now().UnixNano())
	if err := client.CreateBucket(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	return bucket
}

func noise(n int, seed int64) []byte {
	data := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(data)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Lengths on either side of each of the client's limits, over both transports, in both kinds of memory.
func TestRoundTrip(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme), MemoryPool: 128 << 20})
		bucket := bucketOf(t, client)
		for _, n := range []int{0, 1, 256, 257, 4096, 65536, 65537, 1 << 20, pieceBytes, pieceBytes + 1, 40<<20 + 7} {
			data := noise(n, int64(n))
			must(t, client.PutObject(ctx, bucket, "plain", data))
			got, err := client.GetObjectData(ctx, bucket, "plain")
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s, %d bytes: %v, equal %v", scheme, n, err, bytes.Equal(got, data))
			}
			got = make([]byte, n+3)
			var read Result
			if m, err := client.GetObjectInto(WithResult(ctx, &read), bucket, "plain", got); err != nil || m != n || !bytes.Equal(got[:n], data) {
				t.Fatalf("%s, %d bytes into ordinary memory: %d, %v", scheme, n, m, err)
			}
			if string(read.Transport) != scheme || read.Bytes != int64(n) || read.ETag == "" || read.RequestID == "" {
				t.Fatalf("%s, %d bytes into ordinary memory: %+v", scheme, n, read)
			}
			buf := client.AllocateBuffer(n)
			if !client.Registered(buf) || len(buf) != n {
				t.Fatalf("%d bytes are not of the pool", n)
			}
			copy(buf, data)
			var result Result
			must(t, client.PutObject(WithResult(ctx, &result), bucket, "registered", buf))
			if string(result.Transport) != scheme || result.Status != 200 || result.ETag == "" || result.RequestID == "" {
				t.Fatalf("%+v", result)
			}
			for i := range buf {
				buf[i] = 0
			}
			if m, err := client.GetObjectInto(ctx, bucket, "registered", buf); err != nil || m != n || !bytes.Equal(buf, data) {
				t.Fatalf("%s, %d bytes into the pool: %d, %v", scheme, n, m, err)
			}
			client.ReleaseBuffer(buf)
		}
	}
}

// Two members of a group, one in registered memory, and what is refused.
func TestFanOut(t *testing.T) {
	rdma := clientOf(t, Config{Endpoint: server(t, "rdma"), MemoryPool: 64 << 20})
	http := clientOf(t, Config{Endpoint: server(t, "http")})
	bucket := bucketOf(t, rdma)
	data := noise(36<<20+5, 9)
	must(t, rdma.PutObject(ctx, bucket, "weights", data))
	fan := FanOut{Name: "go-1", Members: 2, Wait: time.Minute}
	bufs := [][]byte{rdma.AllocateBuffer(len(data)), make([]byte, len(data)+3)}
	var results [2]Result
	var group sync.WaitGroup
	for i, client := range []*Client{rdma, http} {
		group.Add(1)
		go func(i int, client *Client) {
			defer group.Done()
			n, err := client.GetFanOut(WithResult(ctx, &results[i]), bucket, "weights", bufs[i], fan)
			if err != nil || n != len(data) || !bytes.Equal(bufs[i][:n], data) {
				t.Errorf("member %d: %d, %v", i, n, err)
			}
		}(i, client)
	}
	group.Wait()
	for i, scheme := range []string{"rdma", "http"} {
		if r := results[i]; string(r.Transport) != scheme || r.Headers[FanOutHeader] != "member; members=2" || r.Bytes != int64(len(data)) {
			t.Errorf("member %d: %+v", i, results[i])
		}
	}
	// A member that is far keeps its group; the next one's first piece is late for it, and the others are in none.
	late, told := FanOut{Name: "go-2", Members: 1}, Result{}
	far := Request{Op: GetObject, Bucket: bucket, Key: "weights", Into: bufs[1][:34<<20], RangeBytes: 34 << 20, Headers: map[string]string{FanOutHeader: late.header()}}
	if _, err := http.do(ctx, &far); err != nil {
		t.Error(err)
	}
	if _, err := http.GetFanOut(WithResult(ctx, &told), bucket, "weights", bufs[1], late); err != nil || told.Headers[FanOutHeader] != "late" {
		t.Errorf("%v, %+v", err, told)
	}
	if _, err := rdma.GetFanOut(ctx, bucket, "weights", make([]byte, 5), FanOut{Name: "a", Members: 1}); !errors.Is(err, syscall.EMSGSIZE) {
		t.Error(err)
	}
	for _, bad := range []FanOut{{Members: 1}, {Name: "a"}, {Name: "a", Members: -1}, {Name: "a", Members: 1, Wait: -1}, {Name: "a b", Members: 1}} {
		if _, err := rdma.GetFanOut(ctx, bucket, "weights", bufs[1], bad); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := rdma.GetFanOut(ctx, bucket, "none", bufs[1], FanOut{Name: "a", Members: 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	var small Result
	must(t, rdma.PutObject(ctx, bucket, "small", data[:7]))
	if n, err := rdma.GetFanOut(WithResult(ctx, &small), bucket, "small", bufs[1], FanOut{Name: "a", Members: 3}); err != nil || n != 7 ||
		small.Headers[FanOutHeader] != "small" {
		t.Errorf("%d, %v, %+v", n, err, small)
	}
	must(t, rdma.PutObject(ctx, bucket, "small", nil))
	if n, err := rdma.GetFanOut(ctx, bucket, "small", nil, FanOut{Name: "a", Members: 3}); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
}

// Thousands of reads, of which some fail, and a context that ends before all of them.
func TestGetMany(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme)})
		bucket := bucketOf(t, client)
		data := noise(1000, 7)
		must(t, client.PutObject(ctx, bucket, "here", data))
		reads := make([]Read, 2000)
		for i := range reads {
			reads[i] = Read{Key: "here", Into: make([]byte, 1000)}
			if i%3 == 1 {
				reads[i].RangeOffset, reads[i].RangeBytes = 100, 50
			}
		}
		must(t, client.GetMany(ctx, bucket, reads, 16))
		for i := range reads {
			want := data
			if i%3 == 1 {
				want = data[100:150]
			}
			if !bytes.Equal(reads[i].Into[:reads[i].Result.Bytes], want) {
				t.Fatalf("%s: %d: %+v", scheme, i, reads[i].Result)
			}
		}
		reads = []Read{{Key: "here", Into: make([]byte, 1000)}, {Key: "missing", Into: make([]byte, 9)},
			{Key: "here", Into: make([]byte, 9)}}
		err := client.GetMany(ctx, bucket, reads, 0)
		if !errors.Is(err, fs.ErrNotExist) || reads[0].Err != nil || !errors.Is(reads[2].Err, syscall.EMSGSIZE) {
			t.Fatalf("%s: %v: %v", scheme, err, reads)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if err := client.GetMany(over, bucket, reads, 0); !errors.Is(err, context.Canceled) || client.GetMany(over, bucket, nil, 0) != nil {
			t.Fatal(err)
		}
	}
}

// The client finds and reports the device; reads from the server's memory and encryption work.
func TestWays(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma"), OneSidedReads: true})
	bucket := bucketOf(t, client)
	if client.Device() != "simulated" || !strings.Contains(client.DeviceWhy(), "127.0.0.1") {
		t.Fatalf("%q: %q", client.Device(), client.DeviceWhy())
	}
	buf := client.AllocateBuffer(3)
	must(t, client.PutObject(ctx, bucket, "hot", []byte("hot")))
	for i := 0; i < 100; i++ {
		_, err := client.GetObjectInto(ctx, bucket, "hot", buf)
		must(t, err)
	}
	if string(buf) != "hot" || client.Stats().OneSidedReads == 0 {
		t.Fatalf("%q: %+v", buf, client.Stats())
	}
	sealed := clientOf(t, Config{Endpoint: server(t, "rdma"), OneSidedReads: true, RequireEncryption: true})
	room := sealed.AllocateBuffer(3)
	for i := 0; i < 10; i++ {
		_, err := sealed.GetObjectInto(ctx, bucket, "hot", room)
		must(t, err)
	}
	if string(room) != "hot" || sealed.Stats().OneSidedReads != 0 {
		t.Fatalf("encrypted: %q: %+v", room, sealed.Stats())
	}
}

func TestNoCopy(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma"), Transport: Strict})
	bucket := bucketOf(t, client)
	buf := client.AllocateBuffer(8 << 20)
	copy(buf, noise(len(buf), 1))
	before := client.Stats().BytesCopied
	for i := 0; i < 5; i++ {
		must(t, client.PutObject(ctx, bucket, "k", buf))
		_, err := client.GetObjectInto(ctx, bucket, "k", buf)
		must(t, err)
	}
	// The dispatcher counts a result after it has returned it: after one more request the count is there.
	must(t, client.DeleteObject(ctx, bucket, "none"))
	after := client.Stats()
	if after.BytesCopied != before || after.Registrations != 0 {
		t.Fatalf("%d bytes copied: %+v", after.BytesCopied-before, after)
	}
	must(t, client.PutObject(ctx, bucket, "k", noise(1000, 1)))
	if client.Stats().BytesCopied < before+1000 {
		t.Fatal("a copy that was not counted")
	}
}

// Bodies over the limit of one request, with a limit that fits a test's memory.
func TestParts(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme), MemoryPool: 64 << 20, PartBytes: 5 << 20})
		bucket := bucketOf(t, client)
		for i, n := range []int{5 << 20, 5<<20 + 1, 23<<20 + 7} {
			var result Result
			data := noise(n, int64(i))
			must(t, client.PutObjectWith(WithResult(ctx, &result), bucket, "parts", data,
				map[string]string{"x-amz-meta-colour": "blue"}))
			if result.Transport != Transport(scheme) {
				t.Error(scheme, n, result.Transport)
			}
			back, err := client.GetObjectData(ctx, bucket, "parts")
			must(t, err)
			if !bytes.Equal(back, data) {
				t.Error(scheme, n, "other bytes came back")
			}
			info, err := client.HeadObject(ctx, bucket, "parts")
			must(t, err)
			parts := (n + 5<<20 - 1) / (5 << 20)
			if strings.HasSuffix(info.ETag, fmt.Sprintf("-%d", parts)) != (parts > 1) || result.ETag != info.ETag ||
				info.Result.Headers["x-amz-meta-colour"] != "blue" {
				t.Error(scheme, n, result.ETag, info.ETag, info.Result.Headers)
			}
		}
		// Without a copy, from registered memory.
		buf := client.AllocateBuffer(20 << 20)
		before := client.Stats().BytesCopied
		must(t, client.PutObject(ctx, bucket, "parts", buf))
		if scheme == "rdma" && client.Stats().BytesCopied-before > 64<<10 {
			t.Error("parts of registered memory were copied: ", client.Stats().BytesCopied-before)
		}
		client.ReleaseBuffer(buf)
	}
}

// A condition holds for a body in parts, too.
func TestConditionOfParts(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme), PartBytes: 5 << 20})
		bucket := bucketOf(t, client)
		data := noise(6<<20, 1)
		create := map[string]string{"If-None-Match": "*", "x-amz-meta-colour": "blue"}
		must(t, client.PutObjectWith(ctx, bucket, "key", data, create))
		if err := client.PutObjectWith(ctx, bucket, "key", noise(6<<20, 2), create); !errors.Is(err, syscall.ESTALE) {
			t.Error(scheme, "an object was to be created over another one:", err)
		}
		info, err := client.HeadObject(ctx, bucket, "key")
		must(t, err)
		back, err := client.GetObjectData(ctx, bucket, "key")
		must(t, err)
		if !bytes.Equal(back, data) || info.Result.Headers["x-amz-meta-colour"] != "blue" {
			t.Error(scheme, "the object is not the first one:", info.Result.Headers)
		}
		must(t, client.PutObjectWith(ctx, bucket, "key", data, map[string]string{"If-Match": `"` + info.ETag + `"`}))
		if left := uploadsOf(t, client, bucket); strings.Contains(left, "<UploadId>") {
			t.Errorf("%s: an upload is left: %s", scheme, left)
		}
	}
}

// A PutObject that fails leaves no upload behind.
func TestPartsFail(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma"), PartBytes: 5 << 20})
	bucket := bucketOf(t, client)
	data := make([]byte, 200<<20)
	if err := client.PutObject(ctx, bucket+"-none", "key", data); !errors.Is(err, fs.ErrNotExist) {
		t.Error("into no bucket:", err)
	}
	within, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := client.PutObject(within, bucket, "key", data); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("out of time:", err)
	}
	if _, err := client.HeadObject(ctx, bucket, "key"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half an object:", err)
	}
	if left := uploadsOf(t, client, bucket); strings.Contains(left, "<UploadId>") {
		t.Errorf("an upload is left: %s", left)
	}
}

// uploadsOf lists the uploads of a bucket that nobody has finished.
func uploadsOf(t *testing.T, client *Client, bucket string) string {
	answer := make([]byte, 64<<10)
	result, err := client.Do(ctx, &Request{Op: S3, Method: "GET", Path: "/" + bucket, Query: "uploads=", Into: answer})
	must(t, err)
	return string(answer[:result.Bytes])
}

// relay passes connections to a server, and calls first() before it passes the first answer.
func relay(t *testing.T, to string, first func()) string {
	var once sync.Once
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	answers := func(near, far net.Conn) {
		defer near.Close()
		chunk := make([]byte, 64<<10)
		for {
			n, err := far.Read(chunk)
			if n > 0 {
				once.Do(first)
				near.Write(chunk[:n])
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			go answers(near, far)
			go func() {
				io.Copy(far, near)
				far.Close()
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// The context ends when the server has begun the upload, before the client knows its id.
func TestUploadBegunInVain(t *testing.T) {
	other := clientOf(t, Config{Endpoint: server(t, "http")})
	bucket := bucketOf(t, other)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	client := clientOf(t, Config{PartBytes: 5 << 20, Endpoint: relay(t, os.Getenv("NEBULAIO_TEST_HTTP"), func() {
		cancel()
		time.Sleep(200 * time.Millisecond) // a slow network
	})})
	if err := client.PutObject(within, bucket, "key", make([]byte, 6<<20)); !errors.Is(err, context.Canceled) {
		t.Error("cancelled:", err)
	}
	if left := uploadsOf(t, other, bucket); strings.Contains(left, "<UploadId>") {
		t.Errorf("an upload is left: %s", left)
	}
}

func TestErrors(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma")})
	bucket := bucketOf(t, client)
	_, err := client.GetObjectData(ctx, bucket, "none")
	var failed *Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if failed.Code != "NoSuchKey" || failed.Status != 404 || failed.RequestID == "" || failed.Result.Transport != RDMA ||
		failed.Key != "none" || failed.Op != "GetObject" {
		t.Fatalf("%+v", failed)
	}
	must(t, client.PutObject(ctx, bucket, "k", noise(5000, 1)))
	for _, buf := range [][]byte{make([]byte, 4999), client.AllocateBuffer(4999)} {
		if _, err := client.GetObjectInto(ctx, bucket, "k", buf); !errors.Is(err, syscall.EMSGSIZE) {
			t.Fatal(err)
		}
	}
	err = client.PutObjectWith(ctx, bucket, "k", nil, map[string]string{"If-None-Match": "*"})
	if !errors.Is(err, syscall.ESTALE) {
		t.Fatal(err)
	}
	if _, err := client.HeadObject(ctx, bucket, "a\x00b"); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	stranger := clientOf(t, Config{Endpoint: server(t, "http"), AccessKey: "stranger", SecretKey: "wrong"})
	if _, err := stranger.GetObjectData(ctx, bucket, "k"); !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
}

func TestTemporaryKeys(t *testing.T) {
	words := strings.Fields(os.Getenv("NEBULAIO_TEST_SESSION"))
	if len(words) != 3 {
		t.Skip("NEBULAIO_TEST_SESSION has no temporary keys")
	}
	bucket := bucketOf(t, clientOf(t, Config{Endpoint: server(t, "rdma")}))
	config := Config{Endpoint: server(t, "http"), AccessKey: words[0], SecretKey: words[1]}
	if _, err := clientOf(t, config).HeadObject(ctx, bucket, "k"); !errors.Is(err, fs.ErrPermission) {
		t.Fatal("without their token", err)
	}
	config.SessionToken = words[2]
	if err := clientOf(t, config).PutObject(ctx, bucket, "k", []byte("temporary")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", words[0])
	t.Setenv("AWS_SESSION_TOKEN", words[2])
	config.SessionToken = ""
	if err := clientOf(t, config).DeleteObject(ctx, bucket, "k"); err != nil {
		t.Fatal("of the environment", err)
	}
	config.Endpoint = server(t, "rdma")
	if _, err := NewClient(config); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Fatal("over RDMA", err)
	}
}

func TestListings(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma")})
	bucket := bucketOf(t, client)
	var want []string
	for i := 0; i < 1203; i++ {
		want = append(want, fmt.Sprintf("d/%04d", i))
	}
	want = append(want, "odd/ +%&<é>", "z")
	var group sync.WaitGroup
	for _, key := range want {
		group.Add(1)
		go func(key string) {
			defer group.Done()
			if err := client.PutObject(ctx, bucket, key, []byte(key)); err != nil {
				t.Error(err)
			}
		}(key)
	}
	group.Wait()
	infos, err := client.ListObjects(ctx, bucket, "")
	must(t, err)
	if len(infos) != len(want) {
		t.Fatalf("%d keys of %d", len(infos), len(want))
	}
	for i, info := range infos {
		if info.Key != want[i] || info.Bytes != int64(len(want[i])) || info.ETag == "" || info.LastModified.IsZero() {
			t.Fatalf("%+v is not %q", info, want[i])
		}
	}
	if infos, err = client.ListObjects(ctx, bucket, "odd/ +"); err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	var top []string
	must(t, client.ListObjectsFunc(ctx, bucket, ListOptions{Delimiter: "/"}, func(info Info) bool {
		top = append(top, info.Key)
		return true
	}))
	if fmt.Sprint(top) != "[d/ odd/ z]" {
		t.Fatal(top)
	}
	seen := 0
	must(t, client.ListObjectsFunc(ctx, bucket, ListOptions{StartAfter: "d/1199"}, func(Info) bool { seen++; return seen < 2 }))
	if seen != 2 {
		t.Fatal(seen)
	}
	names, err := client.Buckets(ctx)
	if err != nil || !strings.Contains(fmt.Sprint(names), bucket) {
		t.Fatal(names, err)
	}
	if err := client.DeleteBucket(ctx, bucket); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
}

// Many goroutines on one client, each with its own objects, and buffers that come and go.
func TestGoroutines(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma"), MemoryPool: 8 << 20})
	bucket := bucketOf(t, client)
	var group sync.WaitGroup
	for worker := 0; worker < 32; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for i := 0; i < 40; i++ {
				data := noise(1+(worker*4001+i*977)%200000, int64(worker*1000+i))
				key := fmt.Sprintf("%d/%d", worker, i%4)
				buf := client.AllocateBuffer(len(data)) // some of them ordinary memory: the pool is small
				copy(buf, data)
				if err := client.PutObject(ctx, bucket, key, buf); err != nil {
					t.Error(err)
				}
				for j := range buf {
					buf[j] = 0
				}
				if n, err := client.GetObjectInto(ctx, bucket, key, buf); err != nil || !bytes.Equal(buf[:n], data) {
					t.Errorf("%s: %d of %d, %v", key, n, len(data), err)
				}
				client.ReleaseBuffer(buf)
			}
		}(worker)
	}
	group.Wait()
	if len(client.pool.blocks) != 1 {
		t.Fatalf("%d pieces of the pool are left", len(client.pool.blocks))
	}
}

// Calls whose contexts end at any moment return at once; their memory comes back, and its next user never sees it
// change.
func TestContexts(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma")})
	bucket := bucketOf(t, client)
	data := noise(3<<20, 1)
	must(t, client.PutObject(ctx, bucket, "k", data))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := client.GetObjectData(ended, bucket, "k"); err != context.Canceled {
		t.Fatal(err)
	}
	if client.DeleteObject(ended, bucket, "k") != context.Canceled {
		t.Fatal("a request of a cancelled context")
	}
	cancelled := 0
	for i := 0; i < 300; i++ {
		within, cancel := context.WithTimeout(ctx, time.Duration(i*10)*time.Microsecond)
		buf := client.AllocateBuffer(len(data))
		_, err := client.GetObjectInto(within, bucket, "k", buf)
		switch {
		case err == nil && !bytes.Equal(buf, data):
			t.Fatal("what was read is not what was stored")
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT):
			cancelled++
		case err != nil:
			t.Fatal(err)
		}
		client.ReleaseBuffer(buf)
		mine := client.AllocateBuffer(len(data)) // perhaps the same memory: then no request writes to it any more
		for j := 0; j < len(mine); j += 4096 {
			mine[j] = 0x5a
		}
		must(t, client.DeleteObject(ctx, bucket, "none"))
		for j := 0; j < len(mine); j += 4096 {
			if mine[j] != 0x5a {
				t.Fatal("a request of the past wrote to memory of the present")
			}
		}
		client.ReleaseBuffer(mine)
		cancel()
	}
	if cancelled == 0 {
		t.Fatal("no request was cut off")
	}
	if client.DeleteObject(ctx, bucket, "k") != nil {
		t.Fatal("the client does not go on")
	}
}

// A server that accepts connections and never answers.
func TestSilence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	client := clientOf(t, Config{Endpoint: "http://" + listener.Addr().String(), AccessKey: "a", SecretKey: "s", RequestTimeout: 10 * time.Minute})
	within, cancel := context.WithCancel(ctx)
	taken := make(chan struct{})
	go func() {
		connection, err := listener.Accept()
		if err == nil {
			defer connection.Close()
		}
		cancel() // the request is on its way
		<-taken
	}()
	buf := client.AllocateBuffer(100)
	start := time.Now()
	if _, err := client.GetObjectInto(within, "bucket", "key", buf); err != context.Canceled {
		t.Fatal(err)
	}
	if time.Since(start) > time.Minute {
		t.Fatal("a cancelled call did not return promptly")
	}
	client.ReleaseBuffer(buf)
	if other := client.AllocateBuffer(100); &other[0] == &buf[0] {
		t.Fatal("memory of a request in flight was handed out")
	}
	close(taken)
	waits := make(chan error)
	go func() { waits <- client.PutObject(ctx, "bucket", "key", []byte("never")) }()
	must(t, client.Close())
	if err := <-waits; !errors.Is(err, ErrClosed) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	if err := client.PutObject(ctx, "bucket", "key", nil); err != ErrClosed {
		t.Fatal(err)
	}
	if buf := client.AllocateBuffer(4096); client.Registered(buf) || buf[4095] != 0 {
		t.Fatal("memory of the pool, which is gone")
	}
	must(t, client.Close())
}

// The memory of requests goes with the client, while callers copy to and from it.
func TestClosedMeanwhile(t *testing.T) {
	keeper := clientOf(t, Config{Endpoint: server(t, "rdma")})
	bucket := bucketOf(t, keeper)
	data := noise(1<<20, 4)
	must(t, keeper.PutObject(ctx, bucket, "k", data))
	for i := 0; i < 100; i++ {
		client := clientOf(t, Config{Endpoint: server(t, "rdma"), MemoryPool: 8 << 20})
		var group sync.WaitGroup
		begun := make(chan struct{}, 6)
		for j := 0; j < 6; j++ {
			group.Add(1)
			go func(j int) {
				defer group.Done()
				into := make([]byte, len(data))
				begun <- struct{}{}
				for {
					var err error
					switch j {
					case 0, 1:
						err = client.PutObject(ctx, bucket, "k", data)
					case 2, 3:
						_, err = client.GetObjectInto(ctx, bucket, "k", into)
					case 4:
						_, err = client.ListObjects(ctx, bucket, "")
					default:
						_, err = client.Buckets(ctx)
					}
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			}(j)
		}
		for j := 0; j < 6; j++ {
			<-begun
		}
		must(t, client.Close())
		group.Wait()
	}
}

// Without its key, a request for an object has the path of its bucket, which DELETE would delete.
func TestNoKey(t *testing.T) {
	for _, scheme := range []string{"rdma", "http"} {
		client := clientOf(t, Config{Endpoint: server(t, scheme)})
		bucket := bucketOf(t, client)
		_, get := client.GetObjectData(ctx, bucket, "")
		_, head := client.HeadObject(ctx, bucket, "")
		for _, err := range []error{
			client.DeleteObject(ctx, bucket, ""), client.PutObject(ctx, bucket, "", nil), get, head,
			client.PutObject(ctx, "", "k", nil)} {
			if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "a key is missing") {
				t.Fatalf("%s: %v", scheme, err)
			}
		}
		_, err := client.Do(ctx, &Request{Op: HeadBucket, Bucket: bucket})
		must(t, err)
		for _, key := range []string{".", "..", "/", "/a", "a//b", "../" + bucket} {
			must(t, client.PutObject(ctx, bucket, key, []byte(key)))
			if data, err := client.GetObjectData(ctx, bucket, key); err != nil || string(data) != key {
				t.Fatalf("%s, key %q: %q, %v", scheme, key, data, err)
			}
			must(t, client.DeleteObject(ctx, bucket, key))
		}
		must(t, client.DeleteBucket(ctx, bucket))
	}
}

func TestFallback(t *testing.T) {
	address := os.Getenv("NEBULAIO_TEST_HTTP")
	var mutex sync.Mutex
	var log []string
	client := clientOf(t, Config{
		Endpoints: []string{"rdma://127.0.0.1:9", server(t, "http")},
		Log: func(level LogLevel, text string) {
			mutex.Lock()
			defer mutex.Unlock()
			log = append(log, text)
		}})
	var result Result
	_, err := client.Do(ctx, &Request{Op: Ping})
	must(t, err)
	err = client.DeleteObject(WithResult(ctx, &result), "no-such-bucket-"+strings.ReplaceAll(address, ":", "-"), "k")
	if result.Transport != HTTP || result.Fallback == "" || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%+v, %v", result, err)
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(log) == 0 || !strings.Contains(log[0], "127.0.0.1") {
		t.Fatal(log)
	}
	if _, err := NewClient(Config{Endpoint: "rdma://127.0.0.1:9", Transport: Strict}); err == nil {
		t.Fatal("a strict client without a server")
	}
}

func TestReleasedTwice(t *testing.T) {
	client := clientOf(t, Config{Endpoint: server(t, "rdma")})
	buf := client.AllocateBuffer(10)
	client.ReleaseBuffer(buf)
	client.ReleaseBuffer(make([]byte, 10)) // ordinary memory: nothing to give back
	if err := client.PutObject(ctx, "bucket", "key", buf); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("released twice, and nobody noticed")
		}
	}()
	client.ReleaseBuffer(buf)
}
