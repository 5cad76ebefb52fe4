package core

import (
	"errors"
	"syscall"
	"testing"
)

func TestEndpoints(t *testing.T) {
	t.Setenv("NEBULAIO_ENDPOINT", "")
	for _, test := range []struct {
		config    Config
		want      string
		transport Transport
	}{
		{Config{Endpoint: "10.0.0.1:9100"}, "rdma://10.0.0.1:9100", RDMA},
		{Config{Endpoint: "host"}, "rdma://host:9100", RDMA},
		{Config{Endpoint: "[::1]:5"}, "rdma://[::1]:5", RDMA},
		{Config{Endpoint: "https://[::1]"}, "https://[::1]:9443", Auto},
		{Config{Endpoints: []string{"rdma://node1:9100"}, FallbackHTTP: true}, "rdma://node1:9100,http://node1:9000", Auto},
		{Config{Endpoints: []string{"rdma://a", "http://b/"}, FallbackHTTP: true}, "rdma://a:9100,http://b:9000", Auto},
		{Config{Endpoint: "http://b", Transport: HTTP}, "http://b:9000", HTTP},
		{Config{Endpoints: []string{"http://a?rdma=owner", "https://b:1/?rdma"}}, "http://a:9000?rdma=owner,https://b:1?rdma", Auto},
		{Config{Endpoint: "rdma://a?paths=given"}, "rdma://a:9100?paths=given", RDMA},
	} {
		text, transport, err := test.config.endpoints()
		if err != nil || text != test.want || transport != test.transport {
			t.Errorf("%+v: %q, %q, %v", test.config, text, transport, err)
		}
	}
	for _, bad := range []Config{
		{}, {Endpoint: "ftp://a"}, {Endpoint: "a:0"}, {Endpoint: "a:70000"}, {Endpoint: "::1"}, {Endpoint: "rdma://"},
		{Endpoint: "a:9100", Endpoints: []string{"b"}}, {Endpoint: "a:x"}, {Endpoint: "http://a?rdma=other"},
		{Endpoint: "rdma://a?rdma=owner"}, {Endpoint: "http://a?"},
		{Endpoint: "rdma://a?paths=all"}, {Endpoint: "http://a?paths=given"},
	} {
		if text, _, err := bad.endpoints(); err == nil {
			t.Errorf("%+v: %q", bad, text)
		}
	}
	t.Setenv("NEBULAIO_CONNECT_TO", "nonsense")
	if _, err := NewClient(Config{Endpoint: "a", AccessKey: "a", SecretKey: "s"}); err == nil {
		t.Error("NEBULAIO_CONNECT_TO without a target")
	}
}

func TestKeys(t *testing.T) {
	for _, name := range []string{
		"NEBULAIO_ACCESS_KEY", "NEBULAIO_SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	if _, err := NewClient(Config{Endpoint: "a"}); err == nil {
		t.Error("a client without keys")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	if access, secret, err := (&Config{SecretKey: "mine"}).keys(); access != "a" || secret != "mine" || err != nil {
		t.Error(access, secret, err)
	}
}

func TestPartBytes(t *testing.T) {
	for _, bad := range []int{-1, 1, 5<<20 - 1, PutBytesMax + 1} {
		if _, err := NewClient(Config{Endpoint: "a", AccessKey: "a", SecretKey: "s", PartBytes: bad}); err == nil {
			t.Error("PartBytes", bad)
		}
	}
}

// C's strings end at a zero byte: what is behind it must not be lost in silence.
func TestZeroBytes(t *testing.T) {
	t.Setenv("NEBULAIO_RDMA_DEVICE_NAME", "")
	good := Config{Endpoint: "http://a", AccessKey: "a", SecretKey: "s"}
	for name, spoil := range map[string]func(config *Config){
		"Endpoint":     func(config *Config) { config.Endpoint = "http://a\x00b" },
		"AccessKey":    func(config *Config) { config.AccessKey += "\x00" },
		"SecretKey":    func(config *Config) { config.SecretKey += "\x00b" },
		"Region":       func(config *Config) { config.Region = "a\x00b" },
		"SessionToken": func(config *Config) { config.SessionToken = "a\x00b" },
		"TokenBucket":  func(config *Config) { config.TokenBucket = "a\x00b" },
		"DeviceName":   func(config *Config) { config.DeviceName = "simulated\x00b" },
	} {
		config := good
		spoil(&config)
		if client, err := NewClient(config); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v: %v", name, client, err)
		}
		if minter, err := NewMinter(config); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v: %v", name, minter, err)
		}
	}
	config := good
	config.Transport = "http\x00b"
	if client, err := NewClient(config); err == nil {
		t.Errorf("Transport: %v", client)
	}
	client := clientOf(t, good)
	for _, names := range [][3]string{{"b\x00", "k", ""}, {"b", "k\x00x", ""}, {"b", "k", "v\x00x"}} {
		if m, err := client.Map(ctx, names[0], names[1], names[2]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%q: %v, %v", names, m, err)
		}
	}
	if header := (&FanOut{Name: "a\x00b", Members: 1}).header(); header != "" {
		t.Errorf("a fan-out named %q", header)
	}
}
