#!/usr/bin/env python3
"""Times of definitions as they are written beside those of the phases that `forge derive` makes of their steps alone.

    bench/derived.py --csv derived.csv -- --device cuda --T 8192 --H 32
    bench/derived.py --csv derived.csv -- --T 2048 --threads 1

Both of every variant, one after the other, in one process (`forge bench`, which gets what follows --); of several
rounds, in which a busy machine has other speeds, the medians of the times and of their ratios."""

import argparse
import csv
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ZOO = ["linear_attention", "retnet", "lightning_attention", "scalar_gla", "gla", "hgrn2", "rwkv6", "hgrn", "hawk",
       "delta_net", "gated_delta_net", "delta_product", "kda"]  # fmt: skip
COLUMNS = ["variant", "written_us", "derived_us", "derived_over_written", "strategy"]


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", default=str(Path(__file__).resolve().parents[1] / "build" / "forge"))
    parser.add_argument("--variants", default=",".join(ZOO))
    parser.add_argument("--csv", default="derived.csv")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("passed", nargs="*", help="to forge bench")
    args = parser.parse_args()
    variants = args.variants.split(",")
    with tempfile.TemporaryDirectory() as folder:
        files = {v: str(Path(folder) / f"{v}.ir") for v in variants}
        for variant, file in files.items():
            Path(file).write_text(output(args.forge, "derive", variant), encoding="utf-8")
        pairs = [name for v in variants for name in (v, files[v])]
        rounds = [json.loads(output(args.forge, "bench", *pairs, "--json", *args.passed))["rows"]
                  for _ in range(args.rounds)]  # fmt: skip
    assert all(len(rows) == 2 * len(variants) for rows in rounds), "a row for each"
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        version, now = output(args.forge, "--version").strip(), datetime.datetime.now(datetime.timezone.utc)
        print(f"# {now:%Y-%m-%d %H:%M} UTC | {version} | {' '.join(sys.argv)}", file=file)
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for i, variant in enumerate(variants):
            times = [(rows[2 * i]["seconds"], rows[2 * i + 1]["seconds"]) for rows in rounds]
            written, derived = (statistics.median(t) * 1e6 for t in zip(*times))
            ratio = statistics.median(derived / written for written, derived in times)
            row = [variant, f"{written:.1f}", f"{derived:.1f}", f"{ratio:.3f}", rounds[0][2 * i + 1]["strategy"]]
            out.writerow(row)
            print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main()
