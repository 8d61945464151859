# The two commands are `make demo` and `make test`; both install or name what they need (`make deps`).
# They share one build profile. Checking other feature sets and quiche's own tests still compiles BoringSSL a few times.

CARGO ?= cargo
export RUST_BACKTRACE ?= 1

.PHONY: help deps build demo test format lint unit upstream clean

help:
	@echo "make demo    upload a file over an emulated lossy path, with and without a Sidekick proxy (three minutes)"
	@echo "make test    format, lints, and every test"
	@echo "make deps    install what the build needs (as root on Debian or Ubuntu), or say what to install"

deps:
	@.ci/deps

build: deps
	$(CARGO) build --locked --workspace

demo: build
	@target/debug/sidekick-lab demo

test: deps format lint unit upstream

format: deps
	$(CARGO) fmt --all --check

# Every feature combination that a user can choose is checked, not only the one that the workspace builds.
lint: deps
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --all-targets -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --no-default-features --lib -- -D warnings
	$(CARGO) clippy --locked -p quiche@0.30.100 --lib --features qlog,internal,custom-client-dcid,ffi,fuzzing,gcongestion -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps -p sidekick-quack -p sidekick-protocol -p quic-sidekick -p sidekick-proxy -p sidekick-netem --features quic-sidekick/tokio-quiche

unit: build
	$(CARGO) test --locked --workspace

# quiche's own unit tests, on the sources with the hook in them.
upstream: deps
	quic-sidekick/quiche/run-upstream-tests.sh

clean:
	$(CARGO) clean
