package core

import (
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// An object moves into ordinary memory in pieces of this size, several at a time.
	pieceBytes  = 16 << 20
	pieceWindow = 4
	// How often a read starts again because the object was replaced meanwhile.
	readTries = 8
	listBytes = 4 << 20
	// PutBytesMax is S3's limit of one PutObject.
	PutBytesMax = 5 << 30
)

// Info is an object's metadata.
type Info struct {
	Key          string
	IsPrefix     bool // a common prefix, in a listing with a delimiter
	Bytes        int64
	ETag         string // without quotes
	LastModified time.Time
	Result       Result // set by HeadObject: headers, transport
}

type resultKey struct{}

// WithResult returns a context whose calls write the outcome of their last request to result: the transport, why it was
// not RDMA, the ETag, the request id. One goroutine at a time may use it.
func WithResult(ctx context.Context, result *Result) context.Context {
	return context.WithValue(ctx, resultKey{}, result)
}

func (c *Client) do(ctx context.Context, request *Request) (Result, error) {
	result, err := c.Do(ctx, request)
	if into, has := ctx.Value(resultKey{}).(*Result); has {
		*into = result
	}
	return result, err
}

// tellError writes an error's outcome where WithResult's caller wants it, and returns the error: of a call that failed by
// another thing than its last request.
func tellError(ctx context.Context, err error) error {
	into, has := ctx.Value(resultKey{}).(*Result)
	if !has || err == nil {
		return err
	}
	var failed *Error
	*into = Result{}
	if errors.As(err, &failed) {
		*into = failed.Result
	}
	return err
}

// GetObjectInto reads an object into buf and returns its length; the server writes directly to a buf from
// AllocateBuffer, without a copy. errors.Is(err, syscall.EMSGSIZE): buf is too small. When the context ends first, the
// caller must not touch buf until Close, but may release it.
func (c *Client) GetObjectInto(ctx context.Context, bucket, key string, buf []byte) (int, error) {
	if len(buf) <= pieceBytes || c.Registered(buf) {
		result, err := c.do(ctx, &Request{Op: GetObject, Bucket: bucket, Key: key, Into: buf})
		return int(result.Bytes), err
	}
	return c.getPieces(ctx, bucket, key, func(bytes int64) ([]byte, error) {
		if bytes > int64(len(buf)) {
			request := Request{Op: GetObject, Bucket: bucket, Key: key}
			return nil, request.failed(syscall.EMSGSIZE, Result{Transport: "none"})
		}
		return buf, nil
	})
}

// GetRange reads len(buf) bytes from offset on, fewer at the object's end.
func (c *Client) GetRange(ctx context.Context, bucket, key string, offset int64, buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	result, err := c.do(ctx, &Request{
		Op: GetObject, Bucket: bucket, Key: key, Into: buf, RangeOffset: offset, RangeBytes: int64(len(buf))})
	return int(result.Bytes), err
}

// GetObjectData returns an object's bytes in new memory.
func (c *Client) GetObjectData(ctx context.Context, bucket, key string) ([]byte, error) {
	guess := make([]byte, atomic.LoadInt64(&c.guess))
	result, err := c.do(ctx, &Request{Op: GetObject, Bucket: bucket, Key: key, Into: guess})
	if !errors.Is(err, syscall.EMSGSIZE) {
		return guess[:result.Bytes:result.Bytes], err
	}
	var data []byte
	n, err := c.getPieces(ctx, bucket, key, func(bytes int64) ([]byte, error) {
		data = make([]byte, bytes)
		return data, nil
	})
	if err != nil {
		return nil, err
	}
	if n <= 1<<20 {
		atomic.StoreInt64(&c.guess, int64(n))
	}
	return data[:n], nil
}

// getPieces reads an object in ranges, all of one version.
func (c *Client) getPieces(ctx context.Context, bucket, key string, memory func(int64) ([]byte, error)) (int, error) {
	for try := 1; ; try++ {
		info, err := c.HeadObject(ctx, bucket, key)
		if err != nil {
			return 0, err
		}
		buf, err := memory(info.Bytes)
		if err != nil {
			return 0, tellError(ctx, err)
		}
		pieces := pieces{bucket: bucket, info: &info, bytes: pieceBytes, headers: map[string]string{"If-Match": `"` + info.ETag + `"`}}
		err = c.getPiecesOf(ctx, &pieces, buf, 0, int(info.Bytes))
		pieces.tell(ctx, err)
		if err == nil || try == readTries || !errors.Is(err, syscall.ESTALE) {
			return int(info.Bytes), err
		}
	}
}

// pieces is how a version of an object is read in ranges.
type pieces struct {
	bucket      string
	info        *Info
	bytes       int // of a piece
	headers     map[string]string
	wantHeaders bool
	timeout     time.Duration // of each request; 0: the client's
	mutex       sync.Mutex
	// Of the requests that succeeded, and that told how a fan-out went; after an error, of the first that failed.
	last Result
}

// tell writes the outcome of all pieces where WithResult's caller wants it. An empty object has none: there it is the
// HEAD's, which is written already.
func (pieces *pieces) tell(ctx context.Context, err error) {
	into, has := ctx.Value(resultKey{}).(*Result)
	if !has || pieces.info.Bytes == 0 {
		return
	}
	*into = pieces.last
	if err == nil {
		into.Bytes, into.objectBytes = pieces.info.Bytes, pieces.info.Bytes
	}
}

// getPiecesOf reads the bytes from begin to end of an object that buf is for. After a failure it starts no further piece,
// and waits for those in flight: their requests write to buf. When ctx ends, it does not wait.
func (c *Client) getPiecesOf(ctx context.Context, pieces *pieces, buf []byte, begin, end int) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var once sync.Once
	var first error
	var failed Result
	window := make(chan struct{}, pieceWindow)
	fail := func(err error, result Result) { once.Do(func() { first, failed = err, result; cancel() }) }
	for offset := begin; offset < end; offset += pieces.bytes {
		until := offset + pieces.bytes
		if until > end {
			until = end
		}
		window <- struct{}{}
		if within.Err() != nil {
			break
		}
		group.Add(1)
		go func(offset, until int) {
			defer group.Done()
			defer func() { <-window }()
			request := Request{
				Op: GetObject, Bucket: pieces.bucket, Key: pieces.info.Key, Into: buf[offset:until], RangeOffset: int64(offset),
				RangeBytes: int64(until - offset), Headers: pieces.headers, WantHeaders: pieces.wantHeaders, timeout: pieces.timeout}
			result, err := c.Do(ctx, &request)
			if err == nil && result.Bytes != request.RangeBytes {
				err = request.failed(syscall.EPROTO, result)
			}
			if err != nil {
				fail(err, result)
				return
			}
			pieces.mutex.Lock()
			// A piece that comes to the server after its group's end is told "apart", which says nothing about the group.
			if offset == 0 || result.Headers[FanOutHeader] != "apart" {
				pieces.last = result
			}
			pieces.mutex.Unlock()
		}(offset, until)
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		pieces.last = Result{}
		return err
	}
	if first != nil {
		pieces.last = failed
	}
	return first
}

// PutObject stores data; the server reads directly from data of AllocateBuffer, without a copy. Data over PutBytesMax,
// or Config.PartBytes, goes in parts. When the context ends first, the object may or may not have been stored.
func (c *Client) PutObject(ctx context.Context, bucket, key string, data []byte) error {
	return c.PutObjectWith(ctx, bucket, key, data, nil)
}

// PutObjectWith stores data with headers: Content-Type, If-None-Match, x-amz-meta-….
func (c *Client) PutObjectWith(ctx context.Context, bucket, key string, data []byte, headers map[string]string) error {
	request := Request{Op: PutObject, Bucket: bucket, Key: key, Body: data, Headers: headers}
	if len(data) <= c.putBytes {
		_, err := c.do(ctx, &request)
		return err
	}
	result, err := c.putParts(ctx, &request, c.partBytes)
	if into, has := ctx.Value(resultKey{}).(*Result); has && err == nil {
		*into = result
	}
	return tellError(ctx, err)
}

// DeleteObject deletes an object; a missing object is no error.
func (c *Client) DeleteObject(ctx context.Context, bucket, key string) error {
	_, err := c.do(ctx, &Request{Op: DeleteObject, Bucket: bucket, Key: key})
	return err
}

// HeadObject returns an object's metadata.
func (c *Client) HeadObject(ctx context.Context, bucket, key string) (Info, error) {
	result, err := c.do(ctx, &Request{Op: HeadObject, Bucket: bucket, Key: key})
	if err != nil {
		return Info{}, err
	}
	info := Info{Key: key, Bytes: result.objectBytes, ETag: result.ETag, Result: result}
	info.LastModified, _ = http.ParseTime(result.Headers["last-modified"])
	return info, nil
}

// CreateBucket makes a bucket.
func (c *Client) CreateBucket(ctx context.Context, bucket string) error {
	_, err := c.do(ctx, &Request{Op: CreateBucket, Bucket: bucket})
	return err
}

// DeleteBucket removes an empty bucket.
func (c *Client) DeleteBucket(ctx context.Context, bucket string) error {
	_, err := c.do(ctx, &Request{Op: DeleteBucket, Bucket: bucket})
	return err
}

// ---- Listings. ----

// ListOptions narrow a listing.
type ListOptions struct {
	Prefix     string
	Delimiter  string // groups keys that are equal up to it after Prefix
	StartAfter string // exclusive
}

type listPage struct {
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key, ETag    string
		Size         int64
		LastModified time.Time
	}
	CommonPrefixes []struct{ Prefix string }
}

// ListObjects returns all objects whose key starts with prefix, in order.
func (c *Client) ListObjects(ctx context.Context, bucket, prefix string) ([]Info, error) {
	var infos []Info
	err := c.ListObjectsFunc(ctx, bucket, ListOptions{Prefix: prefix}, func(info Info) bool {
		infos = append(infos, info)
		return true
	})
	return infos, err
}

// ListObjectsFunc calls visit for each object, page by page, until it returns false. visit may call the client.
func (c *Client) ListObjectsFunc(ctx context.Context, bucket string, options ListOptions, visit func(Info) bool) error {
	query := url.Values{}
	for name, value := range map[string]string{
		"prefix": options.Prefix, "delimiter": options.Delimiter, "start-after": options.StartAfter} {
		if value != "" {
			query.Set(name, value)
		}
	}
	query.Set("encoding-type", "url")
	for {
		page, err := c.listPage(ctx, bucket, query)
		if err != nil {
			return err
		}
		if !page.visit(visit) || !page.IsTruncated {
			return nil
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

// document performs a request and returns the answer's body, in Go's memory: the pool ends with Close.
func (c *Client) document(ctx context.Context, request *Request) ([]byte, Result, error) {
	buf := c.AllocateBuffer(listBytes)
	defer c.ReleaseBuffer(buf)
	request.Into = buf
	result, err := c.do(ctx, request)
	if err != nil {
		return nil, result, err
	}
	text := make([]byte, result.Bytes)
	return text, result, c.move(text, buf[:result.Bytes])
}

func (c *Client) listPage(ctx context.Context, bucket string, query url.Values) (*listPage, error) {
	// "+" means a space in forms, not in paths.
	text := strings.ReplaceAll(query.Encode(), "+", "%20")
	request := Request{Op: ListObjects, Bucket: bucket, Query: text}
	document, result, err := c.document(ctx, &request)
	if err != nil {
		return nil, err
	}
	page := &listPage{}
	if xml.Unmarshal(document, page) != nil || (page.IsTruncated && page.NextContinuationToken == "") {
		return nil, request.failed(syscall.EPROTO, result)
	}
	return page, page.decode()
}

// decode removes the percent-encoding, which carries keys that XML cannot express, if the server says that it is there.
func (page *listPage) decode() (err error) {
	if page.EncodingType != "url" {
		return nil
	}
	for i := range page.Contents {
		if page.Contents[i].Key, err = url.QueryUnescape(page.Contents[i].Key); err != nil {
			return err
		}
	}
	for i := range page.CommonPrefixes {
		if page.CommonPrefixes[i].Prefix, err = url.QueryUnescape(page.CommonPrefixes[i].Prefix); err != nil {
			return err
		}
	}
	return nil
}

// visit merges keys and prefixes, which S3 lists separately, into one order.
func (page *listPage) visit(visit func(Info) bool) bool {
	prefixes := page.CommonPrefixes
	for _, object := range page.Contents {
		for len(prefixes) > 0 && prefixes[0].Prefix < object.Key {
			if !visit(Info{Key: prefixes[0].Prefix, IsPrefix: true}) {
				return false
			}
			prefixes = prefixes[1:]
		}
		if !visit(Info{
			Key: object.Key, Bytes: object.Size, ETag: strings.Trim(object.ETag, `"`), LastModified: object.LastModified}) {
			return false
		}
	}
	for _, prefix := range prefixes {
		if !visit(Info{Key: prefix.Prefix, IsPrefix: true}) {
			return false
		}
	}
	return true
}

// Buckets returns the buckets' names.
func (c *Client) Buckets(ctx context.Context) ([]string, error) {
	request := Request{Op: ListBuckets}
	document, result, err := c.document(ctx, &request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Buckets struct{ Bucket []struct{ Name string } }
	}
	if xml.Unmarshal(document, &answer) != nil {
		return nil, request.failed(syscall.EPROTO, result)
	}
	var names []string
	for _, bucket := range answer.Buckets.Bucket {
		names = append(names, bucket.Name)
	}
	return names, nil
}
