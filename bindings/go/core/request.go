package core

// #include "native.h"
import "C"

import (
	"context"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// An Operation of the native protocol.
type Operation int

// The operations have S3's names. S3 is any request: Method, Path, Query, Headers, Body.
const (
	GetObject       Operation = C.NEB_GET_OBJECT
	PutObject       Operation = C.NEB_PUT_OBJECT
	DeleteObject    Operation = C.NEB_DELETE_OBJECT
	HeadObject      Operation = C.NEB_HEAD_OBJECT
	ListObjects     Operation = C.NEB_LIST_OBJECTS
	CreateMultipart Operation = C.NEB_CREATE_MULTIPART
	UploadPart      Operation = C.NEB_UPLOAD_PART
	FinishMultipart Operation = C.NEB_COMPLETE_MULTIPART
	AbortMultipart  Operation = C.NEB_ABORT_MULTIPART
	CopyObject      Operation = C.NEB_COPY_OBJECT
	ListBuckets     Operation = C.NEB_LIST_BUCKETS
	CreateBucket    Operation = C.NEB_CREATE_BUCKET
	DeleteBucket    Operation = C.NEB_DELETE_BUCKET
	HeadBucket      Operation = C.NEB_HEAD_BUCKET
	Ping            Operation = C.NEB_PING
	S3              Operation = C.NEB_S3
)

var operationNames = map[Operation]string{
	GetObject: "GetObject", PutObject: "PutObject", DeleteObject: "DeleteObject", HeadObject: "HeadObject",
	ListObjects: "ListObjects", CreateMultipart: "CreateMultipartUpload", UploadPart: "UploadPart",
	FinishMultipart: "CompleteMultipartUpload", AbortMultipart: "AbortMultipartUpload", CopyObject: "CopyObject",
	ListBuckets: "ListBuckets", CreateBucket: "CreateBucket", DeleteBucket: "DeleteBucket", HeadBucket: "HeadBucket",
	Ping: "Ping", S3: "S3",
}

// A Request describes one request of any operation.
type Request struct {
	Op           Operation
	Bucket, Key  string
	VersionID    string
	Query        string // percent-encoded, without '?'
	Method, Path string // of the operation S3
	Headers      map[string]string
	Body         []byte // memory of AllocateBuffer is not copied
	Into         []byte // receives the answer's body; likewise
	RangeOffset  int64  // of GetObject, with RangeBytes above 0
	RangeBytes   int64
	WantHeaders  bool

	timeout time.Duration // 0: the client's
}

// Do performs one request. When it fails, the error is of type *Error, of the context, or ErrClosed.
func (c *Client) Do(ctx context.Context, request *Request) (Result, error) {
	one := &call{}
	if err := one.build(request); err != nil {
		return Result{}, err
	}
	if err := c.lend(one, request); err != nil {
		return Result{}, err
	}
	if err := c.run(ctx, one); err != nil {
		return Result{}, err
	}
	defer c.free(one)
	if one.errno != 0 {
		return one.result, request.failed(one.errno, one.result)
	}
	if one.native.into != nil && one.hold == nil {
		return one.result, c.move(request.Into, unsafe.Slice((*byte)(one.native.into), int(one.result.Bytes)))
	}
	return one.result, nil
}

func (request *Request) failed(errno syscall.Errno, result Result) error {
	return &Error{Op: operationNames[request.Op], Bucket: request.Bucket, Key: request.Key, Errno: errno, Result: result}
}

// zeroByte is why a text with a zero byte is refused: C's string would end there, and name something else.
const zeroByte = "a zero byte in a name"

func hasZero(texts ...string) bool {
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return true
		}
	}
	return false
}

// build packs all fields but the memory that is transferred.
func (one *call) build(request *Request) error {
	strs := []string{request.Bucket, request.Key, request.VersionID, request.Query, request.Method, request.Path}
	for name, value := range request.Headers {
		strs = append(strs, name, value)
	}
	if hasZero(strs...) {
		return request.failed(syscall.EINVAL, Result{Transport: "none", Message: zeroByte})
	}
	for _, text := range strs {
		one.text = append(append(one.text, text...), 0)
	}
	if request.RangeOffset < 0 || request.RangeBytes < 0 {
		return request.failed(syscall.EINVAL, Result{Transport: "none", Message: "a range below zero"})
	}
	one.native.op = C.enum_neb_op(request.Op)
	one.native.header_count = C.uint32_t(len(request.Headers))
	one.native.range_offset = C.uint64_t(request.RangeOffset)
	one.native.range_bytes = C.uint64_t(request.RangeBytes)
	one.native.timeout_ns = nanoseconds(request.timeout)
	one.native.want_headers = C.bool(request.WantHeaders)
	return nil
}

// lend gives the call memory that outlives its caller: the caller's own if it is of the pool, or a copy. Few requests
// have both a long body and a long answer; then both are copied.
func (c *Client) lend(one *call, request *Request) error {
	var data []byte
	switch {
	case len(request.Body) > 0 && len(request.Into) == 0:
		data = request.Body
	case len(request.Into) > 0 && len(request.Body) == 0:
		data = request.Into
	case len(request.Body) == 0:
		return nil
	}
	hold, held := c.pool.hold(data)
	if !held {
		return request.failed(syscall.EINVAL, Result{Transport: "none", Message: "the buffer was released"})
	}
	one.hold = hold
	one.native.body_bytes, one.native.into_bytes = C.size_t(len(request.Body)), C.size_t(len(request.Into))
	var memory unsafe.Pointer
	if hold != nil {
		memory = unsafe.Pointer(&data[0])
	} else {
		memory = c.memory(one, len(request.Body)+len(request.Into))
		if err := c.move(unsafe.Slice((*byte)(memory), len(request.Body)), request.Body); err != nil {
			c.free(one)
			return err
		}
	}
	if len(request.Body) > 0 {
		one.native.body = memory
	}
	if len(request.Into) > 0 {
		one.native.into = unsafe.Add(memory, len(request.Body))
	}
	return nil
}

// parseHeaders reads "name: value" lines.
func parseHeaders(text string) map[string]string {
	if text == "" {
		return nil
	}
	headers := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, found := strings.Cut(line, ": "); found {
			headers[strings.ToLower(name)] = value
		}
	}
	return headers
}
