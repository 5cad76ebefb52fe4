package core

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Read is one object, or a range of one, of GetMany.
type Read struct {
	Key         string
	Into        []byte // memory of AllocateBuffer is not copied
	RangeOffset int64  // with RangeBytes above 0
	RangeBytes  int64
	Result      Result // set by GetMany, like Err
	Err         error
}

// batchWindow is how many reads of GetMany are in flight when the caller names no number.
const batchWindow = 64

// GetMany reads many small objects of a bucket, with up to window of them in flight (0: 64), and sets Result and Err of
// each. Reads that were not started when the context ends have its error. Returns the first error in their order.
func (c *Client) GetMany(ctx context.Context, bucket string, reads []Read, window int) error {
	if window <= 0 {
		window = batchWindow
	}
	if window > len(reads) {
		window = len(reads)
	}
	var next int64 = -1
	var group sync.WaitGroup
	group.Add(window)
	for i := 0; i < window; i++ {
		go func() {
			defer group.Done()
			for at := atomic.AddInt64(&next, 1); at < int64(len(reads)); at = atomic.AddInt64(&next, 1) {
				read := &reads[at]
				if read.Err = ctx.Err(); read.Err != nil {
					continue
				}
				read.Result, read.Err = c.Do(ctx, &Request{Op: GetObject, Bucket: bucket, Key: read.Key, Into: read.Into,
					RangeOffset: read.RangeOffset, RangeBytes: read.RangeBytes})
			}
		}()
	}
	group.Wait()
	for i := range reads {
		if reads[i].Err != nil {
			return reads[i].Err
		}
	}
	return nil
}
