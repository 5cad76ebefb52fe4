package core

import (
	"testing"
	"unsafe"
)

func poolOf(pages int) (*pool, []byte) {
	memory := make([]byte, pages*pageBytes)
	return newPool(unsafe.Pointer(&memory[0]), len(memory)), memory
}

func TestPoolJoins(t *testing.T) {
	p, _ := poolOf(8)
	var blocks []*block
	for i := 0; i < 8; i++ {
		b := p.lease(1)
		if b == nil || b.offset != i*pageBytes {
			t.Fatalf("page %d: %+v", i, b)
		}
		blocks = append(blocks, b)
	}
	if p.lease(1) != nil {
		t.Fatal("a full pool leased a page")
	}
	for _, i := range []int{1, 5, 3, 0, 7, 2, 6, 4} {
		if !p.release(blocks[i].offset) {
			t.Fatalf("page %d was not leased", i)
		}
	}
	if len(p.blocks) != 1 || p.lease(8*pageBytes) == nil {
		t.Fatalf("the pool is in %d pieces", len(p.blocks))
	}
	if p.lease(-1) != nil || p.lease(9*pageBytes) != nil {
		t.Fatal("a lease that cannot be")
	}
}

func TestPoolHolds(t *testing.T) {
	p, memory := poolOf(4)
	b := p.lease(2 * pageBytes)
	inner := memory[b.offset+100 : b.offset+200]
	held, ok := p.hold(inner)
	if !ok || held != b {
		t.Fatal("a part of a buffer is not held")
	}
	if !p.release(b.offset) || p.release(b.offset) {
		t.Fatal("a buffer is released once")
	}
	if _, ok := p.hold(inner); ok {
		t.Fatal("a released buffer was held")
	}
	if other := p.lease(3 * pageBytes); other != nil {
		t.Fatal("memory that a request uses was leased")
	}
	p.drop(held)
	if p.lease(4*pageBytes) == nil {
		t.Fatal("the last user did not give the buffer back")
	}
	if held, ok := p.hold(make([]byte, 10)); held != nil || !ok {
		t.Fatal("ordinary memory is none of the pool's")
	}
}
