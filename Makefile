# What people and CI run. Everything is built under target/ (or CARGO_TARGET_DIR).
.PHONY: help demo demo-s3 test test-ceph test-clients test-conformance bench experiments soak fmt lint docs deps clean

help:
	@echo "make demo   see the gain: a slow back end, a cached volume, and hits that are split (half a minute)"
	@echo "make demo-s3  an S3 store behind a slow link, the gateway before it, and what boto3 sees (some seconds)"
	@echo "make test   everything that CI runs; the last line counts what passed, failed and was skipped"
	@echo "make test-ceph | test-clients | test-conformance  the gateway before Ceph RGW (root); Spark; other people's suites (some minutes each)"
	@echo "make bench  every benchmark in bench/, against its peers (nearly two hours)"
	@echo "make experiments  every experiment in full; writes docs/results"
	@echo "make soak   an hour of load: memory and descriptors must not grow; a write-back log crashed 100,000 times, and as often below a cache"
	@echo "make fmt | lint | docs | deps | clean"

demo:
	@scripts/deps demo
	cargo build --release --locked -p forebay-cli
	@$${CARGO_TARGET_DIR:-target}/release/forebay demo

demo-s3:
	@scripts/deps demo
	cargo build --release --locked -p forebay-cli
	cargo build --locked -p forebay-embedded-store
	@FOREBAY=$${CARGO_TARGET_DIR:-target}/release/forebay scripts/demo-s3

test: deps
	@scripts/test

test-ceph test-clients test-conformance: deps
	@scripts/deps $(@:test-%=%)
	cargo build --locked -p forebay-cli
	@tests/outside/run --of $(@:test-%=%)

bench: deps
	@scripts/bench

experiments:
	cargo build --release --locked -p forebay-cli
	@scripts/experiments $${CARGO_TARGET_DIR:-target}/release/forebay docs/results

soak: deps
	cargo run --release --locked -p forebay-sim -- --log --count 4000
	cargo run --release --locked -p forebay-sim -- --back --count 4000
	@bench/volume --only growth --minutes 60

fmt:
	cargo fmt --all

lint:
	cargo clippy --workspace --all-targets --locked -- -D warnings

docs:
	scripts/reference

deps:
	@scripts/deps test

clean:
	cargo clean
