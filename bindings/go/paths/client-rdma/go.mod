module github.com/nebulaio/client-rdma

go 1.19

require github.com/piwi3910/nebulaio/bindings/go v0.0.0

replace github.com/piwi3910/nebulaio/bindings/go => ../..
