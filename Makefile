# Builds and checks the project. `.ci/run` runs the same targets.

CARGO := tools/cargo
# Obsolete algorithms, which are only measured, and association ports are off by default (ARCHITECTURE.md); tests switch them on.
LAB := --features dunlin-cli/legacy-lab,dunlin-cli/association-ports,dunlin-lab/legacy-lab,dunlin-lab/association-ports
DENY_FIRMWARE := tools/deny --config deny.toml --manifest-path firmware/Cargo.toml
DENY_RACE := tools/deny --config deny.toml --manifest-path race/Cargo.toml
DOCKER ?= docker
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test check lint format doc docs reference deny audit fuzz soak bare-metal targets firmware deb image race

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

run: ## Prepare the machine, build, and start `dunlin-lab up` on loopback (Ctrl-C stops it)
	@tools/setup run
	$(CARGO) build --profile quick --locked -p dunlin-cli -p dunlin-lab --bins --no-default-features --features dunlin-cli/default
	target/quick/dunlin-lab up

test: ## Install the peers and tools that the tests need, then run every test
	@tools/setup test
	@status=0; $(CARGO) test --workspace $(LAB) --no-fail-fast || status=$$?; tools/setup missing; exit $$status

# The tests of the engine that need neither root nor another program.
ENGINE_TESTS := cache conformance early_data handshake identity legacy psk resumption rfc8448 rsa tls12 wiped
check: ## Check a change to the engine in under three minutes: house rules, clippy and its tests, without root or peers
	$(CARGO) fmt --all --check
	tools/house-rules
	tools/layers
	$(CARGO) clippy -p dunlin --all-targets -- -D warnings
	$(CARGO) test -p dunlin -p dunlin-tests --features dunlin/association-ports --lib $(ENGINE_TESTS:%=--test %) --no-fail-fast

lint: ## Check formatting, clippy and house rules; a warning is an error
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path firmware/Cargo.toml --check
	$(CARGO) fmt --manifest-path race/Cargo.toml --check
	$(CARGO) clippy --workspace $(LAB) --all-targets -- -D warnings
	$(CARGO) clippy -p dunlin-cli -p dunlin-lab --all-targets -- -D warnings
	cd firmware && ../tools/cargo clippy --release --locked --target thumbv7em-none-eabihf -- -D warnings
	cd race && ../tools/cargo clippy --locked --no-default-features -- -D warnings
	tools/house-rules
	tools/layers

format: ## Format every Rust file
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path firmware/Cargo.toml
	$(CARGO) fmt --manifest-path race/Cargo.toml

doc: ## Build the documentation; a warning is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --lib

docs: ## Build the documentation site in target/docs with mdBook, and check its links
	@tools/setup docs
	tools/docs

reference: ## Write docs/command-line.md and docs/configuration-keys.md from the definitions in the code
	DUNLIN_WRITE_REFERENCE=1 $(CARGO) test -p dunlin-cli $(LAB) --bin dunlin reference

deny: ## Check licences, sources and banned crates of all dependencies
	tools/deny check -A unused-wrapper bans licenses sources
	$(DENY_FIRMWARE) check -A unused-wrapper bans licenses sources
	$(DENY_RACE) check -A unused-wrapper bans licenses sources

audit: ## Check the dependencies for known vulnerabilities (fetches the RustSec database)
	tools/deny check advisories
	$(DENY_FIRMWARE) check advisories
	$(DENY_RACE) check advisories

fuzz: ## Run every fuzz target for FUZZ_SECONDS (60), with nightly Rust and cargo-fuzz
	@tools/setup build
	tools/fuzz

soak: ## Run what is too large for `make test`: 10,000 random virtual networks, 100,000 histories of what is known of identities, servers with 100,000 associations and with 10,000 hostile ones, two gateways with 10,000 devices, one at its limit of 9,000, 200 kills of a registry, one with 1,000,000 DIDs
	DUNLIN_SEEDS=10000 $(CARGO) test -p dunlin-sim --test seeds -- --nocapture
	DUNLIN_SEEDS=10000 $(CARGO) test -p dunlin-sim --test moving -- --nocapture
	DUNLIN_ASSOCIATIONS=100000 DUNLIN_HOSTILE=10000 $(CARGO) test --workspace $(LAB) --test idle -- --nocapture
	DUNLIN_KILLS=200 $(CARGO) test -p dunlin-registry --test crash
	DUNLIN_DIDS=1000000 DUNLIN_SERVED=100000 DUNLIN_REQUESTS=20000 $(CARGO) test --release -p dunlin-registry --test scale
	DUNLIN_HISTORIES=100000 $(CARGO) test --release --workspace $(LAB) --test identity -- --nocapture histories::
	DUNLIN_FLEET=100000 $(CARGO) test --workspace $(LAB) --test connections -- --nocapture fleet::
	DUNLIN_FLEET=10000 $(CARGO) test --workspace $(LAB) --test connections -- --nocapture nodes::
	DUNLIN_FLEET=9000 $(CARGO) test --workspace $(LAB) --test connections -- --nocapture places::

bare-metal: ## Build the engine, RustCrypto, compression and an example for a microcontroller; the engine also without atomics
	$(CARGO) build --release --locked -p dunlin -p dunlin-rustcrypto -p dunlin-example-no-std \
		--features dunlin/compression --target thumbv7em-none-eabihf
	CARGO_TARGET_THUMBV6M_NONE_EABI_RUSTFLAGS="--cfg portable_atomic_unsafe_assume_single_core" \
		$(CARGO) build --release --locked -p dunlin --no-default-features --target thumbv6m-none-eabi

# The crates without C code. The stores are for systems of the Unix family.
PORTABLE := -p dunlin -p dunlin-coap -p dunlin-identity -p dunlin-legacy -p dunlin-rustcrypto -p dunlin-tokio
targets: ## Check what needs no C compiler for macOS, for Windows, and for a microcontroller without atomics
	$(CARGO) check --locked $(PORTABLE) -p dunlin-store --target aarch64-apple-darwin
	$(CARGO) check --locked $(PORTABLE) --target x86_64-pc-windows-msvc
	CARGO_TARGET_THUMBV6M_NONE_EABI_RUSTFLAGS="--cfg portable_atomic_unsafe_assume_single_core" \
		$(CARGO) check --locked -p dunlin-rustcrypto --no-default-features --features ml-kem,p521 --target thumbv6m-none-eabi

firmware: ## Run the firmware in QEMU and write its measurements to docs/firmware.md
	@tools/setup test
	DUNLIN_FIRMWARE_TABLES=1 $(CARGO) test -p dunlin-cli --test firmware

deb: ## Make the Debian packages dunlin and dunlin-lab in target/deb
	@tools/setup build
	$(CARGO) build --profile dist --locked -p dunlin-cli
	$(CARGO) build --profile dist --locked -p dunlin-lab
	tools/deb target/dist/dunlin target/deb
	tools/deb target/dist/dunlin-lab target/deb

image: ## Make a container image FROM scratch with a static binary (needs musl-tools, and docker or DOCKER=podman)
	@command -v musl-gcc >/dev/null || { echo "make image: musl-gcc is missing: install musl-tools" >&2; exit 1; }
	rustup target add x86_64-unknown-linux-musl
	CC_x86_64_unknown_linux_musl=musl-gcc $(CARGO) build --profile dist --locked -p dunlin-cli --target x86_64-unknown-linux-musl
	tar -c -C $(CURDIR)/target/x86_64-unknown-linux-musl/dist dunlin -C $(CURDIR)/packaging Containerfile | \
		$(DOCKER) build -t dunlin -f Containerfile -

race: ## Compare with rustls and OpenSSL in memory: time, heap, instructions (docs/performance.md)
	@tools/setup race
	cd race && ../tools/cargo run --release --locked
