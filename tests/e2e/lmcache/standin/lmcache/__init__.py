"""A stand-in for LMCache, with as much of it as its storage plug-ins see: names, parameters and formats of LMCache 0.5.6,
which run-lmcache compares with the package of the registry. The package itself needs PyTorch with CUDA's libraries."""
