#!/usr/bin/env bash
# Makes the pictures of docs/guide.md again, by the commands that are in it.
#
#   scripts/guide-pictures.sh [BINARY]        default: the chemigram on PATH
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
binary=${1:-$(command -v chemigram)}
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$binary" "$folder/bin/chemigram"
export HOME=$folder PATH=$folder/bin:$PATH XDG_DATA_HOME=$folder/data XDG_CONFIG_HOME=$folder/config \
    XDG_CACHE_HOME=$folder/cache
cd "$folder"
awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$here/docs/guide.md" >commands.sh
bash -euo pipefail commands.sh
for picture in before both mine; do
    cp "$picture.jpg" "$here/docs/images/guide-$picture.jpg"
done
