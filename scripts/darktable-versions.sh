#!/bin/sh
# Judges the whole vocabulary on every supported darktable and writes docs/darktable-versions.md. Needs root for
# the newer ones (see with-darktable.sh); takes about ten minutes.
set -eu
cd "$(dirname "$0")/.."

cargo build --locked --example contract_table
table=target/debug/examples/contract_table
"$table" measure
scripts/with-darktable.sh trixie -- "$table" measure
scripts/with-darktable.sh sid -- "$table" measure
"$table" page
