#!/usr/bin/env python3
"""Compares the benchmarks of two checkouts, in turns, so that a change of the machine's speed meets both.

    cargo build --release --locked --benches    # in both
    scripts/compare-builds.py OLD NEW 15        # folders of the checkouts, rounds
    scripts/compare-builds.py OLD NEW 3 rendering kept
    scripts/compare-builds.py OLD NEW 5 demo        # or evaluation: with an empty cache, and again
    scripts/compare-builds.py OLD NEW 40 starts

Without further words it runs the benchmarks that need no darktable, and `chemigram --help` twenty times. Each line is
one figure that both print: the medians, and the median of the ratios of new to old within a round. It ends with 1 if
one is above 1.03.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from statistics import median

SLOWER = 1.03
UNITS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
FIGURE = re.compile(r"^(\S.*?)\s{2,}([\d.]+) ?(ns|µs|ms|s)\b")
TIME = re.compile(r"([\d.]+) ?(ns|µs|ms|s)")
WHOLE = {"demo": ["demo", "--dir"], "evaluation": ["eval", "run", "--golden", "v1", "--provider", "explorer"]}


def binary(root, bench):
    found = [p for p in (root / "target/release/deps").glob(f"{bench}-*") if not p.suffix]
    if not found:
        sys.exit(f"no benchmark {bench} in {root}: run `cargo build --release --locked --benches` there")
    return max(found, key=lambda p: p.stat().st_mtime)


def figures(root, bench, words):
    """What a benchmark prints, in milliseconds by name."""
    began = time.monotonic()
    command = [binary(root, bench), "--bench", *words]
    text = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    took = (time.monotonic() - began) * 1e3
    found = {}
    head = []
    for line in text.splitlines():
        if match := FIGURE.match(line):
            found[match[1]] = float(match[2]) * UNITS[match[3]]
        # In a table: the two first cells of a row, and the head of the column.
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        else:
            for name, cell in zip(head, cells):
                # Nothing has a ratio to no time at all.
                if (match := TIME.fullmatch(cell)) and float(match[1]) > 0:
                    found[f"{cells[0]}, {cells[1]}, {name}"] = float(match[1]) * UNITS[match[2]]
    # Only a benchmark without figures is timed from outside: the others may measure longer in one of the builds.
    found = found or {"in all": took}
    return {" ".join([bench, *words]) + ": " + name: value for name, value in found.items()}


def starts(roots, order):
    """Twenty starts of each build, one of each in turn, so that slow moments of the machine meet both."""
    took = [0.0, 0.0]
    for _ in range(20):
        for at in order:
            began = time.monotonic()
            subprocess.run([roots[at] / "target/release/chemigram", "--help"], check=True, stdout=subprocess.DEVNULL)
            took[at] += (time.monotonic() - began) * 1e3
    return [{"twenty starts": ms} for ms in took]


def whole(root, name):
    """A command for which nothing is prepared, and the same command once more; in milliseconds."""
    took = {}
    with tempfile.TemporaryDirectory() as home:
        folders = {f"XDG_{of}_HOME": f"{home}/{of.lower()}" for of in ["CACHE", "CONFIG", "DATA", "STATE"]}
        for when in ["with an empty cache", "again"]:
            command = [root / "target/release/chemigram", *WHOLE[name]]
            if name == "demo":
                command.append(f"{home}/{when}")
            began = time.monotonic()
            subprocess.run(command, cwd=root, check=True, capture_output=True, env=os.environ | {"HOME": home} | folders)
            took[f"{name}, {when}"] = (time.monotonic() - began) * 1e3
    return took


def main():
    roots = [pathlib.Path(root).resolve() for root in sys.argv[1:3]]
    rounds, named = int(sys.argv[3]), sys.argv[4:]
    measured = {}
    for number in range(rounds):
        # Neither build is always the first.
        order = [0, 1] if number % 2 == 0 else [1, 0]
        both = starts(roots, order) if named in ([], ["starts"]) else [{}, {}]
        for at in order:
            if named and named[0] in WHOLE:
                both[at] = whole(roots[at], named[0])
            elif named and named != ["starts"]:
                both[at] = figures(roots[at], named[0], named[1:])
            elif not named:
                for bench in ["edit_engine", "session"]:
                    both[at] |= figures(roots[at], bench, [])
        for name in both[0].keys() & both[1].keys():
            measured.setdefault(name, []).append((both[0][name], both[1][name]))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print("| what | old, ms | new, ms | new to old |\n|---|---:|---:|---:|")
    slower = False
    for name, pairs in sorted(measured.items()):
        old, new = (median(column) for column in zip(*pairs))
        ratio = median(after / before for before, after in pairs)
        slower |= ratio > SLOWER
        print(f"| {name} | {old:.3g} | {new:.3g} | {ratio:.2f} |")
    sys.exit(slower)


if __name__ == "__main__":
    main()
