#!/usr/bin/env python3
"""Fits the times of scans of one warp group in src/target/hopper/fitted.h (`alone_...`) to measured chunks.

    bench/fit_groups.py bench/results/2026-11-26-h200-groups.csv

Prints the coefficients, by least squares of relative errors, and what they say of every chunk beside its time. The
file's first lines say where its times are from. Spilled registers and decays of channels are not fitted.
"""

from __future__ import annotations

import csv
import math
import sys

import numpy

COUNTS = {
    "products": "alone_product",
    "floats": "alone_floats",
    "numbers": "alone_matrix",
    "functions": "alone_function",
    "costly": "alone_vector",
}


def main() -> None:
    with open(sys.argv[1]) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    counts = numpy.array([[float(row[name]) for name in COUNTS] for row in rows])
    times = numpy.array([float(row["us"]) for row in rows])
    found = numpy.linalg.lstsq(counts / times[:, None], numpy.ones(len(rows)), rcond=None)[0]
    for name, value in zip(COUNTS.values(), found, strict=True):
        print(f".{name} = {value:.3f}")
    said = counts @ found
    for row, one in zip(rows, said, strict=True):
        print(f"{row['program']:18} {row['scan']:9} {row['us']:>6} us, said {one:5.1f}")
    print(f"root mean square of the logarithm: {math.sqrt(numpy.mean(numpy.log(said / times) ** 2)):.2f}")


if __name__ == "__main__":
    main()
