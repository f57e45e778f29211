#!/usr/bin/env bash
# Runs a command with the darktable of another Debian release, on any Linux with debootstrap.
#
#   sudo scripts/with-darktable.sh trixie|sid [--] COMMAND…
#
# The first call makes a small root of that release with its darktable, in the folder that CHEMIGRAM_CHROOTS
# names (default: ~/.cache/chemigram/darktable-chroots); trixie takes about 0.7 GB, sid 1.2 GB. To renew one,
# delete its folder. COMMAND runs outside of it, with CHEMIGRAM_DARKTABLE_CLI naming a wrapper that runs that
# darktable-cli inside. Nothing stays mounted, however the command ends: the mounts live in a namespace of
# their own, which ends with its last process.
set -euo pipefail

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

release=${1:-}
case $release in
trixie | sid) shift ;;
*) die "usage: scripts/with-darktable.sh trixie|sid [--] COMMAND…" ;;
esac
if [ "${1:-}" = -- ]; then shift; fi
[ $# -gt 0 ] || die "no command to run: scripts/with-darktable.sh $release cargo test --test pixels render::"
[ "$(id -u)" -eq 0 ] || die "this needs root: run it through sudo, with -E to keep the environment"

PATH=$PATH:/usr/sbin:/sbin
for tool in debootstrap unshare chroot mount flock; do
    command -v "$tool" >/dev/null || die "there is no $tool: install it with \`apt-get install debootstrap util-linux\`"
done

# The mounts below are made in a namespace of their own.
if [ -z "${CHEMIGRAM_IN_NAMESPACE:-}" ]; then
    exec env CHEMIGRAM_IN_NAMESPACE=1 unshare --mount --propagation private -- "$0" "$release" -- "$@"
fi
unset CHEMIGRAM_IN_NAMESPACE

chroots=$(realpath -m "${CHEMIGRAM_CHROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/chemigram/darktable-chroots}")
folder=$chroots/$release
root=$folder/root
wrapper=$folder/darktable-cli
mkdir -p "$folder"

bind() {
    mkdir -p "$root$1"
    mount --bind "$1" "$root$1"
}

# Two first calls at once: the second one waits, and finds what the first one made.
exec 9>"$folder/lock"
flock 9
if [ ! -e "$folder/ready" ]; then
    say "making a root of Debian $release with darktable in $root (once; some minutes)"
    rm -rf "$root"
    if ! debootstrap --variant=minbase "$release" "$root" >"$folder/log" 2>&1; then
        tail -n 20 "$folder/log" >&2
        die "debootstrap failed: $folder/log"
    fi
    bind /proc
    bind /dev
    # Packages that start services must not.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    if ! env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive HOME=/root \
        chroot "$root" apt-get install --yes --no-install-recommends darktable >>"$folder/log" 2>&1; then
        tail -n 20 "$folder/log" >&2
        die "darktable could not be installed: $folder/log"
    fi
    chroot "$root" apt-get clean
    touch "$folder/ready"
else
    bind /proc
    bind /dev
fi
# The working directory goes along, and the environment and the process stay the same ones, so that limits,
# thread settings and kills reach darktable.
cat >"$wrapper.new" <<WRAPPER
#!/bin/sh
if [ ! -e '$root/proc/self' ]; then
    echo 'error: run this through scripts/with-darktable.sh $release' >&2
    exit 127
fi
exec '$(command -v chroot)' '$root' /bin/sh -c 'cd "\$1" && shift && exec /usr/bin/darktable-cli "\$@"' sh "\$PWD" "\$@"
WRAPPER
chmod +x "$wrapper.new"
mv "$wrapper.new" "$wrapper"
flock -u 9
exec 9>&-

# Paths are the same inside and outside: the temporary folder, the home folder, where the command runs, and
# the folders that the environment names.
for shared in /tmp "${TMPDIR:-}" "$HOME" "$PWD" "${CHEMIGRAM_LIBRARY:-}" "${XDG_CACHE_HOME:-}" "${XDG_DATA_HOME:-}"; do
    if [ -n "$shared" ] && [ -d "$shared" ]; then
        shared=$(realpath "$shared")
        case $shared in
        / | /usr | /usr/* | /etc | /etc/* | /lib* | /bin | /sbin) ;;
        *) bind "$shared" ;;
        esac
    fi
done

say "$(chroot "$root" /usr/bin/darktable-cli --version | head -n 1), of Debian $release"
CHEMIGRAM_DARKTABLE_CLI=$wrapper exec "$@"
