#!/bin/sh
# Makes sure that darktable-cli, a C compiler and make are here; installs what is missing with the system's own
# package manager, and says which command it runs. Does nothing where all are here.
set -eu

oldest=4.2.1
bundle=/Applications/darktable.app/Contents/MacOS/darktable-cli

say() { printf '==> %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root: as it is, or through sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        say "$*"
        "$@"
    elif has sudo; then
        say "sudo $*"
        sudo "$@"
    else
        die "this needs root: run as root, or install sudo: $*"
    fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"; }

# The package lists are fetched only when they are missing a package, or when they were too old to install it.
apt_install() {
    for package in "$@"; do
        if ! apt-cache show "$package" >/dev/null 2>&1; then
            apt update
            break
        fi
    done
    if ! apt install --yes --no-install-recommends "$@"; then
        apt update
        apt install --yes --no-install-recommends "$@"
    fi
}

# The packages that hold what is missing; the first argument is the name of the C compiler's.
packages() {
    compiler=$1
    shift
    for what in "$@"; do
        case $what in cc) echo "$compiler" ;; *) echo "$what" ;; esac
    done
}

# Installs what is named: darktable, cc, make.
install() {
    if has apt-get; then
        apt_install $(packages 'gcc libc6-dev' "$@")
    elif has dnf; then
        as_root dnf install -y $(packages gcc "$@")
    elif has pacman; then
        as_root pacman -S --needed --noconfirm $(packages gcc "$@")
    elif has brew; then
        for what in "$@"; do
            [ "$what" = darktable ] || die "there is no $what: run \`xcode-select --install\`, then this again"
        done
        say "brew install --cask darktable"
        brew install --cask darktable
    else
        die "no apt-get, dnf, pacman or brew here: install $* by hand (darktable: https://www.darktable.org/install/)"
    fi
}

# The darktable-cli that chemigram will use: the one that is named, else the first on PATH.
cli=${CHEMIGRAM_DARKTABLE_CLI:-darktable-cli}

missing=
if ! has "$cli"; then
    if [ -n "${CHEMIGRAM_DARKTABLE_CLI:-}" ]; then
        die "CHEMIGRAM_DARKTABLE_CLI names $cli, which is not a program"
    fi
    [ -x "$bundle" ] || missing="darktable"
fi
has cc || missing="$missing cc"
has make || missing="$missing make"

if [ -n "$missing" ]; then
    say "missing:$(printf ' %s' $missing)"
    install $missing
fi

if ! has "$cli"; then
    if [ -x "$bundle" ]; then
        die "darktable is installed, but not on PATH. Run \`export CHEMIGRAM_DARKTABLE_CLI=$bundle\`, then this again"
    fi
    die "darktable was installed, but there is no darktable-cli on PATH"
fi

# `this is darktable-cli 4.2.1` up to 4.x, `darktable 5.0.1` after.
version=$("$cli" --version 2>/dev/null | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1 || true)
[ -n "$version" ] || die "$cli --version does not tell a version"
if [ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n 1)" != "$oldest" ]; then
    die "darktable $version is too old, $oldest is the oldest that works: https://www.darktable.org/install/"
fi
say "darktable $version: $(command -v "$cli")"
