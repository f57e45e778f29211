#!/bin/sh
# Makes sure that the tests of the pages find Chromium, chromedriver and axe-core; installs what is missing with apt and
# npm, and says which command it runs. Does nothing where all are here.
set -eu
cd "$(dirname "$0")/.."

axe=4.14.1
folder=target/browser

say() { printf '==> %s\n' "$*"; }
has() { command -v "$1" >/dev/null 2>&1; }
as_root() {
    say "$*"
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

missing=
has chromium || missing="$missing chromium"
has chromedriver || missing="$missing chromium-driver"
has npm || [ -f "$folder/axe-$axe.min.js" ] || missing="$missing npm"
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends $missing ||
        { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing; }
fi
if [ ! -f "$folder/axe-$axe.min.js" ]; then
    mkdir -p "$folder"
    say "npm pack axe-core@$axe"
    (cd "$folder" && npm pack --silent "axe-core@$axe" >/dev/null && tar -xzf "axe-core-$axe.tgz" package/axe.min.js)
    mv "$folder/package/axe.min.js" "$folder/axe-$axe.min.js"
    rm -rf "$folder/package" "$folder/axe-core-$axe.tgz"
fi
say "$(chromium --version 2>/dev/null | head -n 1), axe-core $axe"
