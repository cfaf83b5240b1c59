"""Pairwise covering arrays: rows of values of which any two values of different factors stand together in some row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations


def covering_array(factors: Mapping[str, Sequence]) -> list[dict]:
    """Greedy and deterministic: a row begins with the first pair that no row has, and every further factor takes the
    value that adds most pairs to the row; of those alike, the one that rows have had least."""
    names = list(factors)
    missing = {
        (a, i, b, j): None
        for a, b in combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    used: Counter = Counter()
    rows = []
    while missing:
        a, i, b, j = next(iter(missing))
        row = {a: i, b: j}
        for name in names:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])),
                    key=lambda n: (len(_pairs(names, {**row, name: n}, name) & missing.keys()), -used[name, n], -n),
                )
        for pair in _pairs(names, row):
            missing.pop(pair, None)
        used.update(row.items())
        rows.append({name: factors[name][row[name]] for name in names})
    return rows


def _pairs(names: list[str], row: Mapping[str, int], of: str | None = None) -> set:
    """The pairs in a row: all, or those of one factor."""
    known = [n for n in names if n in row]
    return {(a, row[a], b, row[b]) for a, b in combinations(known, 2) if of is None or of in (a, b)}
