package core

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A server may pass over that the client wants keys percent-encoded.
func TestListEncoding(t *testing.T) {
	const entries = "<Contents><Key>a+%41</Key></Contents><CommonPrefixes><Prefix>b+/</Prefix></CommonPrefixes>"
	for _, list := range []struct{ text, key, prefix string }{
		{entries, "a+%41", "b+/"},
		{entries + "<EncodingType>url</EncodingType>", "a A", "b /"},
	} {
		page := &listPage{}
		if err := xml.Unmarshal([]byte("<ListBucketResult>"+list.text+"</ListBucketResult>"), page); err != nil {
			t.Fatal(err)
		}
		if err := page.decode(); err != nil {
			t.Fatal(err)
		}
		if page.Contents[0].Key != list.key || page.CommonPrefixes[0].Prefix != list.prefix {
			t.Errorf("%s: %+v", list.text, page)
		}
	}
}

// objectServer serves one object of zeroes over HTTP, a range of it by piece. It numbers the requests.
func objectServer(t *testing.T, length int, piece func(w http.ResponseWriter, offset, count int)) string {
	numbers := make(chan int, 1)
	numbers <- 1
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := <-numbers
		numbers <- number + 1
		w.Header().Set("x-amz-request-id", fmt.Sprintf("request-%d", number))
		w.Header().Set("ETag", `"version"`)
		var first, last int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last); n == 2 {
			piece(w, first, last-first+1)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(length))
		w.Write(make([]byte, length)) // nothing of it for HEAD
	}))
	t.Cleanup(served.Close)
	return served.URL
}

// answerPiece sends a range of the object.
func answerPiece(w http.ResponseWriter, count int) {
	w.Header().Set("Content-Length", strconv.Itoa(count))
	w.WriteHeader(http.StatusPartialContent)
	w.Write(make([]byte, count))
}

// One piece of a fan-out fails while the server sends another: the call returns when no request has its memory.
func TestFanOutFails(t *testing.T) {
	flying, returned := make(chan struct{}), make(chan struct{})
	endpoint := objectServer(t, 3*fanPieceBytes, func(w http.ResponseWriter, offset, count int) {
		switch offset / fanPieceBytes {
		case 1:
			<-flying
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		case 2:
			close(flying)
			select {
			case <-returned:
			case <-time.After(500 * time.Millisecond): // a slow server
			}
		}
		answerPiece(w, count)
	})
	client := clientOf(t, Config{Endpoint: endpoint, AccessKey: "a", SecretKey: "s"})
	buf := client.AllocateBuffer(3 * fanPieceBytes)
	_, err := client.GetFanOut(ctx, "bucket", "key", buf, FanOut{Name: "a", Members: 1})
	client.pool.mutex.Lock()
	users := client.pool.blocks[client.pool.index(client.pool.offsetOf(buf))].users
	client.pool.mutex.Unlock()
	close(returned)
	if !errors.Is(err, syscall.ESTALE) || users != 0 {
		t.Errorf("%v, while %d requests still had the memory", err, users)
	}
}

// WithResult gives the outcome of the pieces, not of the HEAD before them; after a failure that of the piece that failed.
func TestResultOfPieces(t *testing.T) {
	const length = 2*pieceBytes + 5
	var gone int32
	endpoint := objectServer(t, length, func(w http.ResponseWriter, offset, count int) {
		if atomic.LoadInt32(&gone) != 0 && offset == pieceBytes {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		answerPiece(w, count)
	})
	client := clientOf(t, Config{Endpoint: endpoint, AccessKey: "a", SecretKey: "s"})
	into := make([]byte, length)
	for name, get := range map[string]func(context.Context) error{
		"GetObjectInto": func(ctx context.Context) error {
			_, err := client.GetObjectInto(ctx, "bucket", "key", into)
			return err
		},
		"GetObjectData": func(ctx context.Context) error {
			_, err := client.GetObjectData(ctx, "bucket", "key")
			return err
		},
		"GetFanOut": func(ctx context.Context) error {
			_, err := client.GetFanOut(ctx, "bucket", "key", into, FanOut{Name: "a", Members: 1})
			return err
		},
	} {
		var result Result
		atomic.StoreInt32(&gone, 0)
		must(t, get(WithResult(ctx, &result)))
		if result.Bytes != length || result.Status != http.StatusPartialContent || result.Transport != HTTP || result.ETag != "version" {
			t.Errorf("%s: %+v", name, result)
		}
		atomic.StoreInt32(&gone, 1)
		err := get(WithResult(ctx, &result))
		var failed *Error
		if !errors.As(err, &failed) || failed.Status != http.StatusNotFound || !reflect.DeepEqual(result, failed.Result) {
			t.Errorf("%s: %v: %+v", name, err, result)
		}
		ended, cancel := context.WithCancel(WithResult(ctx, &result))
		cancel()
		if err := get(ended); err != context.Canceled || result.Status != 0 {
			t.Errorf("%s, cancelled: %v: %+v", name, err, result)
		}
	}
}

// After a call that fails by itself, and not by its last request, WithResult gives the error's outcome.
func TestResultOfFailures(t *testing.T) {
	const length = pieceBytes + 5
	endpoint := objectServer(t, length, func(w http.ResponseWriter, offset, count int) { answerPiece(w, count) })
	client := clientOf(t, Config{Endpoint: endpoint, AccessKey: "a", SecretKey: "s", PartBytes: 5 << 20})
	into := make([]byte, length-1)
	for name, one := range map[string]struct {
		call  func(context.Context) error
		errno syscall.Errno
	}{
		"GetObjectInto": {func(ctx context.Context) error {
			_, err := client.GetObjectInto(ctx, "bucket", "key", into)
			return err
		}, syscall.EMSGSIZE},
		"GetFanOut": {func(ctx context.Context) error {
			_, err := client.GetFanOut(ctx, "bucket", "key", into, FanOut{Name: "a", Members: 1})
			return err
		}, syscall.EMSGSIZE},
		"GetFanOut, no members": {func(ctx context.Context) error {
			_, err := client.GetFanOut(ctx, "bucket", "key", into, FanOut{Name: "a", Members: -1})
			return err
		}, syscall.EINVAL},
		// The server answers CreateMultipartUpload with the object, which is too long.
		"PutObject in parts": {func(ctx context.Context) error {
			return client.PutObject(ctx, "bucket", "key", make([]byte, 6<<20))
		}, syscall.EMSGSIZE},
	} {
		result := Result{Status: 200, RequestID: "before"}
		err := one.call(WithResult(ctx, &result))
		var failed *Error
		if !errors.Is(err, one.errno) || !errors.As(err, &failed) || !reflect.DeepEqual(result, failed.Result) {
			t.Errorf("%s: %v: %+v", name, err, result)
		}
	}
}
