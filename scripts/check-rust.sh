#!/bin/sh
# Says whether the Rust toolchain that Cargo.toml asks for is here, and how to get it. Installs nothing.
set -eu

wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")

if ! command -v cargo >/dev/null 2>&1 || ! command -v rustc >/dev/null 2>&1; then
    {
        echo "error: there is no Rust toolchain on PATH; chemigram needs Rust $wanted or later"
        if [ -x "${HOME:-}/.cargo/bin/cargo" ]; then
            echo "  one is installed in ~/.cargo/bin: run \`. ~/.cargo/env\`, then this again"
        else
            echo "  install it with rustup, which works without root: https://rustup.rs"
            echo "  then open a new terminal, or run \`. ~/.cargo/env\`, and run this again"
        fi
    } >&2
    exit 1
fi

if ! said=$(rustc --version); then
    echo "error: \`rustc --version\` failed: \`rustup show\` tells what is wrong with the toolchain" >&2
    exit 1
fi
found=$(printf '%s\n' "$said" | cut -d ' ' -f 2)
if [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "error: Rust $found is too old; chemigram needs $wanted or later: run \`rustup update stable\`" >&2
    exit 1
fi
echo "==> Rust $found"
