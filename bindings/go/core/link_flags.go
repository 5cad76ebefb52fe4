//go:build nebulaio_flags

package core

// With -tags nebulaio_flags the library is where CGO_CFLAGS and CGO_LDFLAGS say, and pkg-config is not asked.

// #cgo LDFLAGS: -lnebulaio
import "C"
