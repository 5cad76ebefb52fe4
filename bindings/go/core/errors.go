package core

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// ErrClosed is the error of calls on a closed client.
var ErrClosed = errors.New("nebulaio: the client is closed")

// An Error is a request that failed: S3's error, or why no server could be asked.
//
// errors.Is knows the kinds: fs.ErrNotExist (404), fs.ErrPermission (401, 403), fs.ErrExist (409), and every
// syscall.Errno: EMSGSIZE, the object is longer than the buffer; ESTALE, a condition did not hold; ETIMEDOUT,
// ECONNREFUSED, ECONNRESET, the server cannot be reached.
type Error struct {
	Op     string // GetObject
	Bucket string
	Key    string
	Errno  syscall.Errno
	Result // Status is 0 when no answer came
}

func (e *Error) Error() string {
	text := "nebulaio: " + e.Op
	if e.Bucket != "" {
		text += " " + strings.TrimSuffix(e.Bucket+"/"+e.Key, "/")
	}
	switch {
	case e.Code != "" && e.Message != "":
		text += ": " + e.Code + ": " + e.Message
	case e.Code != "" || e.Message != "":
		text += ": " + e.Code + e.Message
	default:
		text += ": " + e.Errno.Error()
	}
	if e.Status != 0 {
		text += fmt.Sprintf(" (status %d, request %s, by %s)", e.Status, e.RequestID, e.Result.Transport)
	}
	return text
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Timeout tells whether the request timed out; another try may succeed.
func (e *Error) Timeout() bool { return e.Errno == syscall.ETIMEDOUT }
