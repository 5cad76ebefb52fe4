# Verbs only; the work is in scripts/ and meson.build. `make` alone lists them.
SEEDS ?= 1000

.PHONY: help run build test minute quarter bench tidy asan tsan sim fuzz site install deb wheel tarball image packages-everywhere deps clean
.DEFAULT_GOAL := help

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

run: ## install what is missing, build, start the server on ./data (ARGS="..." adds flags)
	@scripts/deps build
	@scripts/build build -- cli/nebulaio
	build/nebulaio serve $(ARGS)

build: ## build build/nebulaio and everything else
	@scripts/deps build
	@scripts/build build

test: ## run all tests; the last line has the counts
	@scripts/deps build test site
	@scripts/test

bench: build ## measure, with anchors beside each figure (ARGS="..." adds flags)
	@scripts/deps bench
	build/nebulaio bench $(ARGS)

minute: ## unit tests and style: about a minute once it is built
	@scripts/deps build test
	@scripts/test minute

quarter: ## the same, sanitizers and simulated worlds: about a quarter of an hour
	@scripts/deps build test
	@scripts/test quarter

tidy: ## check the style
	@scripts/deps build test
	@scripts/tidy

asan: ## the unit tests and the whole program under clang's sanitizers
	@scripts/deps build test
	@scripts/test asan ends-asan

tsan: ## the tests with threads under clang's ThreadSanitizer
	@scripts/deps build test
	@scripts/test tsan

sim: ## run the whole server in SEEDS (1000) simulated worlds
	@scripts/deps build test
	@scripts/sim --seeds $(SEEDS)

fuzz: ## run every fuzz target for FUZZ_SECONDS (30)
	@scripts/deps build test
	@scripts/fuzz

site: ## the documentation as pages with search, in build/site
	@scripts/deps build site
	@scripts/build build -- cli/nebulaio
	@scripts/site build/nebulaio build/site
	@echo "build/site/index.html; for its search: python3 -m http.server -d build/site 8000"

install: build ## install into /usr/local, or below DESTDIR
	/usr/bin/meson install -C build --no-rebuild

deb: ## Debian packages and their bill of materials, in build-deb/packages (ARGS=--twice: and once more, to compare)
	@scripts/deps build deb
	@scripts/deb $(ARGS)

wheel: build ## a wheel of the Python client, with its library inside, in build-wheel
	@scripts/deps build deb
	@scripts/wheel

tarball: build ## the program for any Linux with glibc 2.34, in build-tarball
	@scripts/deps build deb
	@scripts/tarball

image: deb ## a container image (OCI) of the server, from the Debian packages, in build-image (as root)
	@scripts/image

packages-everywhere: build ## both in minimal roots of Debian 12 and 13, Ubuntu 22.04 and 24.04 (as root; ARGS="trixie": only there)
	@scripts/deps build test
	@scripts/packages-everywhere $(ARGS)

deps: ## install the Debian packages that scripts/packages.txt lists
	@scripts/deps

clean: ## remove what the verbs above built
	rm -rf build build-asan build-tsan build-fuzz build-deb build-wheel build-tarball build-image
