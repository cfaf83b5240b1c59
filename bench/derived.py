#!/usr/bin/env python3
"""Times of definitions as they are written beside those of the phases that `forge derive` makes of their steps alone.

    bench/derived.py --csv derived.csv -- --device cuda --T 8192 --H 32
    bench/derived.py --csv derived.csv -- --T 2048 --threads 1

Both of every variant, one after the other, in one process (`forge bench`, which gets what follows --)."""

import argparse
import csv
import datetime
import json
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
    parser.add_argument("passed", nargs="*", help="to forge bench")
    args = parser.parse_args()
    variants = args.variants.split(",")
    with tempfile.TemporaryDirectory() as folder:
        files = {v: str(Path(folder) / f"{v}.ir") for v in variants}
        for variant, file in files.items():
            Path(file).write_text(output(args.forge, "derive", variant), encoding="utf-8")
        pairs = [name for v in variants for name in (v, files[v])]
        found = json.loads(output(args.forge, "bench", *pairs, "--json", *args.passed))
    rows = found["rows"]
    assert len(rows) == 2 * len(variants), "a row for each"
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        version, now = output(args.forge, "--version").strip(), datetime.datetime.now(datetime.timezone.utc)
        print(f"# {now:%Y-%m-%d %H:%M} UTC | {version} | {' '.join(sys.argv)}", file=file)
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for variant, written, derived in zip(variants, rows[::2], rows[1::2]):
            row = [variant, f"{written['seconds'] * 1e6:.1f}", f"{derived['seconds'] * 1e6:.1f}",
                   f"{derived['seconds'] / written['seconds']:.3f}", derived["strategy"]]  # fmt: skip
            out.writerow(row)
            print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main()
