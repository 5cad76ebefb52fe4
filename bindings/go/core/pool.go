package core

import (
	"sort"
	"sync"
	"unsafe"
)

const pageBytes = 4096

// A block is a run of pages of the pool, or other memory when base is outside the pool.
type block struct {
	offset, bytes int
	free          bool
	// Requests that use it: it returns to the pool after its release and the result of the last of them.
	users    int
	released bool
}

// A pool hands out one run of registered memory in pages: first fit, neighbours joined. blocks is sorted by offset and
// covers all of it.
type pool struct {
	mutex  sync.Mutex
	base   unsafe.Pointer
	bytes  int
	blocks []*block
}

func newPool(base unsafe.Pointer, bytes int) *pool {
	return &pool{base: base, bytes: bytes, blocks: []*block{{bytes: bytes, free: true}}}
}

func (p *pool) at(offset int) unsafe.Pointer { return unsafe.Add(p.base, offset) }

// lease returns nil when there is no such run.
func (p *pool) lease(bytes int) *block {
	if bytes < 0 || bytes > p.bytes {
		return nil
	}
	bytes = (bytes + pageBytes - 1) &^ (pageBytes - 1)
	if bytes == 0 {
		bytes = pageBytes
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for i, b := range p.blocks {
		if !b.free || b.bytes < bytes {
			continue
		}
		if b.bytes > bytes {
			rest := &block{offset: b.offset + bytes, bytes: b.bytes - bytes, free: true}
			p.blocks = append(p.blocks, nil)
			copy(p.blocks[i+2:], p.blocks[i+1:])
			p.blocks[i+1] = rest
			b.bytes = bytes
		}
		*b = block{offset: b.offset, bytes: bytes}
		return b
	}
	return nil
}

// index returns the index of the block that holds offset.
func (p *pool) index(offset int) int {
	return sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].offset > offset }) - 1
}

// offsetOf returns -1 for memory outside the pool.
func (p *pool) offsetOf(data []byte) int {
	if cap(data) == 0 {
		return -1
	}
	address, base := uintptr(unsafe.Pointer(&data[:1][0])), uintptr(p.base)
	if address < base || address >= base+uintptr(p.bytes) {
		return -1
	}
	return int(address - base)
}

// hold keeps data's block until drop. nil, true for memory outside the pool; false for memory that was given back.
func (p *pool) hold(data []byte) (*block, bool) {
	offset := p.offsetOf(data)
	if offset < 0 {
		return nil, true
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	b := p.blocks[p.index(offset)]
	if b.free || b.released || offset+len(data) > b.offset+b.bytes {
		return nil, false
	}
	b.users++
	return b, true
}

func (p *pool) drop(b *block) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	b.users--
	p.reclaim(b)
}

// release gives a leased block back. False: it is not leased.
func (p *pool) release(offset int) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	b := p.blocks[p.index(offset)]
	if b.free || b.released || b.offset != offset {
		return false
	}
	b.released = true
	p.reclaim(b)
	return true
}

func (p *pool) reclaim(b *block) {
	if !b.released || b.users > 0 {
		return
	}
	b.free = true
	i := p.index(b.offset)
	if i+1 < len(p.blocks) && p.blocks[i+1].free {
		b.bytes += p.blocks[i+1].bytes
		p.blocks = append(p.blocks[:i+1], p.blocks[i+2:]...)
	}
	if i > 0 && p.blocks[i-1].free {
		p.blocks[i-1].bytes += b.bytes
		p.blocks = append(p.blocks[:i], p.blocks[i+1:]...)
	}
}
