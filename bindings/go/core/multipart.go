package core

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	partBytesPreset = 256 << 20
	partBytesMin    = 5 << 20 // S3's minimum for all parts but the last
	partsMax        = 10000
	abortTime       = 10 * time.Second
)

type uploadedPart struct {
	PartNumber int
	ETag       string
}

// putParts stores data by a multipart upload, and aborts it on any failure, including the context's end.
func (c *Client) putParts(ctx context.Context, request *Request, partBytes int) (Result, error) {
	for (len(request.Body)+partBytes-1)/partBytes > partsMax {
		partBytes *= 2
	}
	headers, conditions := conditionsOf(request.Headers)
	id, err := c.beginUpload(ctx, request, headers)
	if err != nil {
		return Result{}, err
	}
	parts, err := c.uploadParts(ctx, request, id, partBytes)
	if err == nil {
		var result Result
		if result, err = c.finishUpload(ctx, request, conditions, id, parts); err == nil {
			return result, nil
		}
	}
	abort, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	// The caller needs the first error, not the error of the clean-up.
	c.Do(abort, &Request{Op: AbortMultipart, Bucket: request.Bucket, Key: request.Key, Query: "uploadId=" + id})
	return Result{}, err
}

// conditionsOf takes the conditions out of an object's headers: S3 applies them when the upload is finished, not when it
// begins.
func conditionsOf(all map[string]string) (headers, conditions map[string]string) {
	headers, conditions = map[string]string{}, map[string]string{}
	for name, value := range all {
		switch strings.ToLower(name) {
		case "if-match", "if-none-match":
			conditions[name] = value
		default:
			headers[name] = value
		}
	}
	return headers, conditions
}

// lasting returns a context that ends a while after ctx.
func lasting(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	within, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-ctx.Done():
		case <-within.Done():
			return
		}
		rest := time.NewTimer(while)
		defer rest.Stop()
		select {
		case <-rest.C:
			cancel()
		case <-within.Done():
		}
	}()
	return within, cancel
}

// beginUpload returns the upload's id, escaped for a query. Only the answer names it: so a request that is on its way is
// waited for when ctx ends, as else nobody could abort the upload.
func (c *Client) beginUpload(ctx context.Context, request *Request, headers map[string]string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	within, cancel := lasting(ctx, abortTime)
	defer cancel()
	answer := make([]byte, 8<<10)
	result, err := c.Do(within, &Request{
		Op: CreateMultipart, Bucket: request.Bucket, Key: request.Key, Headers: headers, Into: answer})
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return "", ended
		}
		return "", err
	}
	var begun struct{ UploadId string }
	if xml.Unmarshal(answer[:result.Bytes], &begun) != nil || begun.UploadId == "" {
		return "", request.failed(syscall.EPROTO, result)
	}
	return url.QueryEscape(begun.UploadId), nil
}

func (c *Client) uploadParts(ctx context.Context, request *Request, id string, partBytes int) ([]uploadedPart, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make([]uploadedPart, (len(request.Body)+partBytes-1)/partBytes)
	var group sync.WaitGroup
	var once sync.Once
	var first error
	window := make(chan struct{}, pieceWindow)
	for i := range parts {
		window <- struct{}{}
		if within.Err() != nil {
			break
		}
		body := request.Body[i*partBytes:]
		if len(body) > partBytes {
			body = body[:partBytes]
		}
		group.Add(1)
		go func(part *uploadedPart, number int) {
			defer group.Done()
			defer func() { <-window }()
			result, err := c.Do(within, &Request{Op: UploadPart, Bucket: request.Bucket, Key: request.Key, Body: body,
				Query: fmt.Sprintf("partNumber=%d&uploadId=%s", number, id)})
			if err != nil {
				once.Do(func() { first = err; cancel() })
			}
			*part = uploadedPart{number, `"` + result.ETag + `"`}
		}(&parts[i], i+1)
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return parts, first
}

func (c *Client) finishUpload(
	ctx context.Context, request *Request, conditions map[string]string, id string, parts []uploadedPart) (Result, error) {
	body, err := xml.Marshal(struct {
		XMLName xml.Name       `xml:"CompleteMultipartUpload"`
		Part    []uploadedPart `xml:"Part"`
	}{Part: parts})
	if err != nil {
		return Result{}, err
	}
	answer := make([]byte, 8<<10)
	result, err := c.Do(ctx, &Request{
		Op: FinishMultipart, Bucket: request.Bucket, Key: request.Key, Query: "uploadId=" + id, Headers: conditions, Body: body,
		Into: answer})
	if err != nil {
		return result, err
	}
	// S3 names the object's ETag in the document, not in a header.
	var finished struct{ ETag string }
	if xml.Unmarshal(answer[:result.Bytes], &finished) == nil && finished.ETag != "" {
		result.ETag = strings.Trim(finished.ETag, `"`)
	}
	return result, nil
}
