#!/usr/bin/env python3
"""Fits src/target/hopper/fitted.h to measured times of scans.

    bench/fit_scans.py RESULTS.csv [--forge build/forge] [--on h200]

RESULTS.csv is what bench/vs_fla.py --csv wrote on that GPU. Of kernels that are one scan and nothing else the time per
chunk is the slope between two lengths; it is taken apart into products and operations on matrices by least squares over
the programs. Then all scans of the file are listed with what the table in fitted.h says of them. Needs neither a GPU
nor packages."""

import argparse
import csv
import re
import subprocess
from itertools import pairwise

CHUNK = 64
VARIANTS = {
    "simple_gla": "scalar_gla",
    "linear": "linear_attention",
    "gla": "gla",
    "gdn": "gated_delta_net",
    "delta": "delta_net",
    "kda": "kda",
}


def measured(path):
    """{(op, tokens): (microseconds, strategy, kernels)}, and the heads of all."""
    lines = open(path).read().splitlines()
    heads = int(re.search(r"\bH=(\d+)", "\n".join(x for x in lines if x.startswith("#"))).group(1))
    rows = csv.DictReader(x for x in lines if not x.startswith("#"))
    return {
        (r["op"], int(r["T"])): (float(r["forge_graph_us"]), r["forge_strategy"], int(r["forge_kernels"]))
        for r in rows
        if not r["error"]
    }, heads


def model(forge, on, op, tokens, heads):
    """{strategy: (microseconds, products, matrices)} of the candidates that the table knows times of, as `forge
    explain` prints them."""
    command = [forge, "explain", VARIANTS[op], "--on", on, "--untuned", "--T", str(tokens), "--H", str(heads)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row = re.compile(r"// [* ] warp-groups (\S+) .* ([\d.]+) (us|ms)  (\d+) products and (\d+) matrices per chunk")
    found = {}
    for strategy, time, unit, products, matrices in row.findall(text):
        found.setdefault(strategy, (float(time) * (1000 if unit == "ms" else 1), int(products), int(matrices)))
    return found


def slopes(times, forge, on, heads):
    """(op, microseconds per chunk, products, matrices) of scans that are the only kernel, from length to length."""
    for op in VARIANTS:
        lengths = sorted(t for o, t in times if o == op and times[o, t][1:] == ("one-pass", 1))
        known = model(forge, on, op, lengths[0], heads).get("one-pass") if len(lengths) > 1 else None
        for a, b in pairwise(lengths) if known else ():
            yield op, (times[op, b][0] - times[op, a][0]) / (b - a) * CHUNK, known[1], known[2]


def least_squares(points):
    """x, y with x·products + y·matrices nearest to the times."""
    pp = sum(p * p for _, _, p, _ in points)
    mm = sum(m * m for _, _, _, m in points)
    pm = sum(p * m for _, _, p, m in points)
    pt = sum(p * t for _, t, p, _ in points)
    mt = sum(m * t for _, t, _, m in points)
    determinant = pp * mm - pm * pm
    if determinant == 0:
        raise SystemExit("expected scans of programs that differ in products and matrices, got none")
    return (pt * mm - mt * pm) / determinant, (mt * pp - pt * pm) / determinant


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results")
    parser.add_argument("--forge", default="build/forge")
    parser.add_argument("--on", default="h200")
    options = parser.parse_args()
    times, heads = measured(options.results)
    points = list(slopes(times, options.forge, options.on, heads))
    for op, time, products, matrices in points:
        print(f"{op:12} {time:6.3f} us per chunk of {products} products and {matrices} matrices")
    product, matrix = least_squares(points)
    print(
        f"\nproduct = {product:.3f}, matrix = {matrix:.3f}\n\n"
        "op                T  strategy   measured   model  model / measured"
    )
    for (op, tokens), (time, strategy, _) in sorted(times.items()):
        known = model(options.forge, options.on, op, tokens, heads).get(strategy) if op in VARIANTS else None
        if known:
            print(f"{op:12} {tokens:6}  {strategy:10} {time:8.1f} {known[0]:7.1f}  {known[0] / time:.2f}")


if __name__ == "__main__":
    main()
