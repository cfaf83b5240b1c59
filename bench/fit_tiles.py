#!/usr/bin/env python3
"""Fits the times of portable kernels' operations (src/target/simt/tile_times.cpp) to measured kernels.

    bench/fit_tiles.py bench/results/2026-11-30-h200-portable-kernels.csv

Of each kernel the file has what a task does for a chunk and how long the kernel took. The times are those of least
squares of relative errors, none below zero; then come the kernels that they miss by more than a third. Needs numpy
alone."""

import argparse
import csv

import numpy as np

MULTIPROCESSORS, SHARED_BYTES, OTHER_BYTES = 132, 232448, 4096
BESIDE, WIDE, WIDE_LONG, LONG_STEPS = 0.35, 1.05, 0.9, 40
NAMES = ["chunk", "step", "decays", "inverse", "flops", "elementwise", "far", "loads", "loads_ahead"]


def blocks(row):
    """That a multiprocessor has at a time."""
    if float(row["far_floats"]) > 0:
        return 1
    threads = 512 if float(row["flops"]) > 0 else 1024
    return max(1, min(SHARED_BYTES // (int(row["shared_bytes"]) + OTHER_BYTES), threads // int(row["threads"])))


def per_chunk(row):
    """Microseconds of a task's chunk, were it alone on its multiprocessor."""
    tasks, b = int(row["tasks"]), blocks(row)
    rounds = -(-tasks // (MULTIPROCESSORS * b))
    beside = 1 if tasks <= MULTIPROCESSORS else 1 + BESIDE * (b - 1)
    return float(row["us"]) / int(row["hops"]) / rounds / beside


def counts(row):
    scan = int(row["hops"]) > 1
    wide = 1 if int(row["threads"]) < 512 else WIDE if int(row["operations"]) < LONG_STEPS else WIDE_LONG
    loads = float(row["load_floats"])
    other = [float(row[n]) for n in ["operations", "decays", "inverses", "flops", "elementwise", "far_floats"]]
    return [wide * x for x in [1, *other, 0 if scan else loads, loads if scan else 0]]


def least_squares(a, b):
    """Of numbers that are not negative, by coordinates."""
    x, gram, right = np.zeros(a.shape[1]), a.T @ a, a.T @ b
    for _ in range(20000):
        for j in range(len(x)):
            x[j] = max(0.0, x[j] + (right[j] - gram[j] @ x) / gram[j, j])
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=argparse.FileType())
    results = parser.parse_args().results
    rows = list(csv.DictReader(x for x in results if not x.startswith("#")))
    if not rows:
        parser.error(f"{results.name}: expected kernels, one per line under a line of names, got none")
    measured = np.array([per_chunk(r) for r in rows])
    does = np.array([counts(r) for r in rows])
    scale = np.maximum(does.max(axis=0), 1e-9)
    times = least_squares(does / scale / measured[:, None], np.ones(len(rows))) / scale
    for name, time in zip(NAMES, times, strict=True):
        print(f"{name:12} {time:10.4f} us" if time > 1e-3 else f"{name:12} {1 / time:10.3g} per us")
    ratio = does @ times / measured
    print(f"{len(rows)} kernels, {ratio.min():.2f} to {ratio.max():.2f}, {np.sqrt((np.log(ratio) ** 2).mean()):.2f}")
    for row, r, m in zip(rows, ratio, measured, strict=True):
        if abs(np.log(r)) > np.log(4 / 3):
            print(f"  {row['program']} {row['entry']} {row['kernel']} chunk {row['chunk']}: {r * m:.1f} for {m:.1f} us")


if __name__ == "__main__":
    main()
