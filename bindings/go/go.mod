module github.com/piwi3910/nebulaio/bindings/go

go 1.19
