#!/usr/bin/env python3
"""Holds `eval compare` against real sessions whose difference is known: none, or one that was planted.

    cargo build --release --locked
    scripts/equals.py target/release/chemigram                  # 20 pairs, a few hours at most; needs darktable
    scripts/equals.py target/release/chemigram --pairs 3 --scenarios '00*'

Equals are the explorer that forgets a third of the moves against itself under another seed. What is planted is
the explorer that searches against the one that keeps a quarter of its first try. Cells are kept, so that a second call only
compares. Nothing but Python itself is needed.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

NOISY, CRIPPLED, WHOLE = "explorer/explorer-1-forgetful", "explorer/explorer-1-timid", "explorer"


def call(options, *words):
    """The JSON of an `eval` command, and its status."""
    where = ["--evaluations", options.evaluations] if options.evaluations else []
    command = [options.chemigram, "eval", *words, *where, "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: status {ended.returncode}\n{ended.stdout.decode()}")
    return json.loads(ended.stdout)


def run(options, who, seed, scenarios):
    """The name of a run of one contestant, and its sessions' recovery by scenario."""
    chosen = ["--scenarios", scenarios] if scenarios else []
    words = ["run", "--golden", options.golden, "--provider", who, "--seed", str(seed), "--jobs", str(options.jobs)]
    folder = pathlib.Path(call(options, *words, *chosen)["folder"])
    cells = json.loads((folder / "manifest.json").read_text())["cells"]
    metrics = {cell["scenario"]: cell["standing"]["measured"]["metrics"] for cell in cells}
    read = {name: of["recovery"]["value"] for name, of in metrics.items() if "recovery" in of}
    print(f"  {who} seed {seed}: {folder.name}", file=sys.stderr)
    return folder.name, {name: value for name, value in read.items() if value is not None}


def line(name, primary):
    low, high = primary["interval"] or (float("nan"), float("nan"))
    return f"{name}: {primary['mean']:+.3f} [{low:+.3f}, {high:+.3f}], p {primary['p']:.3f}: {primary['verdict']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chemigram")
    parser.add_argument("--golden", default="v1")
    parser.add_argument("--scenarios", default="", help="only those, as for `eval run`")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--evaluations", default="", help="the folder of evaluations")
    options = parser.parse_args()

    verdicts = collections.Counter()
    for pair in range(options.pairs):
        a, b = (run(options, NOISY, 2 * pair + side, options.scenarios)[0] for side in (1, 2))
        primary = call(options, "compare", a, b)["primary"]
        verdicts[primary["verdict"]] += 1
        print(line(f"equals {pair + 1}", primary), flush=True)
    print("of equals:", dict(verdicts))

    (a, crippled), (b, whole) = (run(options, who, 1, options.scenarios) for who in (CRIPPLED, WHOLE))
    primary = call(options, "compare", a, b)["primary"]
    shared = sorted(crippled.keys() & whole.keys())
    planted = sum(whole[name] - crippled[name] for name in shared) / len(shared)
    print(line("planted", primary), f"(by hand {planted:+.3f} over {len(shared)} scenarios)")

    five = ",".join(shared[:5])
    (a, _), (b, _) = (run(options, who, 1, five) for who in (CRIPPLED, WHOLE))
    said = subprocess.run(
        [options.chemigram, "eval", "compare", a, b, *(["--evaluations", options.evaluations] if options.evaluations else [])],
        stdout=subprocess.PIPE, check=False, text=True,
    )
    print("five scenarios:\n" + said.stdout)


if __name__ == "__main__":
    main()
