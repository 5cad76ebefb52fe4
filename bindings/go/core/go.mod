module github.com/piwi3910/nebulaio/client/core

go 1.19
