// Package core is the common implementation of the packages rdma and client-rdma beside it: import one of those.
//
// A Client is one C client and one goroutine that submits requests to it and takes their results. Any number of
// goroutines may call a Client; their requests are in flight together. A caller whose context ends returns at once; the
// memory of its request stays allocated until the server has answered or can no longer touch it.
package core

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"context"
	"fmt"
	"os"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	poolBytesPreset = 64 << 20
	// The part of the pool that the library keeps for sessions and small copies.
	ownBytes    = 16 << 20
	resultBatch = 16
	// The library's.
	requestTimeoutPreset = 30 * time.Second
	forever              = ^C.uint64_t(0)
)

// A Result is the outcome of a request.
type Result struct {
	Status    int       // S3's HTTP status
	Transport Transport // RDMA or HTTP
	Fallback  string    // why a request that could have used RDMA used HTTP
	Bytes     int64     // of the answer's body
	ETag      string    // without quotes
	RequestID string
	Code      string // "NoSuchKey"; empty on success
	Message   string
	// Headers of the answer, with lower-case names: of a HEAD, or if the request asked for them.
	Headers map[string]string

	objectBytes int64
}

// The life of a request, in its state:
//
//	pending    -> answered by the dispatcher: its caller takes the result and frees the memory
//	pending    -> abandoned by its caller: the dispatcher frees the memory when the result has come
const (
	pending = iota
	answered
	abandoned
)

type call struct {
	native C.struct_native_request
	text   []byte
	state  int32
	done   chan struct{}
	hold   *block         // the caller's memory, of the pool
	bounce *block         // a copy, of the pool
	heap   unsafe.Pointer // a copy, if the pool was full
	result Result
	errno  syscall.Errno
}

// A Client is a connection to one server, or to several endpoints of one. Any goroutine may call its methods.
type Client struct {
	pool *pool
	log  cgo.Handle
	// The assumed length of an object when the caller does not know it.
	guess             int64
	device, deviceWhy string
	// The maximum of one PutObject, and the size of a part.
	putBytes, partBytes int
	requestTimeout      time.Duration
	config              Config // for the mapper

	// Held for reading by who copies to or from the pool, or leases of it: Close unmaps it.
	poolMutex sync.RWMutex
	poolGone  bool

	mapMutex  sync.Mutex
	mapper    *mapper // nil: nothing was mapped yet
	mapClosed bool

	mutex   sync.Mutex
	wanted  *sync.Cond
	native  *C.struct_neb_client
	queue   []*call
	waiting bool // the dispatcher is in neb_wait, or about to enter it
	closing bool
	ended   chan struct{}
	stats   Stats
}

// Stats counts a client's work since it was opened.
type Stats struct {
	RequestsRDMA, RequestsHTTP uint64 // answered
	Fallbacks                  uint64 // used HTTP although RDMA was wanted
	SessionsOpened             uint64
	SessionsLost               uint64
	BytesCopied                uint64 // between memory of the caller and registered memory
	Registrations              uint64 // made for single requests
	Leases                     uint64 // of objects that the client may read from the server's memory
	OneSidedReads              uint64 // of such objects
	OneSidedMisses             uint64 // reads that found a changed object, and asked the server
	Paths, PathsUp             uint64 // addresses of the server in use, and those with a session now
	RequestsMoved              uint64 // lost their session, and were sent again on another path

	libraryCopied uint64
}

//export nativeLog
func nativeLog(handle C.uintptr_t, level C.int, text *C.char) {
	cgo.Handle(handle).Value().(func(LogLevel, string))(LogLevel(level), C.GoString(text))
}

func nanoseconds(d time.Duration) C.uint64_t {
	if d < 0 {
		return 0
	}
	return C.uint64_t(d)
}

// NewClient opens a client. The first request connects; with Transport Strict, NewClient does.
func NewClient(config Config) (*Client, error) {
	options, endpoints, free, err := clientOptions(&config)
	if err != nil {
		return nil, err
	}
	defer free()
	if config.RequestsMax < 0 || config.RequestsMax > 256 {
		return nil, fmt.Errorf("nebulaio: RequestsMax %d is not 1 to 256", config.RequestsMax)
	}
	putBytes, partBytes, err := config.putSizes()
	if err != nil {
		return nil, err
	}
	if config.MapBytesMax != 0 && config.MapBytesMax < mapBytesMin {
		return nil, fmt.Errorf("nebulaio: MapBytesMax %d is less than %d", config.MapBytesMax, mapBytesMin)
	}
	if config.MemoryPool == 0 {
		config.MemoryPool = poolBytesPreset
	}
	bytes := (int(config.MemoryPool) + pageBytes - 1) &^ (pageBytes - 1)
	options.pool_bytes = C.uint64_t(bytes + ownBytes)
	options.requests_max = C.uint32_t(config.RequestsMax)
	options.spin_ns = nanoseconds(config.Spin)
	options.one_sided_reads = C.bool(config.OneSidedReads)
	c, err := open(options, bytes, config.Log, endpoints)
	if err == nil {
		c.config, c.putBytes, c.partBytes = config, putBytes, partBytes
		c.requestTimeout = config.RequestTimeout
		if c.requestTimeout <= 0 {
			c.requestTimeout = requestTimeoutPreset
		}
	}
	return c, err
}

// clientOptions returns options with what a client and its mapper have in common, the endpoints as text, and a function
// that frees the options.
func clientOptions(config *Config) (*C.struct_neb_options, string, func(), error) {
	endpoints, transport, err := config.endpoints()
	if err != nil {
		return nil, "", nil, err
	}
	access, secret, err := config.keys()
	if err != nil {
		return nil, "", nil, err
	}
	options, free, err := optionsOf(config, endpoints, access, secret)
	if err != nil {
		return nil, "", nil, err
	}
	name := C.CString(string(transport))
	defer C.free(unsafe.Pointer(name))
	if hasZero(string(transport)) || C.neb_transport_parse(name, &options.transport) != 0 {
		free()
		return nil, "", nil, fmt.Errorf("nebulaio: Transport %q is not auto, rdma, http or strict", transport)
	}
	options.request_timeout_ns = nanoseconds(config.RequestTimeout)
	options.require_encryption = C.bool(config.RequireEncryption)
	return options, endpoints, free, nil
}

// optionsOf returns options with what names the server, and a function that frees them.
func optionsOf(config *Config, endpoints, access, secret string) (*C.struct_neb_options, func(), error) {
	device := deviceName(config.DeviceName)
	if hasZero(endpoints, access, secret, config.Region, config.SessionToken, config.TokenBucket, device) {
		return nil, nil, fmt.Errorf("nebulaio: %s, a key or a token of Config: %w", zeroByte, syscall.EINVAL)
	}
	options := (*C.struct_neb_options)(C.calloc(1, C.sizeof_struct_neb_options))
	all := []unsafe.Pointer{unsafe.Pointer(options)}
	for _, option := range []struct {
		to   **C.char
		text string
	}{
		{&options.endpoints, endpoints}, {&options.access_key, access}, {&options.secret_key, secret},
		{&options.region, config.Region}, {&options.session_token, config.SessionToken},
		{&options.token_bucket, config.TokenBucket}, {&options.device_name, device},
	} {
		if option.text != "" {
			*option.to = C.CString(option.text)
			all = append(all, unsafe.Pointer(*option.to))
		}
	}
	options.connect_timeout_ns = nanoseconds(config.ConnectTimeout)
	return options, func() {
		for _, one := range all {
			C.free(one)
		}
	}, nil
}

func deviceName(named string) string {
	return firstSet(os.Getenv("NEBULAIO_RDMA_DEVICE_NAME"), named)
}

func open(options *C.struct_neb_options, bytes int, log func(LogLevel, string), endpoints string) (*Client, error) {
	c := &Client{ended: make(chan struct{}), guess: 64 << 10}
	c.wanted = sync.NewCond(&c.mutex)
	if log != nil {
		c.log = cgo.NewHandle(log)
	}
	ret := C.native_open(options, C.uintptr_t(c.log), &c.native)
	var base unsafe.Pointer
	if ret == 0 {
		ret = C.neb_buffer_alloc(c.native, C.size_t(bytes), &base)
	}
	if ret != 0 {
		C.neb_client_close(c.native)
		c.logEnd()
		return nil, fmt.Errorf("nebulaio: %s cannot be used: %w", endpoints, syscall.Errno(-ret))
	}
	c.device, c.deviceWhy = C.GoString(C.neb_client_device(c.native)), C.GoString(C.neb_client_device_why(c.native))
	c.pool = newPool(base, bytes)
	go c.dispatch()
	return c, nil
}

func (c *Client) logEnd() {
	if c.log != 0 {
		c.log.Delete()
	}
}

// Close ends the requests in flight and the client; calls that wait return ErrClosed. Buffers of AllocateBuffer no
// longer exist: a goroutine that still reads or writes one crashes. Close may be called twice.
func (c *Client) Close() error {
	c.mapperClose()
	c.mutex.Lock()
	c.closing = true
	c.wake()
	c.mutex.Unlock()
	<-c.ended
	return nil
}

// wake ends the dispatcher's wait. With the mutex.
func (c *Client) wake() {
	c.wanted.Signal()
	if c.waiting && c.native != nil {
		C.neb_wake(c.native)
	}
	c.waiting = false
}

// ---- The dispatcher: the only goroutine that uses the C client. ----

func (c *Client) dispatch() {
	defer close(c.ended)
	results := (*[resultBatch]C.struct_neb_result)(C.calloc(resultBatch, C.sizeof_struct_neb_result))
	defer C.free(unsafe.Pointer(results))
	flying := map[uintptr]*call{}
	for serial := uintptr(0); ; {
		c.mutex.Lock()
		for len(c.queue) == 0 && len(flying) == 0 && !c.closing {
			c.wanted.Wait()
		}
		queue, closing := c.queue, c.closing
		c.queue, c.waiting = nil, !closing
		c.mutex.Unlock()
		if closing {
			c.end(queue, flying)
			return
		}
		for _, one := range queue {
			serial++
			c.submit(one, serial, flying)
		}
		count := int(C.neb_wait(c.native, &results[0], resultBatch, forever))
		for i := 0; i < count; i++ {
			id := uintptr(results[i].user_data)
			one := flying[id]
			delete(flying, id)
			one.take(&results[i])
			c.finish(one)
		}
		c.statsTake()
	}
}

func (c *Client) submit(one *call, serial uintptr, flying map[uintptr]*call) {
	if atomic.LoadInt32(&one.state) == abandoned {
		c.finish(one)
		return
	}
	one.native.user_data = C.uintptr_t(serial)
	ret := C.native_submit(c.native, &one.native, (*C.char)(unsafe.Pointer(&one.text[0])))
	if ret != 0 {
		one.errno = syscall.Errno(-ret)
		one.result = Result{Transport: "none"}
		if one.errno == syscall.EINVAL {
			one.result.Message = "the request is out of bounds, or a bucket or a key is missing"
		}
		c.finish(one)
		return
	}
	flying[serial] = one
}

// finish returns the call to its caller, or frees an abandoned call's memory.
func (c *Client) finish(one *call) {
	if atomic.CompareAndSwapInt32(&one.state, pending, answered) {
		close(one.done)
		return
	}
	c.free(one)
}

func (c *Client) end(queue []*call, flying map[uintptr]*call) {
	c.mutex.Lock()
	native := c.native
	c.native = nil
	c.mutex.Unlock()
	c.poolMutex.Lock()
	c.poolGone = true
	C.neb_client_close(native)
	c.poolMutex.Unlock()
	c.logEnd()
	for _, one := range flying {
		queue = append(queue, one)
	}
	for _, one := range queue {
		one.errno = syscall.ECANCELED
		c.finish(one)
	}
}

func (c *Client) statsTake() {
	var native C.struct_neb_stats

	C.neb_client_stats(c.native, &native)
	c.mutex.Lock()
	copied := c.stats.BytesCopied
	c.stats = Stats{
		RequestsRDMA: uint64(native.requests_rdma), RequestsHTTP: uint64(native.requests_http),
		Fallbacks: uint64(native.fallbacks), SessionsOpened: uint64(native.sessions_opened),
		SessionsLost: uint64(native.sessions_lost), Registrations: uint64(native.registrations),
		Leases: uint64(native.leases), OneSidedReads: uint64(native.one_sided_reads),
		OneSidedMisses: uint64(native.one_sided_misses),
		Paths:          uint64(native.paths), PathsUp: uint64(native.paths_up),
		RequestsMoved: uint64(native.requests_moved),
		BytesCopied:   copied + uint64(native.bytes_copied) - c.stats.libraryCopied, libraryCopied: uint64(native.bytes_copied),
	}
	c.mutex.Unlock()
}

// Device returns the RDMA device that the client uses, or "" without one.
func (c *Client) Device() string { return c.device }

// DeviceWhy says why the client uses that device, or why it has none.
func (c *Client) DeviceWhy() string { return c.deviceWhy }

// Stats returns the counts up to the last result.
func (c *Client) Stats() Stats {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.stats
}

func (one *call) take(native *C.struct_neb_result) {
	one.errno = syscall.Errno(-native.error)
	one.result = resultOf(native)
}

func resultOf(native *C.struct_neb_result) Result {
	return Result{
		Status:      int(native.status),
		Transport:   Transport(C.GoString(C.neb_transport_name(native.transport))),
		Fallback:    C.GoString(&native.fallback[0]),
		Bytes:       int64(native.bytes),
		ETag:        C.GoString(&native.etag[0]),
		RequestID:   C.GoString(&native.request_id[0]),
		Code:        C.GoString(&native.code[0]),
		Message:     C.GoString(&native.message[0]),
		Headers:     parseHeaders(C.GoString(&native.headers[0])),
		objectBytes: int64(native.object_bytes),
	}
}

// ---- The callers' side. ----

// run has the dispatcher perform the call, and waits for it or for the context. When it returns an error of the
// context, the dispatcher owns the call.
func (c *Client) run(ctx context.Context, one *call) error {
	if err := ctx.Err(); err != nil {
		c.free(one)
		return err
	}
	if deadline, has := ctx.Deadline(); has {
		left := 1 + nanoseconds(time.Until(deadline))
		if one.native.timeout_ns == 0 || left < one.native.timeout_ns {
			one.native.timeout_ns = left
		}
	}
	one.done = make(chan struct{})
	c.mutex.Lock()
	if c.closing {
		c.mutex.Unlock()
		c.free(one)
		return ErrClosed
	}
	c.queue = append(c.queue, one)
	c.wake()
	c.mutex.Unlock()
	select {
	case <-one.done:
	case <-ctx.Done():
		if atomic.CompareAndSwapInt32(&one.state, pending, abandoned) {
			return ctx.Err()
		}
		<-one.done
	}
	if one.errno == syscall.ECANCELED && one.result.Status == 0 {
		c.free(one)
		return ErrClosed
	}
	return nil
}

func (c *Client) free(one *call) {
	if one.hold != nil {
		c.pool.drop(one.hold)
	}
	if one.bounce != nil {
		c.pool.release(one.bounce.offset)
	}
	C.free(one.heap)
	one.hold, one.bounce, one.heap = nil, nil, nil
}

// ---- Memory. ----

// AllocateBuffer returns memory that the RDMA device knows, so that objects move between it and the server without a
// copy. When the pool has no such run, or after Close, it is ordinary memory: everything works, with a copy. Registered
// tells which.
func (c *Client) AllocateBuffer(bytes int) []byte {
	c.poolMutex.RLock()
	defer c.poolMutex.RUnlock()
	if c.poolGone {
		return make([]byte, bytes)
	}
	b := c.pool.lease(bytes)
	if b == nil {
		return make([]byte, bytes)
	}
	return unsafe.Slice((*byte)(c.pool.at(b.offset)), b.bytes)[:bytes]
}

// ReleaseBuffer gives memory of AllocateBuffer back; a request in flight keeps it until its result. It panics when the
// buffer was released before.
func (c *Client) ReleaseBuffer(buf []byte) {
	offset := c.pool.offsetOf(buf)
	if offset >= 0 && !c.pool.release(offset) {
		panic("nebulaio: the buffer was released before, or is not the start of one")
	}
}

// Registered tells whether buf belongs to the pool.
func (c *Client) Registered(buf []byte) bool { return c.pool.offsetOf(buf) >= 0 }

// memory lends the call memory that the caller cannot touch.
func (c *Client) memory(one *call, bytes int) unsafe.Pointer {
	if one.bounce = c.pool.lease(bytes); one.bounce != nil {
		return c.pool.at(one.bounce.offset)
	}
	one.heap = C.malloc(C.size_t(bytes))
	return one.heap
}

// move copies to or from the call's memory. ErrClosed: it is gone.
func (c *Client) move(to, from []byte) error {
	c.poolMutex.RLock()
	defer c.poolMutex.RUnlock()
	if c.poolGone {
		return ErrClosed
	}
	copy(to, from)
	c.copied(len(from))
	return nil
}

func (c *Client) copied(bytes int) {
	c.mutex.Lock()
	c.stats.BytesCopied += uint64(bytes)
	c.mutex.Unlock()
}
