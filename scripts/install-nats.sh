#!/bin/sh
# Makes sure that the tests of batches on many machines find a NATS server, and libfaketime, which gives a worker another
# clock; installs them with apt where they are missing, and says which command it runs. Does not start the server.
set -eu

say() { printf '==> %s\n' "$*"; }
as_root() {
    say "$*"
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}
server() {
    for path in "$(command -v nats-server 2>/dev/null || true)" /usr/sbin/nats-server /usr/local/bin/nats-server; do
        if [ -n "$path" ] && [ -x "$path" ]; then
            printf '%s\n' "$path"
            return
        fi
    done
}

clock() { ls /usr/lib/*/faketime/libfaketimeMT.so.1 2>/dev/null; }
install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends "$@" ||
        { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"; }
}

if [ -z "$(clock)" ]; then
    install libfaketime
fi
if [ -z "$(server)" ]; then
    install nats-server
    # The tests start servers of their own; the package's is not needed.
    if command -v systemctl >/dev/null 2>&1 && systemctl is-enabled --quiet nats-server 2>/dev/null; then
        say 'the package has started a server of its own; `systemctl disable --now nats-server` stops it'
    fi
fi
say "$("$(server)" --version)"
