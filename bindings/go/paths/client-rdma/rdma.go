// Package rdma has the names of github.com/piwi3910/nebulaio/bindings/go/client-rdma under the path github.com/nebulaio/client-rdma,
// for programs that import that path; their go.mod replaces it by this folder.
package rdma

import own "github.com/piwi3910/nebulaio/bindings/go/client-rdma"

// For their documentation see that package.
type (
	Client      = own.Client
	Config      = own.Config
	PoolSize    = own.PoolSize
	Transport   = own.Transport
	LogLevel    = own.LogLevel
	Result      = own.Result
	Error       = own.Error
	Info        = own.Info
	Request     = own.Request
	ListOptions = own.ListOptions
	Stats       = own.Stats
)

// The transports.
const (
	Auto   = own.Auto
	RDMA   = own.RDMA
	HTTP   = own.HTTP
	Strict = own.Strict
)

// ErrClosed is the error of calls on a closed client.
var ErrClosed = own.ErrClosed

// WithResult returns a context whose calls write the outcome of their last request to result; NewClient opens a client.
var (
	WithResult = own.WithResult
	NewClient  = own.NewClient
)
