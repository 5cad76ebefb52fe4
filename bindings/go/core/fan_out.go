package core

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"context"
	"math"
	"syscall"
	"time"
	"unsafe"
)

const (
	// FanOutHeader is the header that a group's requests have, and that its answers tell the member's role in.
	FanOutHeader = C.NEB_FAN_OUT_HEADER
	// Of a group, so that a member is never far ahead of its own slowest request.
	fanPieceBytes = 8 << 20
	// The server answers the first request when the group begins.
	fanWait = 10 * time.Second
)

// A FanOut is a group of clients that read one large object together; all give the same Name and Members.
type FanOut struct {
	Name    string        // 1 to 64 letters, digits, '.', '_' and '-'
	Members int           // how many clients the group waits for, 1 to 1,024
	Wait    time.Duration // how long the first one waits for the others, at most a minute; 0: 10 s
	Member  uint64        // a number of this client's own; 0: drawn at random
}

// header returns the value of FanOutHeader for all requests of one member, or "" if a field is out of bounds.
func (fan *FanOut) header() string {
	if fan.Members < 0 || int64(fan.Members) > math.MaxUint32 || fan.Wait < 0 || hasZero(fan.Name) {
		return ""
	}
	name := C.CString(fan.Name)
	defer C.free(unsafe.Pointer(name))
	value := (*C.char)(C.malloc(C.NEB_FAN_OUT_BYTES))
	defer C.free(unsafe.Pointer(value))
	if C.native_fan_out(name, C.uint32_t(fan.Members), nanoseconds(fan.Wait), C.uint64_t(fan.Member), value) != 0 {
		return ""
	}
	return C.GoString(value)
}

// GetFanOut reads a whole object into buf, and returns its length, as one of a group of clients that need it at the same
// time, such as the nodes of a job that load a model's weights: the server reads each part of it once for all of them.
// WithResult returns the role in Headers[FanOutHeader]: "member; members=COUNT", or why it was served alone: late, slow,
// full, small. errors.Is(err, syscall.EMSGSIZE): buf is too small; syscall.ESTALE: the object was replaced, and buf may be
// used again at once. When the context ends first, buf is as after GetObjectInto.
func (c *Client) GetFanOut(ctx context.Context, bucket, key string, buf []byte, fan FanOut) (int, error) {
	request := Request{Op: GetObject, Bucket: bucket, Key: key}
	header := fan.header()
	if header == "" {
		return 0, tellError(ctx, request.failed(syscall.EINVAL,
			Result{Transport: "none", Message: "a field of FanOut is out of bounds"}))
	}
	info, err := c.HeadObject(ctx, bucket, key)
	if err != nil {
		return 0, err
	}
	if info.Bytes > int64(len(buf)) {
		return 0, tellError(ctx, request.failed(syscall.EMSGSIZE, Result{Transport: "none"}))
	}
	pieces := pieces{bucket: bucket, info: &info, bytes: fanPieceBytes, wantHeaders: true,
		headers: map[string]string{"If-Match": `"` + info.ETag + `"`, FanOutHeader: header}}
	// The first piece waits for the group, longer than the others may take.
	pieces.timeout = fan.Wait
	if pieces.timeout == 0 {
		pieces.timeout = fanWait
	}
	pieces.timeout += c.requestTimeout
	first := int64(fanPieceBytes)
	if first > info.Bytes {
		first = info.Bytes
	}
	if err = c.getPiecesOf(ctx, &pieces, buf[:info.Bytes], 0, int(first)); err == nil {
		pieces.timeout = 0
		err = c.getPiecesOf(ctx, &pieces, buf[:info.Bytes], int(first), int(info.Bytes))
	}
	pieces.tell(ctx, err)
	return int(info.Bytes), err
}
