#!/usr/bin/env python3
"""Works out tests/eval/statistics.json: random tables, and what scipy and statsmodels say about them.

    python3 -m venv /tmp/statistics
    /tmp/statistics/bin/pip install numpy==2.4.6 scipy==1.17.1 statsmodels==0.15.0
    /tmp/statistics/bin/python scripts/statistics-cases.py            # writes the file
    /tmp/statistics/bin/python scripts/statistics-cases.py --check    # or compares it with what it would write

A test of src/eval/stats.rs reads the file and must agree to 1e-9. Nothing else needs Python.
"""

import json
import math
import pathlib
import random
import sys

import numpy as np
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint

FILE = pathlib.Path(__file__).parent.parent / "tests" / "eval" / "statistics.json"
ALPHA, POWER = 0.05, 0.8
# The largest table whose signs are enumerated with scipy.
ENUMERATED = 14


def sign_flip(differences):
    """The exact two-sided p of all sign flips, by scipy."""
    result = stats.permutation_test(
        (np.array(differences), np.zeros(len(differences))),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    return float(result.pvalue)


def sign_flip_of_eighths(differences):
    """The same for multiples of 1/8, by counting sums of whole numbers: exact for any length."""
    eighths = [round(8 * d) for d in differences]
    counts = {0: 1}
    for e in eighths:
        following = {}
        for total, count in counts.items():
            for signed in (e, -e):
                following[total + signed] = following.get(total + signed, 0) + count
        counts = following
    observed = abs(sum(eighths))
    return sum(c for total, c in counts.items() if abs(total) >= observed) / 2 ** len(eighths)


def detectable(differences):
    """The true mean difference that a two-sided paired t test finds with the wanted power."""
    n, sd = len(differences), float(np.std(differences, ddof=1))
    critical = stats.t.ppf(1 - ALPHA / 2, n - 1)

    def power(effect):
        shift = effect * math.sqrt(n)
        # scipy gives no number for a far tail, which is nothing here.
        return 1 - stats.nct.cdf(critical, n - 1, shift) + np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))

    end = 0.1
    while power(end) < POWER:
        end *= 1.5
    effect = optimize.brentq(lambda e: power(e) - POWER, 0.01, end, xtol=1e-14, rtol=1e-14)
    told = TTestPower().solve_power(nobs=n, alpha=ALPHA, power=POWER, alternative="two-sided")
    assert abs(effect - told) < 1e-5 * effect, (n, effect, told)
    return effect * sd


def table(rng, eighths):
    if eighths:
        n = rng.randint(2, 40)
        spread = rng.choice([2, 8, 40])
        differences = [rng.randint(-spread, spread + 2) / 8 for _ in range(n)]
        if len(set(differences)) == 1:
            differences[0] += 0.125
        p = sign_flip_of_eighths(differences)
        if n <= ENUMERATED:
            assert abs(p - sign_flip(differences)) < 1e-12, (differences, p)
    else:
        n = rng.randint(2, ENUMERATED)
        scale = 10 ** rng.uniform(-3, 3)
        shift = rng.uniform(-1, 1)
        differences = [scale * rng.gauss(shift, 1) for _ in range(n)]
        p = sign_flip(differences)
    interval = stats.ttest_1samp(differences, 0).confidence_interval(1 - ALPHA)
    return {
        "differences": differences,
        "mean": float(np.mean(differences)),
        "interval": [float(interval.low), float(interval.high)],
        "sign_flip": p,
        "detectable": detectable(differences),
    }


def share(rng):
    of = rng.randint(1, 60)
    successes = rng.randint(0, of)
    low, high = proportion_confint(successes, of, alpha=ALPHA, method="wilson")
    return {"successes": successes, "of": of, "interval": [float(low), float(high)]}


def discordant(rng):
    a, b = rng.randint(0, 25), rng.randint(0, 25)
    return {"only_a": a, "only_b": b, "p": float(mcnemar([[5, a], [b, 5]], exact=True).pvalue)}


def family(rng):
    ps = [rng.choice([rng.random(), rng.random() ** 4]) for _ in range(rng.randint(1, 12))]
    return {"ps": ps, "holm": [float(p) for p in multipletests(ps, method="holm")[1]]}


def pairs(rng):
    n = rng.randint(3, 30)
    x = [rng.randint(1, 5) for _ in range(n)]
    if len(set(x)) == 1:
        x[0] = 5 if x[0] < 5 else 1
    y = [v + rng.gauss(0, rng.choice([0.5, 2, 8])) for v in x]
    return {"x": x, "y": y, "rho": float(stats.spearmanr(x, y).statistic)}


def main():
    rng = random.Random(20_240_501)
    found = {
        "tables": [table(rng, eighths=k % 2 == 1) for k in range(200)],
        "shares": [share(rng) for _ in range(100)],
        "discordant": [discordant(rng) for _ in range(100)],
        "families": [family(rng) for _ in range(60)],
        "pairs": [pairs(rng) for _ in range(60)],
    }
    lines = ["{"]
    for k, (name, rows) in enumerate(found.items()):
        body = ",\n".join("  " + json.dumps(row) for row in rows)
        lines.append(f'"{name}": [\n{body}\n]' + ("," if k + 1 < len(found) else ""))
    text = "\n".join(lines) + "\n}\n"
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif not same(json.loads(FILE.read_text()), json.loads(text)):
        sys.exit(f"{FILE} is not what this script works out")


def same(a, b):
    """Whether two files say the same, but for the last digits that differ between machines."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return math.isclose(a, b, rel_tol=1e-10, abs_tol=1e-12)


if __name__ == "__main__":
    main()
