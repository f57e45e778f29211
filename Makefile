# What a person types in a checkout. `make` alone lists it.

CARGO ?= cargo

.PHONY: help demo test lint format bench soak doctor darktable nats browser rust

help:
	@echo 'make demo     build chemigram and run a whole session on the demo photograph'
	@echo 'make test     all tests, with the real darktable'
	@echo 'make lint     formatting, lints, and the licences where cargo-deny is installed'
	@echo 'make bench    the measurements behind docs/benchmarks.md'
	@echo 'make soak     half an hour of a session under everything that goes wrong (SOAK_MINUTES=3: three)'
	@echo 'make doctor   what is installed, what is missing, how long one render takes'

# All say what they find; the last one alone installs nothing.
darktable:
	@scripts/install-darktable.sh
nats:
	@scripts/install-nats.sh
browser:
	@scripts/install-browser.sh
rust:
	@scripts/check-rust.sh

demo: rust darktable
	@echo '==> building chemigram'
	$(CARGO) build --release --locked
	@echo '==> a session on the demo photograph: three directions, the offline explorer, no key'
	./target/release/chemigram demo

# Tests wait for processes, deadlines and each other, so that there is room for more of them than processors. Examples
# are built by `make lint` and `.ci/run`.
test: rust darktable nats browser
	@echo '==> all tests; those that render do so with the real darktable, and none is skipped'
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$(( 3 * $$(nproc) ))} \
		scripts/in-memory.sh $(CARGO) test --locked --tests --no-fail-fast

format: rust
	$(CARGO) fmt --all --check
	rustfmt --check --edition 2024 crates/darktable/preload/lib.rs

lint: format
	@# `--all-targets` leaves out the benches that run only by name.
	$(CARGO) clippy --all-targets --bench soak --bench pages --bench many --locked -- -D warnings
	@if command -v cargo-deny >/dev/null 2>&1; then \
		echo 'cargo deny --locked check bans licenses sources'; \
		cargo deny --locked check bans licenses sources; \
	else \
		echo '==> cargo-deny is not installed: licences and advisories were not checked'; \
	fi

bench: rust darktable
	$(CARGO) bench --locked --benches

soak: rust darktable
	$(CARGO) bench --locked --bench soak

doctor: rust
	$(CARGO) run --locked --quiet -- doctor
