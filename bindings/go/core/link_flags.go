//go:build nebulaio_flags

package core

// With -tags nebulaio_flags, CGO_CFLAGS and CGO_LDFLAGS say where the library is, and pkg-config is not used.

// #cgo LDFLAGS: -lnebulaio
import "C"
