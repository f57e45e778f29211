#!/usr/bin/env bash
# Runs every ```sh block of README.md and of the pages in docs/: those of a page in order and in one shell, in an
# empty folder with a home of its own, and as many pages at a time as there are processors. A page fails at its first
# command that fails. Commands that need a key, a network, a checkout or a photo of your own are in ```bash blocks and
# are not run.
#
# A ```text block that follows an ```sh block is what its commands print on standard output. It must be in the
# output: all of its words, in this order. Numbers and hashes may differ, `…` stands for anything left out, and it
# does not matter where lines are broken.
#
#   scripts/check-readme.sh [BINARY [PAGE…]]        default: the chemigram on PATH, and README.md and docs
#
# PAGE is a page, or a folder: all pages in it that have such blocks.
#
# WALK_END, if it is set, is a command that ends the walk through the README: it runs in the same folder and home, after
# the last block, and the walk fails if it fails.
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
mkdir "$folder/bin"
ln -s "$binary" "$folder/bin/chemigram"

# One line, single blanks, `#` for each number and each hash.
words() {
    tr -s '[:space:]' ' ' <"$1" | sed -E 's/\b[0-9a-f]{8,}\b/#/g; s/[0-9]+([.,][0-9]+)*/#/g; s/^ //; s/ $//'
}

# shows SAMPLE OUTPUT: fails when a part of the sample is not in the output, and says which one.
shows() {
    local output part parts
    output=$(words "$2")
    mapfile -t parts < <(words "$1" | sed 's/ *…[] ]*/\n/g; s/\[\n/\n/g')
    for part in "${parts[@]}"; do
        part=${part% }
        if [[ $output != *"$part"* ]]; then
            printf 'not in the output: %s\n' "$part" >&2
            return 1
        fi
        output=${output#*"$part"}
    done
}

check() {
    local page=$1 work=$folder/${1//\//_} sample at
    mkdir -p "$work/home" "$work/photos" "$work/output"
    # Each block becomes a group whose output goes to a file named by the line that the block begins at. Groups run
    # in the shell itself, so a later block finds what an earlier one has set.
    awk -v page="$page" -v work="$work" '
        /^```sh$/ {
            at = NR; inside = "sh"; found++
            printf "echo \"==> %s:%d\" >&2\n{\n", page, at
            next
        }
        /^```text$/ && at { inside = "text"; next }
        /^```/ {
            if (inside == "sh") printf "} >\"%s/output/%d\"\n", work, at
            else at = 0
            inside = ""
            next
        }
        inside == "sh" { print }
        inside == "text" { print >(work "/" at ".sample") }
        END { exit !found }
    ' "$here/$page" >"$work/page.sh" || { echo "error: $page has no \`\`\`sh block" >&2; return 1; }
    if [ "$page" = README.md ] && [ -n "${WALK_END:-}" ]; then
        printf '%s\n' "$WALK_END" >>"$work/page.sh"
    fi

    if ! (
        cd "$work/photos"
        env -u CHEMIGRAM_LIBRARY -u CHEMIGRAM_BASE_URL -u CHEMIGRAM_PROVIDER -u CHEMIGRAM_MODEL \
            HOME="$work/home" PATH="$folder/bin:$PATH" XDG_CONFIG_HOME="$work/home/config" \
            XDG_DATA_HOME="$work/home/data" XDG_CACHE_HOME="$work/home/cache" \
            bash -euxo pipefail "$work/page.sh"
    ); then
        echo "error: a command of $page failed; the end of what it printed:" >&2
        at=$(find "$work/output" -type f -printf '%f\n' | sort -n | tail -n 1)
        [ -z "$at" ] || tail -n 20 "$work/output/$at" >&2
        return 1
    fi

    for sample in "$work"/*.sample; do
        [ -e "$sample" ] || continue
        at=$(basename "$sample" .sample)
        if ! shows "$sample" "$work/output/$at"; then
            echo "error: the block of $page at line $at prints something else than the page shows:" >&2
            cat "$work/output/$at" >&2
            return 1
        fi
    done
    local blocks samples
    blocks=$(grep -c '^echo "==> ' "$work/page.sh")
    samples=$(find "$work" -name '*.sample' | wc -l)
    echo "==> $page: blocks run: $blocks, samples that match: $samples"
}

[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- README.md docs
pages=()
for page in "$@"; do
    if [ -d "$here/$page" ]; then
        # The longest first: it would keep the others waiting at the end.
        mapfile -t -O ${#pages[@]} pages < <(cd "$here" && grep -l '^```sh$' "$page"/*.md | xargs ls -S)
    else
        pages+=("$page")
    fi
done
if [ ${#pages[@]} -eq 1 ]; then
    check "${pages[0]}"
    exit
fi
# What a page prints stays together.
# shellcheck disable=SC2016
printf '%s\0' "${pages[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c '
    said=$("$0" "$1" "$2" 2>&1) && failed=0 || failed=1
    printf "%s\n" "$said"
    exit "$failed"
' "$0" "$binary"
