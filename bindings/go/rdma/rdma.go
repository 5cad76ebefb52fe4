// Package rdma is the Go client of NebulaIO for the caller's memory: GetObject reads into a buffer; the server writes
// directly to a buffer of AllocateBuffer.
package rdma

import (
	"context"

	"github.com/piwi3910/nebulaio/bindings/go/core"
)

// For their documentation see package core.
type (
	Config      = core.Config
	PoolSize    = core.PoolSize
	Transport   = core.Transport
	LogLevel    = core.LogLevel
	Result      = core.Result
	Error       = core.Error
	Info        = core.Info
	Read        = core.Read
	Request     = core.Request
	ListOptions = core.ListOptions
	FanOut      = core.FanOut
	Stats       = core.Stats
	Map         = core.Map
	MapStats    = core.MapStats
	Minter      = core.Minter
	Token       = core.Token
	TokenUse    = core.TokenUse
)

// The transports.
const (
	Auto   = core.Auto
	RDMA   = core.RDMA
	HTTP   = core.HTTP
	Strict = core.Strict
)

// The uses of a token, and the header that has it.
const (
	TokenGet    = core.TokenGet
	TokenPut    = core.TokenPut
	TokenPart   = core.TokenPart
	TokenEither = core.TokenEither
	TokenHeader = core.TokenHeader
)

// FanOutHeader is the header that tells a member of a FanOut its role, in the result of GetFanOut.
const FanOutHeader = core.FanOutHeader

// NewMinter opens a minter of tokens for S3 requests that another library sends.
func NewMinter(config Config) (*Minter, error) { return core.NewMinter(config) }

// ErrClosed is the error of calls on a closed client.
var ErrClosed = core.ErrClosed

// WithResult returns a context whose calls write the outcome of their last request to result.
func WithResult(ctx context.Context, result *Result) context.Context {
	return core.WithResult(ctx, result)
}

// A Client is a connection to one server, or to several endpoints of one. Any goroutine may call its methods.
type Client struct{ *core.Client }

// NewClient opens a client. The first request connects; with Transport Strict, NewClient does.
func NewClient(config Config) (*Client, error) {
	client, err := core.NewClient(config)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// GetObject reads an object into buf and returns its length. errors.Is(err, syscall.EMSGSIZE): buf is too small.
func (c *Client) GetObject(ctx context.Context, bucket, key string, buf []byte) (int, error) {
	return c.GetObjectInto(ctx, bucket, key, buf)
}
