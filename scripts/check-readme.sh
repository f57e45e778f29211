#!/usr/bin/env bash
# Runs every ```sh block of README.md, in order and in one shell, in an empty folder with a home of its own,
# and fails at the first command that does. Blocks that need a key, a network or a checkout are ```console
# blocks and are not run.
#
#   scripts/check-readme.sh [BINARY]        default: the chemigram on PATH
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$(command -v chemigram || true)}
if [ -z "$binary" ] || [ ! -x "$binary" ]; then
    echo "error: no chemigram to run: name one, or run \`cargo install --locked --path .\`" >&2
    exit 1
fi
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/home" "$folder/photos"
ln -s "$binary" "$folder/bin/chemigram"

awk '
    /^```sh$/ { inside = 1; printf "echo \"==> README.md:%d\"\n", NR; next }
    /^```$/ { inside = 0; next }
    inside { print }
' "$here/README.md" >"$folder/readme.sh"
blocks=$(grep -c '^echo "==> README' "$folder/readme.sh" || true)
if [ "$blocks" -eq 0 ]; then
    echo "error: README.md has no \`\`\`sh block" >&2
    exit 1
fi

cd "$folder/photos"
env -u CHEMIGRAM_LIBRARY -u CHEMIGRAM_BASE_URL -u CHEMIGRAM_PROVIDER -u CHEMIGRAM_MODEL \
    HOME="$folder/home" PATH="$folder/bin:$PATH" \
    XDG_CONFIG_HOME="$folder/home/config" XDG_DATA_HOME="$folder/home/data" XDG_CACHE_HOME="$folder/home/cache" \
    bash -euxo pipefail "$folder/readme.sh"
echo "==> README.md: $blocks blocks ran"
