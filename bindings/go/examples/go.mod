module example

go 1.19

require github.com/piwi3910/nebulaio/client/rdma v0.0.0

require github.com/piwi3910/nebulaio/client/core v0.0.0 // indirect

replace (
	github.com/piwi3910/nebulaio/client/core => ../core
	github.com/piwi3910/nebulaio/client/rdma => ../rdma
)
