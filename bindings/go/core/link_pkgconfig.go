//go:build !nebulaio_flags

package core

// #cgo pkg-config: nebulaio
import "C"
