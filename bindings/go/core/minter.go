package core

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"sync"
	"syscall"
	"unsafe"
)

// TokenHeader is the header of an S3 request that has a token; the request's signature must cover it.
const TokenHeader = "X-Amz-Rdma-Token"

// A TokenUse is what a token's request does. Its key allows the server no more.
type TokenUse int

// The uses of a token: TokenEither is for callers that do not know.
const (
	TokenGet    TokenUse = C.NEB_GET_OBJECT
	TokenPut    TokenUse = C.NEB_PUT_OBJECT
	TokenPart   TokenUse = C.NEB_UPLOAD_PART
	TokenEither TokenUse = C.NEB_S3
)

var errMinterClosed = errors.New("nebulaio: the minter is closed")

// A Minter makes tokens for S3 requests that another library sends, the AWS SDK or net/http: one server moves their
// bodies by RDMA from and to this program's memory. That memory lies outside Go's heap, of which nobody may keep an
// address: Allocate gives some, and Register takes other. Any goroutine may call its methods.
type Minter struct {
	// Held for reading by every call of the library, for writing by Close. A holder of memories may wait for it, not the reverse.
	mutex  sync.RWMutex
	native *C.struct_neb_minter
	log    cgo.Handle

	memories sync.Mutex
	memory   map[uintptr]minterMemory // by its first address
}

type minterMemory struct {
	data []byte
	ours bool
	refs int
}

// NewMinter opens a minter for one endpoint, of http:// or https://, with the keys of the requests that will carry its
// tokens. Nothing is connected yet. MemoryPool, RequestsMax and Transport mean nothing here.
func NewMinter(config Config) (*Minter, error) {
	endpoints, _, err := config.endpoints()
	if err != nil {
		return nil, err
	}
	access, secret, err := config.keys()
	if err != nil {
		return nil, err
	}
	options, free, err := optionsOf(&config, endpoints, access, secret)
	if err != nil {
		return nil, err
	}
	defer free()
	m := &Minter{memory: map[uintptr]minterMemory{}}
	if config.Log != nil {
		m.log = cgo.NewHandle(config.Log)
	}
	if ret := C.native_minter_open(options, C.uintptr_t(m.log), &m.native); ret != 0 {
		m.logEnd()
		return nil, fmt.Errorf("nebulaio: no tokens for %s: %w", endpoints, syscall.Errno(-ret))
	}
	return m, nil
}

func (m *Minter) logEnd() {
	if m.log != 0 {
		m.log.Delete()
	}
}

// Close ends the minter with its tokens and registrations: the server reaches none of the memory any more. Memory of
// Allocate no longer exists: a goroutine that still reads or writes it crashes. Close may be called twice.
func (m *Minter) Close() error {
	m.memories.Lock()
	defer m.memories.Unlock()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.native == nil {
		return nil
	}
	C.neb_minter_close(m.native)
	m.native = nil
	m.logEnd()
	for base, memory := range m.memory {
		delete(m.memory, base)
		if memory.ours {
			syscall.Munmap(memory.data)
		}
	}
	return nil
}

// use calls the library, unless the minter is closed.
func (m *Minter) use(call func(native *C.struct_neb_minter) C.int) error {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	if m.native == nil {
		return errMinterClosed
	}
	if ret := call(m.native); ret != 0 {
		return syscall.Errno(-ret)
	}
	return nil
}

// Available tells why no tokens can be minted now, or nil: it connects a queue pair to the server if there is none.
// errors.Is(err, syscall.EOPNOTSUPP): the endpoint connects none; syscall.EACCES: the keys.
func (m *Minter) Available() error {
	why := (*C.char)(C.calloc(1, 200))
	defer C.free(unsafe.Pointer(why))
	err := m.use(func(native *C.struct_neb_minter) C.int { return C.neb_minter_available(native, why, 200) })
	if text := C.GoString(why); err != nil && text != "" {
		return fmt.Errorf("nebulaio: %s: %w", text, err)
	}
	return err
}

// ---- Memory. ----

// Allocate returns memory outside Go's heap that is registered: tokens may name any part of it. It ends with Free.
func (m *Minter) Allocate(n int) ([]byte, error) {
	data, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("nebulaio: memory of %d bytes: %w", n, err)
	}
	if err := m.register(data, true); err != nil {
		syscall.Munmap(data)
		return nil, err
	}
	return data, nil
}

// Register registers memory outside Go's heap, of syscall.Mmap or of C: tokens may name any part of it. The server's
// access ends with Unregister. Memory of Go's heap must not be registered.
func (m *Minter) Register(memory []byte) error { return m.register(memory, false) }

func (m *Minter) register(memory []byte, ours bool) error {
	if len(memory) == 0 {
		return fmt.Errorf("nebulaio: registering 0 bytes: %w", syscall.EINVAL)
	}
	m.memories.Lock()
	defer m.memories.Unlock()
	base := uintptr(unsafe.Pointer(&memory[0]))
	err := m.use(func(native *C.struct_neb_minter) C.int {
		return C.neb_minter_register(native, unsafe.Pointer(&memory[0]), C.size_t(len(memory)))
	})
	if err != nil {
		return fmt.Errorf("nebulaio: registering %d bytes: %w", len(memory), err)
	}
	m.memory[base] = minterMemory{memory, ours, m.memory[base].refs + 1}
	return nil
}

// Free ends memory of Allocate: the slice that it returned. The server's access to it ends first.
func (m *Minter) Free(memory []byte) error { return m.unregister(memory, true) }

// Unregister ends a registration; with the last one of the memory the server's access ends, also that of tokens which
// were not released.
func (m *Minter) Unregister(memory []byte) error { return m.unregister(memory, false) }

func (m *Minter) unregister(memory []byte, ours bool) error {
	m.memories.Lock()
	defer m.memories.Unlock()
	if len(memory) == 0 {
		return fmt.Errorf("nebulaio: this memory is not registered: %w", syscall.ENOENT)
	}
	base := uintptr(unsafe.Pointer(&memory[0]))
	found, known := m.memory[base]
	if !known || found.ours != ours {
		return fmt.Errorf("nebulaio: this memory is not registered: %w", syscall.ENOENT)
	}
	err := m.use(func(native *C.struct_neb_minter) C.int {
		return C.neb_minter_unregister(native, unsafe.Pointer(&memory[0]))
	})
	if err != nil {
		return err
	}
	if found.refs--; found.refs > 0 {
		m.memory[base] = found
		return nil
	}
	delete(m.memory, base)
	if ours {
		return syscall.Munmap(found.data)
	}
	return nil
}

// has tells whether the window lies in memory that is registered.
func (m *Minter) has(window []byte) bool {
	begin := uintptr(unsafe.Pointer(&window[0]))
	m.memories.Lock()
	defer m.memories.Unlock()
	for base, memory := range m.memory {
		if begin >= base && begin-base < uintptr(len(memory.data)) && uintptr(len(window)) <= uintptr(len(memory.data))-(begin-base) {
			return true
		}
	}
	return false
}

// ---- Tokens. ----

// A Token names a window of memory to the server, for one request: String is the value of TokenHeader.
type Token struct {
	minter *Minter
	text   string
}

// Token mints a token of a window, a part of registered memory. Do not read or change the window before the request was
// answered. Each request, each retry and each part needs a token of its own. Call Release once the request was
// answered, whatever the answer was, and Failed before it when there was none.
func (m *Minter) Token(use TokenUse, window []byte) (*Token, error) {
	if len(window) == 0 || !m.has(window) {
		return nil, fmt.Errorf("nebulaio: a token of %d bytes that are not registered: %w", len(window), syscall.EINVAL)
	}
	text := (*C.char)(C.calloc(1, C.NEB_TOKEN_BYTES))
	defer C.free(unsafe.Pointer(text))
	err := m.use(func(native *C.struct_neb_minter) C.int {
		return C.neb_token_mint(native, C.enum_neb_op(use), unsafe.Pointer(&window[0]), C.size_t(len(window)), text)
	})
	if err != nil {
		return nil, fmt.Errorf("nebulaio: a token of %d bytes: %w", len(window), err)
	}
	return &Token{m, C.GoString(text)}, nil
}

// String returns the value of the header.
func (t *Token) String() string { return t.text }

func (t *Token) call(call func(native *C.struct_neb_minter, text *C.char) C.int) error {
	text := C.CString(t.text)
	defer C.free(unsafe.Pointer(text))
	return t.minter.use(func(native *C.struct_neb_minter) C.int { return call(native, text) })
}

// Release ends the token.
func (t *Token) Release() error {
	return t.call(func(native *C.struct_neb_minter, text *C.char) C.int { return C.neb_token_release(native, text) })
}

// Failed reports that the token's request got no answer: when it returns, the server can neither write to the window
// nor read from it. Other requests whose tokens name the same queue pair fail, too. The token must still be released.
func (t *Token) Failed() error {
	return t.call(func(native *C.struct_neb_minter, text *C.char) C.int { return C.neb_token_failed(native, text) })
}
