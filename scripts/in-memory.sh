#!/usr/bin/env bash
# Runs a command whose temporary files lie in memory, if there is room for them: tests make and remove tens of thousands
# of files, which takes longer on a disk. A TMPDIR that is set stays.
#
#   scripts/in-memory.sh COMMAND…
set -euo pipefail

if [ -z "${TMPDIR:-}" ] && folder=$(mktemp -d /dev/shm/chemigram.XXXXXX 2>/dev/null); then
    trap 'rm -rf "$folder"' EXIT
    # In containers this file system is often small, or runs no programs.
    printf '#!/bin/sh\n' >"$folder/try"
    chmod +x "$folder/try"
    if [ "$(df -k --output=avail "$folder" | tail -n 1)" -ge 4000000 ] && "$folder/try" 2>/dev/null; then
        export TMPDIR=$folder
    fi
fi
"$@"
