package core

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// PoolSize is a number of bytes of registered memory.
type PoolSize uint64

// A Transport selects RDMA, HTTP or both.
type Transport string

const (
	// Auto uses RDMA if an endpoint offers it, HTTP while RDMA fails, and RDMA again afterwards.
	Auto Transport = "auto"
	// RDMA uses RDMA only; the client sets a lost session up again until the request's time is over.
	RDMA Transport = "rdma"
	// HTTP uses HTTP only.
	HTTP Transport = "http"
	// Strict uses RDMA at once, or fails.
	Strict Transport = "strict"
)

// A LogLevel is the severity of a line of the log.
type LogLevel int

// The levels of the log.
const (
	LogDebug LogLevel = iota
	LogInfo
	LogWarn
	LogError
)

// Config names the server and how to talk to it. Omitted fields have defaults.
//
// The environment adds to it:
//
//	NEBULAIO_ENDPOINT           endpoints, where Config names none
//	NEBULAIO_ACCESS_KEY, NEBULAIO_SECRET_KEY (or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)
//	                            keys, where Config names none
//	NEBULAIO_RDMA_DEVICE_NAME   wins over DeviceName
//	NEBULAIO_CONNECT_TO         "HOST:PORT=HOST:PORT", several with commas: a connection to the first goes
//	                            to the second
type Config struct {
	// Endpoint is HOST:PORT of an RDMA listener, or a URL: rdma://, http:// or https://. The further addresses that the server
	// tells are used, too, unless the text ends in ?paths=given. With http://HOST:PORT?rdma=owner of a
	// cluster's gateway, requests go to the owners of the buckets by RDMA, once the gateway has told them.
	Endpoint string
	// Endpoints are several endpoints, in order of preference. Set either this or Endpoint.
	Endpoints []string
	AccessKey string
	SecretKey string
	Region    string // us-east-1
	// SessionToken is that of temporary credentials. Where it is empty, the environment's counts: NEBULAIO_SESSION_TOKEN
	// or AWS_SESSION_TOKEN, if AccessKey is the one beside it. Such credentials are for HTTP, and for ?rdma and
	// ?rdma=hipobj.
	SessionToken string
	// TokenBucket is the bucket of the requests with a Minter's tokens, when Endpoint is a gateway of a cluster: a token
	// is valid for one store.
	TokenBucket string

	// FallbackHTTP uses HTTP on port 9000 of the same hosts when RDMA fails, unless an HTTP endpoint is named.
	FallbackHTTP bool
	// Transport is Auto when there is an HTTP endpoint, else RDMA.
	Transport Transport
	// DeviceName is the RDMA device: "mlx5_0", "mlx5_0:1:3", "simulated" (servers of this host). By default it is
	// the device that reaches the server; Device and DeviceWhy tell which, and why.
	DeviceName string
	// RequireEncryption allows only encrypted sessions over RDMA.
	RequireEncryption bool
	// OneSidedReads reads small objects that are requested often from the server's memory. There is no registration
	// cache to configure here: Go's memory is never registered, and bodies pass through the client's own.
	OneSidedReads bool

	// MemoryPool is the memory for AllocateBuffer: 64 MiB.
	MemoryPool PoolSize
	// MapBytesMax limits the bytes of all maps that are in memory, 32 MiB at least: no limit. Beyond it, those that came
	// first are dropped, and come again when they are touched.
	MapBytesMax int64
	// RequestsMax limits the requests in flight, 1 to 256: 64. More requests wait.
	RequestsMax int
	// PartBytes sends longer bodies in parts of this size, 5 MiB to 5 GiB. By default bodies over PutBytesMax, the
	// limit of one request, go in parts of 256 MiB.
	PartBytes int
	// ConnectTimeout is NEBULAIO_CONNECT_TIMEOUT_S in the environment, or 2 s, or RequestTimeout if RDMA is the only
	// transport.
	ConnectTimeout time.Duration
	// RequestTimeout is NEBULAIO_REQUEST_TIMEOUT_S in the environment, or 30 s, for a request whose context has no deadline.
	RequestTimeout time.Duration
	// Spin is how long the client polls for an answer before it sleeps: 50 µs.
	Spin time.Duration

	// Log receives the library's log; one goroutine at a time calls it, and it must not call the client. By default
	// warnings and errors go to standard error.
	Log func(level LogLevel, text string)
}

var ports = map[string]string{"rdma": "9100", "http": "9000", "https": "9443"}

// ways are how bytes go by RDMA although requests go by HTTP: by tokens, or straight to the owners in a cluster.
var ways = map[string]bool{"": true, "?rdma": true, "?rdma=hipobj": true, "?rdma=owner": true}

// given is an RDMA endpoint whose further addresses, which the server tells, are not used.
const given = "?paths=given"

type endpoint struct{ scheme, host, port, way string }

// parseEndpoint takes HOST, HOST:PORT or a URL; without a scheme it is RDMA.
func parseEndpoint(text string) (endpoint, error) {
	bare, way, found := strings.Cut(strings.TrimSpace(text), "?")
	if found {
		way = "?" + way
	}
	scheme, address, found := strings.Cut(strings.TrimRight(bare, "/"), "://")
	if !found {
		scheme, address = "rdma", scheme
	}
	port, known := ports[scheme]
	if !known {
		return endpoint{}, fmt.Errorf("nebulaio: endpoint %q: %s is not rdma, http or https", text, scheme)
	}
	if scheme == "rdma" && way != "" && way != given || scheme != "rdma" && !ways[way] {
		return endpoint{}, fmt.Errorf("nebulaio: endpoint %q: %s is not ?rdma, ?rdma=hipobj or ?rdma=owner of an HTTP endpoint, "+
			"nor ?paths=given of an RDMA one", text, way)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	if strings.Contains(strings.TrimSuffix(address, "]"), "]:") || strings.Count(address, ":") == 1 {
		var err error
		if host, port, err = net.SplitHostPort(address); err != nil {
			return endpoint{}, fmt.Errorf("nebulaio: endpoint %q: %w", text, err)
		}
	} else if strings.Contains(address, ":") && !strings.HasPrefix(address, "[") {
		return endpoint{}, fmt.Errorf("nebulaio: endpoint %q: an IPv6 address stands in brackets", text)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || host == "" {
		return endpoint{}, fmt.Errorf("nebulaio: endpoint %q is not HOST:PORT", text)
	}
	return endpoint{scheme, host, port, way}, nil
}

// endpoints returns the endpoints in the library's form, and the transport that follows from them.
func (config *Config) endpoints() (string, Transport, error) {
	named := config.Endpoints
	if config.Endpoint != "" {
		if len(named) > 0 {
			return "", "", errors.New("nebulaio: either Endpoint or Endpoints")
		}
		named = []string{config.Endpoint}
	}
	if len(named) == 0 {
		named = strings.FieldsFunc(os.Getenv("NEBULAIO_ENDPOINT"), func(r rune) bool { return r == ',' || r == ' ' })
	}
	if len(named) == 0 {
		return "", "", errors.New("nebulaio: no endpoint: name one, or set NEBULAIO_ENDPOINT")
	}
	var all []endpoint
	transport := RDMA
	for _, text := range named {
		parsed, err := parseEndpoint(text)
		if err != nil {
			return "", "", err
		}
		if parsed.scheme != "rdma" {
			transport = Auto
		}
		all = append(all, parsed)
	}
	if config.FallbackHTTP && transport == RDMA {
		for _, rdma := range all {
			all = append(all, endpoint{"http", rdma.host, ports["http"], ""})
		}
		transport = Auto
	}
	if config.Transport != "" {
		transport = config.Transport
	}
	var texts []string
	for _, one := range all {
		texts = append(texts, one.scheme+"://"+net.JoinHostPort(one.host, one.port)+one.way)
	}
	return strings.Join(texts, ","), transport, nil
}

// putSizes returns the limit of one request, and the size of a part.
func (config *Config) putSizes() (putBytes, partBytes int, err error) {
	if config.PartBytes == 0 {
		return PutBytesMax, partBytesPreset, nil
	}
	if config.PartBytes < partBytesMin || config.PartBytes > PutBytesMax {
		return 0, 0, fmt.Errorf("nebulaio: PartBytes %d is not %d to %d", config.PartBytes, partBytesMin, PutBytesMax)
	}
	return config.PartBytes, config.PartBytes, nil
}

func firstSet(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

func (config *Config) keys() (access, secret string, err error) {
	access = firstSet(config.AccessKey, os.Getenv("NEBULAIO_ACCESS_KEY"), os.Getenv("AWS_ACCESS_KEY_ID"))
	secret = firstSet(config.SecretKey, os.Getenv("NEBULAIO_SECRET_KEY"), os.Getenv("AWS_SECRET_ACCESS_KEY"))
	if access == "" || secret == "" {
		err = errors.New("nebulaio: no keys: give AccessKey and SecretKey, or set NEBULAIO_ACCESS_KEY and " +
			"NEBULAIO_SECRET_KEY")
	}
	return access, secret, err
}
