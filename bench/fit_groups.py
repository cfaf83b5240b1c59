#!/usr/bin/env python3
"""Fits the times of scans of one warp group in src/target/hopper/fitted.h (`alone_...`) to measured chunks.

    bench/fit_groups.py bench/results/2026-11-26-h200-batches-groups.csv

Prints the coefficients, by least squares of the logarithm of what they say over the times, and what they say of every
chunk beside its time. The file's first lines say where its times are from. Spilled registers and decays of channels are
not fitted.
"""

from __future__ import annotations

import csv
import math
import sys

import numpy

COUNTS = {
    "products": "alone_product",
    "blocks": "alone_block",
    "floats": "alone_floats",
    "numbers": "alone_matrix",
    "functions": "alone_function",
    "ahead": "alone_ahead",
    "costly": "alone_vector",
}


def error(counts: numpy.ndarray, found: numpy.ndarray, times: numpy.ndarray) -> float:
    return float(numpy.mean(numpy.log(counts @ found / times) ** 2))


def fitted(counts: numpy.ndarray, times: numpy.ndarray) -> numpy.ndarray:
    """One coefficient after the other by a factor, as long as that helps; none becomes negative."""
    found = numpy.full(counts.shape[1], 0.2)
    step = 2.0
    while step > 1.001:
        before = error(counts, found, times)
        for n in range(len(found)):
            for factor in (step, 1 / step):
                tried = found.copy()
                tried[n] *= factor
                if error(counts, tried, times) < error(counts, found, times):
                    found = tried
        if error(counts, found, times) == before:
            step = math.sqrt(step)
    return found


def main() -> None:
    with open(sys.argv[1]) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    counts = numpy.array([[float(row[name]) for name in COUNTS] for row in rows])
    times = numpy.array([float(row["us"]) for row in rows])
    found = fitted(counts, times)
    for name, value in zip(COUNTS.values(), found, strict=True):
        print(f".{name} = {value:.3f}")
    for row, one in zip(rows, counts @ found, strict=True):
        print(f"{row['program']:62} {row['scan']:9} {row['us']:>6} us, said {one:5.1f}")
    print(f"root mean square of the logarithm: {math.sqrt(error(counts, found, times)):.2f}")


if __name__ == "__main__":
    main()
