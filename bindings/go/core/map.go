package core

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"
)

// mapPieceBytes is what ReadAt brings at a time: less than half of the least MapBytesMax.
const mapPieceBytes = 8 << 20

// mapBytesMin is the least MapBytesMax.
const mapBytesMin = 32 << 20

// A mapper makes maps. It has a C client and a thread of the library, which brings what is touched. That thread never
// enters Go: a goroutine that waits for it may be the one that Go's collector waits for.
type mapper struct {
	native *C.struct_native_mapper
	mutex  sync.Mutex
	refs   int // the client and the maps
}

// A Map is an object as read-only memory: Bytes. Its bytes come from the server when they are first touched, by a thread
// of the library, and an object may be larger than this host's memory (Config.MapBytesMax). It is of one version: when
// the object is replaced or deleted, or the server gives no answer for a minute, the map ends, Err has the reason, and
// touching Bytes raises SIGBUS. That ends the program, except in a goroutine that has called debug.SetPanicOnFault(true),
// where it is a panic; ReadAt returns an error instead.
//
// A goroutine that waits for a page keeps its thread and its place of GOMAXPROCS, like one that computes. Inside of copy
// and similar functions of the runtime it also holds up the garbage collector, and with it the program, until the bytes
// are there. Prefetch and ReadAt wait in a call of C, which holds up nobody. The memory is not Go's: the collector never
// looks at it, so it must not be taken for memory with Go's pointers.
//
// Any goroutine may call its methods. It is valid after the Client's Close, until its own.
type Map struct {
	mapper      *mapper
	bucket, key string
	etag        string
	bytes       []byte

	mutex  sync.RWMutex // held for reading in calls with native
	native *C.struct_neb_map
}

// MapStats counts what a Map has done.
type MapStats struct {
	Faults        uint64 // touches that waited
	Fetches       uint64 // requests that brought bytes
	FetchesRDMA   uint64 // of these, by RDMA
	BytesFetched  uint64 // each was copied once, into its page
	BytesDropped  uint64 // for MapBytesMax
	BytesResident uint64
	Retries       uint64
}

func newMapper(config *Config) (*mapper, error) {
	options, _, free, err := clientOptions(config)
	if err != nil {
		return nil, err
	}
	defer free()
	m := &mapper{refs: 1}
	var why [C.NATIVE_WHY_BYTES]C.char
	if ret := C.native_mapper_open(options, C.uint64_t(config.MapBytesMax), &m.native, &why[0]); ret != 0 {
		return nil, fmt.Errorf("nebulaio: objects cannot be mapped: %s: %w", C.GoString(&why[0]), syscall.Errno(-ret))
	}
	return m, nil
}

func (m *mapper) hold() {
	m.mutex.Lock()
	m.refs++
	m.mutex.Unlock()
}

// drop closes the mapper behind its last user.
func (m *mapper) drop() {
	m.mutex.Lock()
	m.refs--
	last := m.refs == 0
	m.mutex.Unlock()
	if last {
		C.native_mapper_close(m.native)
	}
}

// mapperOf returns the client's mapper, which the first Map opens, held for the caller.
func (c *Client) mapperOf() (*mapper, error) {
	c.mapMutex.Lock()
	defer c.mapMutex.Unlock()
	if c.mapClosed {
		return nil, ErrClosed
	}
	if c.mapper == nil {
		opened, err := newMapper(&c.config)
		if err != nil {
			return nil, err
		}
		c.mapper = opened
	}
	c.mapper.hold()
	return c.mapper, nil
}

func (c *Client) mapperClose() {
	c.mapMutex.Lock()
	defer c.mapMutex.Unlock()
	if c.mapper != nil && !c.mapClosed {
		c.mapper.drop()
	}
	c.mapClosed = true
}

// Map maps an object, or the version with this id. It asks for the length, and fetches nothing yet. An error that is
// EPERM or ENOSYS: this host refuses userfaultfd, as most containers' seccomp filters do; the text says what to change.
func (c *Client) Map(ctx context.Context, bucket, key, versionID string) (*Map, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if hasZero(bucket, key, versionID) {
		return nil, &Error{Op: "Map", Bucket: bucket, Key: key, Errno: syscall.EINVAL, Result: Result{Transport: "none", Message: zeroByte}}
	}
	mapper, err := c.mapperOf()
	if err != nil {
		return nil, err
	}
	type outcome struct {
		m   *Map
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		m, err := mapper.open(bucket, key, versionID)
		if err != nil {
			mapper.drop()
		}
		done <- outcome{m, err}
	}()
	select {
	case made := <-done:
		return made.m, made.err
	case <-ctx.Done():
		go func() {
			if made := <-done; made.m != nil {
				made.m.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func (m *mapper) open(bucket, key, versionID string) (*Map, error) {
	made := &Map{mapper: m, bucket: bucket, key: key}
	texts := [3]*C.char{C.CString(bucket), C.CString(key)}
	if versionID != "" {
		texts[2] = C.CString(versionID)
	}
	var native C.struct_neb_result
	ret := C.native_map(m.native, texts[0], texts[1], texts[2], &made.native, &native)
	for _, text := range texts {
		C.free(unsafe.Pointer(text))
	}
	if ret != 0 {
		return nil, made.failed(ret, &native)
	}
	made.etag = C.GoString(C.neb_map_etag(made.native))
	made.bytes = unsafe.Slice((*byte)(C.neb_map_data(made.native)), int(C.neb_map_bytes(made.native)))
	return made, nil
}

func (m *Map) failed(ret C.int, native *C.struct_neb_result) error {
	return &Error{Op: "Map", Bucket: m.bucket, Key: m.key, Errno: syscall.Errno(-ret), Result: resultOf(native)}
}

// Close ends the map. Bytes no longer exists: a goroutine that touches it gets SIGBUS or SIGSEGV. Close waits for calls
// of Prefetch and ReadAt, and may be called twice.
func (m *Map) Close() error {
	m.mutex.Lock()
	native := m.native
	m.native, m.bytes = nil, nil
	m.mutex.Unlock()
	if native == nil {
		return nil
	}
	C.neb_unmap(native)
	m.mapper.drop()
	return nil
}

// Bytes is the object, until Close; writing to it ends the program.
func (m *Map) Bytes() []byte {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	return m.bytes
}

// ETag is that of the version that is mapped, without quotes.
func (m *Map) ETag() string { return m.etag }

// Err is the error that ended the map, or nil.
func (m *Map) Err() error {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	if m.native == nil {
		return fs.ErrClosed
	}
	var native C.struct_neb_result
	if ret := C.neb_map_error(m.native, &native); ret != 0 {
		return m.failed(ret, &native)
	}
	return nil
}

// bring waits until the bytes are there. With the lock.
func (m *Map) bring(offset, length int) error {
	if ret := C.neb_map_prefetch(m.native, C.uint64_t(offset), C.uint64_t(length), forever); ret != 0 {
		return &Error{Op: "Map", Bucket: m.bucket, Key: m.key, Errno: syscall.Errno(-ret)}
	}
	return nil
}

// Prefetch brings a range before it is touched, and waits for it; length 0 is up to the end. At most half of
// Config.MapBytesMax is brought. When the context ends first, the bytes still come. EAGAIN: 64 ranges wait already.
func (m *Map) Prefetch(ctx context.Context, offset, length int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if offset < 0 || length < 0 {
		return syscall.ERANGE
	}
	done := make(chan error, 1)
	go func() {
		m.mutex.RLock()
		defer m.mutex.RUnlock()
		if m.native == nil {
			done <- fs.ErrClosed
			return
		}
		done <- m.bring(offset, length)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ReadAt copies bytes out of the map, as io.ReaderAt: a map that has ended is an error here, not a signal.
func (m *Map) ReadAt(p []byte, off int64) (int, error) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	if m.native == nil {
		return 0, fs.ErrClosed
	}
	if off < 0 {
		return 0, syscall.EINVAL
	}
	count := 0
	for count < len(p) && off+int64(count) < int64(len(m.bytes)) {
		at := int(off) + count
		piece := len(p) - count
		if piece > mapPieceBytes {
			piece = mapPieceBytes
		}
		if piece > len(m.bytes)-at {
			piece = len(m.bytes) - at
		}
		err := m.bring(at, piece)
		if err == nil {
			err = m.copy(p[count:count+piece], at)
		}
		if err != nil {
			return count, err
		}
		count += piece
	}
	if count < len(p) {
		return count, io.EOF
	}
	return count, nil
}

// copy turns the signal of a map that ends meanwhile into its error.
func (m *Map) copy(p []byte, at int) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			var native C.struct_neb_result
			ret := C.neb_map_error(m.native, &native)
			if ret == 0 {
				panic(fault) // it was p's
			}
			err = m.failed(ret, &native)
		}
	}()
	copy(p, m.bytes[at:])
	return nil
}

// Stats returns the counts since the map was made.
func (m *Map) Stats() MapStats {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	var native C.struct_neb_map_stats
	if m.native == nil {
		return MapStats{}
	}
	C.neb_map_stats(m.native, &native)
	return MapStats{
		Faults: uint64(native.faults), Fetches: uint64(native.fetches), FetchesRDMA: uint64(native.fetches_rdma),
		BytesFetched: uint64(native.bytes_fetched), BytesDropped: uint64(native.bytes_dropped),
		BytesResident: uint64(native.bytes_resident), Retries: uint64(native.retries),
	}
}
