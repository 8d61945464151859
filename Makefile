# Begin with `make demo`. Run `make check` before a commit, and `make test` before a merge. Each
# target installs the packages that it needs, or names them (`make deps`).
#
# All targets share one build of BoringSSL. quic-sidekick/quiche/Cargo.toml explains how.

CARGO ?= cargo
# The directory of cargo's output.
BUILT = $(or $(CARGO_TARGET_DIR),target)
export RUST_BACKTRACE ?= 1

# The parts of `make test-full`. CONTRIBUTING.md has a table of them.
PARTS = seeds programs interop vm upstream fuzz arm64 portable features packages

.PHONY: help deps build-deps build programs lab interop interop-agent rivals measure-pubsub demo demo-agent \
	demo-audio demo-satellite figures tables bench fuzz check test first test-full no-such-part \
	$(PARTS:%=test-%) \
	deb test-deb format clippy document package docs clean

help:
	@echo "make demo         upload and download a file over an emulated lossy path, with and without a Sidekick proxy (2 minutes)"
	@echo "make demo-agent   transfer a file and make a call by unmodified programs, without and with sidekick-agent (2 minutes)"
	@echo "make demo-audio   make a call over an emulated lossy path, with and without a Sidekick proxy"
	@echo "make demo-satellite  download a file over an emulated satellite, with and without a Sidekick proxy (half a minute)"
	@echo "make check        format, lints and unit tests: before a commit"
	@echo "make test         what every change needs; ends with the parts of test-full that this change needs"
	@echo "make test-full    everything; PART=vm runs one part of it, or several ($(PARTS))"
	@echo "make figures      run every experiment in virtual time (21 minutes on two cores); writes a page to $(BUILT)/figures"
	@echo "make tables       compute the simulated tables of docs/results.md, and accept the new figures (half an hour)"
	@echo "make interop      test the plugin against other HTTP/3 stacks (15 minutes); prints the tables of docs/interop-results.md"
	@echo "make interop-agent  measure unmodified programs with the agent (over an hour); prints the tables of docs/agent-results.md"
	@echo "make rivals       measure what a user would pick instead, BBR, kcptun, hysteria2 and others, beside this project (most of a day); prints docs/rivals.md"
	@echo "make measure-pubsub  compare publish and subscribe over HTTP/3 and MQTT, with and without a Sidekick proxy (half an hour)"
	@echo "make bench        compare costs with textbook code and stock quiche; writes $(BUILT)/bench.json (30 minutes)"
	@echo "make fuzz         run the fuzz targets briefly; quic-sidekick/fuzz/run RUNS runs them longer"
	@echo "make deb          build the Debian packages of the proxy and the agent for amd64 and arm64 in $(BUILT)/deb (up to half an hour)"
	@echo "make test-deb     test these packages"
	@echo "make package      pack the crates for crates.io in $(BUILT)/package"
	@echo "make docs         build the book of docs/ in book/ (mdBook, which cargo installs in $(BUILT)/tools)"
	@echo "make deps         install the packages for build and tests (as root on Debian or Ubuntu), or name them"

deps:
	@.ci/deps test

# The packages of the build alone, without the browser and the virtual machine of the tests.
build-deps:
	@.ci/deps

# Every program, for `interop` and for the parts of `test-full`.
build: build-deps
	$(CARGO) build --locked --workspace --bins

FIRST_BUILD = $(if $(wildcard $(BUILT)/debug/sidekick-lab),,@echo "The first build compiles 400 crates. It takes about three minutes on two fast cores.")

# The programs that `demo` and `demo-satellite` start, and the lab. Nothing of this links
# tokio-quiche, whose telemetry is 170 crates, or a codec for sound.
programs: build-deps
	$(FIRST_BUILD)
	$(CARGO) build --locked -p sidekick-netem -p sidekick-proxy -p h3-upload -p quinn-server \
		--bin sidekick-lab --bin sidekick-proxy \
		--bin h3-upload --bin h3-download --bin h3-upload-server --bin quinn-server

# The lab and all programs that it starts, with the simulations optimized.
lab: build-deps
	$(FIRST_BUILD)
	$(CARGO) build --locked --profile test -p sidekick-netem -p sidekick-proxy -p h3-upload -p audio -p quinn-server --bins

# The runner makes four tries at a time, which needs two otherwise idle cores. For fewer tries, set
# INTEROP="--peer quinn --case upload". `--help` and `--list` describe the options and the cases.
interop: build
	@.ci/deps interop
	$(BUILT)/debug/sidekick-interop $(INTEROP)

# This measures unmodified quic-go, quinn, Chromium, wireguard-go, ffmpeg, SRT and mosh. For fewer
# runs, set AGENT="--program chromium --near-loss 4 --seeds 1". `--help` describes the options.
interop-agent: lab
	@.ci/deps test
	@.ci/deps interop
	interop/unmodified/measure --programs $(BUILT)/debug --cache $(BUILT)/interop $(AGENT)

# Tries that $(BUILT)/interop/rivals.jsonl has already do not run again. For fewer of them, set
# RIVALS="--only bbr,plugin --rates 10 --seeds 1". `--help` describes the options.
rivals: build-deps
	@.ci/deps test
	@.ci/deps interop
	$(CARGO) build --locked --release -p h3-upload -p sidekick-proxy -p sidekick-netem -p quinn-server --bins
	interop/rivals/measure --programs $(BUILT)/release --cache $(BUILT)/interop $(RIVALS)

demo: programs
	@$(BUILT)/debug/sidekick-lab demo --out $(BUILT)/demo

# The demo writes the received sound and the plot to demo-audio in the target directory.
demo-audio: lab
	@$(BUILT)/debug/sidekick-lab demo-audio --out $(BUILT)/demo-audio

demo-agent: lab
	@$(BUILT)/debug/sidekick-lab demo-agent

demo-satellite: programs
	@$(BUILT)/debug/sidekick-lab demo-satellite

figures: lab
	$(BUILT)/debug/sidekick-lab figures --out $(BUILT)/figures

# `make test` computes some figures of each table. This computes all, and accepts those that
# changed. The next test names the first row that docs/results.md lacks. SIDEKICK_ROWS=auto,parity
# computes only the rows whose names have one of these words.
TABLES = tables:: downloads:: parity:: calls:: tune:: satellites:: packrat:: uplinks::
tables: build-deps
	SIDEKICK_SEEDS=all INSTA_UPDATE=always $(CARGO) test $(FIRST) --test sim --no-fail-fast -- $(TABLES); \
		status=$$?; sed -i '/^assertion_line/d' netem/tests/snapshots/*.snap; exit $$status

# On most machines, times vary. So each benchmark alternates with its baseline, on one processor.
bench: build-deps
	@.ci/deps bench
	$(CARGO) bench --locked -p sidekick-quack -p sidekick-parity -p sidekick-proxy --benches --no-run
	taskset -c 0 $(CARGO) bench --locked -p sidekick-quack --bench quack
	taskset -c 0 $(CARGO) bench --locked -p sidekick-quack --bench instructions
	taskset -c 0 $(CARGO) bench --locked -p sidekick-parity --bench parity
	taskset -c 0 $(CARGO) bench --locked -p sidekick-proxy --bench replay
	taskset -c 0 $(CARGO) bench --locked -p sidekick-proxy --bench keep
	taskset -c 0 $(CARGO) bench --locked -p sidekick-proxy --bench agent
	$(CARGO) bench --locked -p sidekick-proxy --bench link
	$(CARGO) bench --locked -p sidekick-proxy --bench flood
	$(CARGO) bench --locked -p quic-sidekick --bench sender
	$(CARGO) bench --locked -p quic-sidekick --bench memory
	$(CARGO) bench --locked -p sidekick-socket --features quinn --bench quinn
	$(CARGO) build --locked --release -p h3-upload -p sidekick-proxy -p sidekick-netem --bins
	quic-sidekick/benches/processor-time --programs $(BUILT)/release --json $(BUILT)/bench.json

# This measures `pubsub` over the lab's path. For fewer tries, set PUBSUB="--near-loss 4 --seeds 1".
measure-pubsub: build-deps
	$(CARGO) build --locked --release -p pubsub -p sidekick-proxy -p sidekick-netem --bins
	examples/pubsub/measure --programs $(BUILT)/release $(PUBSUB)

fuzz: build-deps
	CARGO="$(CARGO)" quic-sidekick/fuzz/run

# Packaged programs have no symbols, and do not contain the path of cargo's home directory.
PACKAGED = CARGO_PROFILE_RELEASE_STRIP=symbols RUSTFLAGS="--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=/cargo"

deb: build-deps
	@.ci/deps deb
	$(PACKAGED) $(CARGO) build --locked --release --target x86_64-unknown-linux-gnu -p sidekick-proxy
	$(PACKAGED) $(ARM64) $(CARGO) build --locked --release --target aarch64-unknown-linux-gnu -p sidekick-proxy
	@rm -rf $(BUILT)/deb $(BUILT)/man
	$(PACKAGED) $(CARGO) run --locked --release --target x86_64-unknown-linux-gnu -p sidekick-proxy --example man-pages -- $(BUILT)/man
	@for program in sidekick-proxy sidekick-agent; do \
		proxy/packaging/deb amd64 $(BUILT)/x86_64-unknown-linux-gnu/release/$$program $(BUILT)/man $(BUILT)/deb && \
		proxy/packaging/deb arm64 $(BUILT)/aarch64-unknown-linux-gnu/release/$$program $(BUILT)/man $(BUILT)/deb || exit; \
	done

# This installs the packages under a scratch directory, and nothing on this machine.
test-deb: deb
	proxy/packaging/test-deb $(BUILT)/deb

# The crates that do not depend on the hooked quiche, which cannot be published.
PUBLISHED = -p sidekick-quack -p sidekick-parity -p sidekick-protocol -p sidekick-proxy \
	-p sidekick-socket

# This publishes nothing. It checks the manifests, and lists what cargo would upload. The Debian
# packages need the licence of each crate, so this also looks for these.
package:
	$(CARGO) package --locked --no-verify --allow-dirty $(PUBLISHED)
	@proxy/packaging/copyright sidekick-proxy https://example.net >$(BUILT)/package/copyright

MDBOOK = $(or $(shell command -v mdbook),$(abspath $(BUILT))/tools/bin/mdbook)

docs:
	@test -x $(MDBOOK) || $(CARGO) install --locked --root $(BUILT)/tools mdbook@0.5.4
	$(MDBOOK) build docs

# What every change needs, and continuous integration runs. Nothing in it measures real time, so a
# busy machine only makes it slower.
test: deps
	+@.ci/test $(FIRST_TARGETS)

FIRST_TARGETS = format first clippy document

# The packages of this tier: all but other people's stacks, the fuzzers, and what links
# tokio-quiche.
FIRST = --locked --workspace --exclude sidekick-interop --exclude stock-quiche-server \
	--exclude sidekick-fuzz --exclude tokio-quiche-client

# Programs and tests in one selection have the same features of dependencies, so nothing is compiled
# twice. Test programs in real time have `test = false` in their manifests.
first: build-deps
	$(CARGO) build --profile test $(FIRST) --bins --tests
	$(CARGO) test $(FIRST) --no-fail-fast -- --skip full::

# The quick checks of a commit.
check: format clippy
	$(CARGO) test $(FIRST) --exclude quiche --lib --bins

format: build-deps
	$(CARGO) fmt --all --check

# `--all-targets` leaves out the tests that `cargo test` does not run by itself.
clippy: build-deps
	$(CARGO) clippy $(FIRST) --all-targets --test '*' -- -D warnings

# The examples have the dependencies of the tests. So cargo selects the features that `clippy`
# selects, and compiles almost no package again.
document: build-deps
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(FIRST) --no-deps --exclude quiche --lib --examples

# Everything that there is: first what every change needs, then the parts. PART chooses parts.
test-full: $(if $(filter-out $(PARTS),$(PART)),no-such-part,deps)
	+@.ci/test $(if $(PART),$(PART:%=test-%),$(FIRST_TARGETS) $(PARTS:%=test-%))

no-such-part:
	@echo "There is no part \"$(filter-out $(PARTS),$(PART))\": PART names some of $(PARTS)" >&2; exit 1

# The simulated tests on all their seeds.
test-seeds:
	SIDEKICK_SEEDS=all $(CARGO) test $(FIRST) --test sim --no-fail-fast

# The programs in network namespaces, in real time. The proxy is optimized, because copies must
# arrive in time.
PROGRAM_TESTS = --test netns --test programs --test end_to_end --test loopback
test-programs: build-deps
	$(CARGO) build --profile test $(FIRST) $(OPTIMIZED_PROXY) --lib --bins $(PROGRAM_TESTS)
	$(CARGO) build --profile test --locked -p sidekick-interop --bin interop-client
	$(CARGO) test $(FIRST) --no-fail-fast $(OPTIMIZED_PROXY) $(PROGRAM_TESTS)

OPTIMIZED_PROXY = --config profile.test.package.sidekick-proxy.opt-level=1

# Other people's HTTP/3 stacks that cargo builds, and the examples of tokio-quiche and quiche.
test-interop: build-deps
	$(CARGO) build --profile test --locked --workspace --bins --test runner --test applications
	$(CARGO) test --locked --workspace --no-fail-fast --test runner --test applications
	$(CARGO) test --locked -p sidekick-interop -p stock-quiche-server -p tokio-quiche-client --no-fail-fast --bins
	$(CARGO) test --locked -p quic-sidekick --features tokio-quiche --no-fail-fast --lib tokio
	$(CARGO) test --locked -p quic-sidekick --features tokio-quiche --no-fail-fast --doc tokio

# The lab over the kernel's queueing disciplines, in a virtual machine, because the kernel of this
# machine may lack them. The limit of an hour is only there for hangs.
test-vm: lab
	@mkdir -p $(BUILT)/vm
	netem/vm/run --programs $(abspath $(BUILT))/debug --timeout 3600 <netem/vm/paper >$(BUILT)/vm/records.jsonl
	@$(BUILT)/debug/sidekick-lab compare $(BUILT)/vm/records.jsonl
	netem/vm/run --programs $(abspath $(BUILT))/debug --timeout 3600 <netem/vm/links >$(BUILT)/vm/links.jsonl
	SIDEKICK_RECORDS=$(abspath $(BUILT))/vm/links.jsonl $(CARGO) test $(FIRST) --test vm

# quiche's own unit tests, with the hook in its sources.
test-upstream: build-deps
	quic-sidekick/quiche/run-upstream-tests.sh

test-fuzz: fuzz

# Debian's compiler for 64-bit ARM. Its programs run with the C library of libc6:arm64. With the C
# library of libc6-arm64-cross, qemu 7.2 hangs when a program starts its first thread.
ARM64 = RUSTC=/usr/bin/rustc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(EMULATED)"
EMULATED = qemu-aarch64-static -L /

# This tests what depends on the processor: the vector code of the quACK and the parity with all of
# their tests, and the proxy from captured frames to quACKs. The protocol is safe code, whose tests
# run natively. Those of the proxy start programs, which needs binfmt_misc, and qemu refuses the
# packet sockets' options for merged and outgoing packets. `replay` itself runs natively, and starts
# only the proxy under qemu.
ARM64_TARGET = --target aarch64-unknown-linux-gnu
test-arm64: build-deps
	@.ci/deps arm64
	$(ARM64) $(CARGO) build --locked $(ARM64_TARGET) -p sidekick-self-check
	$(EMULATED) $(BUILT)/aarch64-unknown-linux-gnu/debug/sidekick-self-check 2000
	$(ARM64) $(CARGO) test --locked $(ARM64_TARGET) -p sidekick-quack -p sidekick-parity \
		--lib --test allocation --test model
	$(ARM64) $(CARGO) build --locked $(ARM64_TARGET) -p sidekick-proxy --bin sidekick-proxy
	SIDEKICK_PROXY="$(EMULATED) $(abspath $(BUILT))/aarch64-unknown-linux-gnu/debug/sidekick-proxy" \
		$(CARGO) test --locked --workspace --test cli replay

# Debian's compiler again. Debian has the source of its standard library, but no builds for these
# targets. So cargo builds it for both. That is an unstable option, which RUSTC_BOOTSTRAP permits.
PORTABLE = RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 \
	CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc \
	CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld-22
WINDOWS = -Z build-std=std,panic_abort --target x86_64-pc-windows-gnu
PORTABLE_CRATES = $(WINDOWS) --target wasm32-unknown-unknown \
	-p sidekick-quack -p sidekick-parity -p sidekick-protocol -p sidekick-self-check

# The self check calls no function of its host. A failure in it is a trap, which ends node with an
# error. The plugin is only compiled for Windows, and not linked. It lacks BoringSSL, whose build
# needs Windows.
test-portable: build-deps
	@.ci/deps portable
	$(PORTABLE) $(CARGO) build --locked $(PORTABLE_CRATES)
	$(PORTABLE) $(CARGO) build --locked $(WINDOWS) -p quic-sidekick --no-default-features --lib
	node -e 'WebAssembly.instantiate(require("fs").readFileSync(process.argv[1])).then(({ instance }) => process.exit(instance.exports.main(0, 0)))' \
		$(BUILT)/wasm32-unknown-unknown/debug/sidekick-self-check.wasm

# The combinations of features that a user can choose, and the packages that `clippy` leaves out.
test-features: build-deps
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace $(PROGRAM_TESTS) -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --lib -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --lib --features tokio-quiche -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --no-default-features --lib -- -D warnings
	$(CARGO) clippy --locked -p quic-sidekick --no-default-features --features qlog --lib -- -D warnings
	$(CARGO) clippy --locked -p sidekick-quack --no-default-features --lib -- -D warnings
	$(CARGO) clippy --locked -p sidekick-protocol --lib -- -D warnings
	$(CARGO) clippy --locked -p sidekick-protocol --lib --features ring -- -D warnings
	$(CARGO) clippy --locked -p sidekick-parity --lib -- -D warnings
	$(CARGO) clippy --locked -p sidekick-socket --lib -- -D warnings
	$(CARGO) clippy --locked -p sidekick-socket --all-features --all-targets -- -D warnings
	$(CARGO) clippy --locked -p quiche@0.30.100 --lib --features qlog,internal,custom-client-dcid,ffi,fuzzing,gcongestion -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace --exclude quiche --lib --examples

test-packages: package test-deb

clean:
	$(CARGO) clean
