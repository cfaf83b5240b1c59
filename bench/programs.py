#!/usr/bin/env python3
"""Times of programs for which nobody tuned anything, beside what the nearest variant of the zoo lets expect.

    build/record_programs build/programs
    bench/programs.py build/programs --csv programs.csv             # on a GPU: compiled, then measured
    bench/programs.py build/programs --on h200 --csv predicted.csv  # without one: what `forge cost` predicts

`record_programs` writes the programs and, of each, the bytes that it must move (inputs read once, outputs written
once), the operations of its products in chunks of 64 tokens, and its properties; none of these depends on how Forge
compiles it. The *nearest* variant of the zoo has, in this order, as far as any variant has it, the same answer to: are
there products of matrices; do updates read the state (delta rules); does the state decay, by a number or by channels;
are there several rows per token. Of several that are left, that one is taken whose bytes and operations are nearest, by
the sum of the ratios' logarithms. Variants that have portable kernels themselves, or that are over by the measure of
the others, are nobody's measure.

A program may take

    call + (t - call) * max(bytes / bytes of the variant, operations / operations of the variant)

where t is the variant's time, and `call`, 8 us, what a call's beginning and end take, which nothing scales. A kernel
copies while it multiplies, so that its time follows what holds it up, bytes or products; which of them that is of the
variant is not asked, so the larger ratio counts: a program is given what its variant would take with every chunk so
much larger. The two ratios stand in the table, for those who would weigh them otherwise.

A program is over if it takes more than twice that. One that fails is told with its error and ends nothing. What
registers could not hold (bytes per thread) and products that wait for each other (ptxas's C75xx) are counted when
kernels are compiled: always on a GPU, with --compile without one. What --limit leaves no time for has that as its
error; the zoo comes first.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALL_US = 8.0
MOST = 2.0  #: times the allowance
PORTABLE = "portable"
GROUP = 8  #: programs measured by one process; if one of them fails, each has its own
COLUMNS = ["program", "origin", "engine", "strategy", "us", "allowed_us", "ratio", "nearest", "nearest_us",
           "bytes_ratio", "flops_ratio", "predicted_us", "spilled_bytes", "waiting_products", "bytes", "flops",
           "schedule", "why_portable", "error"]  # fmt: skip
Row = dict[str, Any]


class Forge:
    """The command, for programs of one folder, whose sizes its table says."""

    def __init__(self, args: argparse.Namespace, shape: list[str], cache: str):
        self.command, self.folder, self.cache = args.forge, Path(args.folder), cache
        self.end = time.monotonic() + args.limit
        self.options = [*shape, "--cache", cache, *(["--on", args.on] if args.on else ["--device", "cuda"])]

    def run(self, word: str, names: list[str], *more: str, seconds: float = 120) -> str:
        """What it prints; RuntimeError with its last words."""
        files = [str(self.folder / f"{name}.ir") for name in names]
        command = [self.command, word, *files, *self.options, *more]
        if time.monotonic() > self.end:
            raise RuntimeError("out of time")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"forge {word} did not end within {seconds:.0f} s") from None
        if done.returncode != 0:
            raise RuntimeError(" ".join((done.stderr.strip() or f"forge {word}: {done.returncode}").split())[-300:])
        return done.stdout

    def plan(self, name: str) -> Row:
        cost = json.loads(self.run("cost", [name], "--entry", "forward", "--json"))[0]
        row = {"engine": cost["engine"], "schedule": cost["schedule"], "predicted_us": cost["seconds"] * 1e6}
        row["strategy"] = cost["schedule"].split(",")[0].removeprefix("strategy ")
        if row["engine"] == "tiles":
            row |= {"engine": PORTABLE, "why_portable": self.why_portable(name)}
        return row

    def why_portable(self, name: str) -> str:
        """What the faster engines say, but for what is no fault: matrices are no channels, nor channels matrices."""
        refused = json.loads(self.run("explain", [name], "--json"))["refused"]
        said = [r for r in refused if r["reason"] not in ("NotVectors", "NoProducts")] or refused
        why = "; ".join(f"{r['reason']}: {r['why']}" for r in said)
        return why.replace(f"{self.folder}/{name}.ir:", "line ")

    def compiled(self, name: str) -> Row:
        """Fills the cache, from which measuring takes the kernels."""
        table = self.run("check-compile", [name], seconds=300).splitlines()[2:]
        reports = "".join(file.read_text() for file in Path(self.cache).glob(f"{name}-*.cubin.log"))
        waiting = sum("C75" in line for line in reports.splitlines())
        return {"spilled_bytes": sum(int(line.split()[2]) for line in table), "waiting_products": waiting}

    def measured(self, names: list[str]) -> dict[str, Row]:
        """Medians; where a group fails, one after the other."""
        try:
            rows = json.loads(self.run("bench", names, "--json"))["rows"]
            return {name: {"us": r["seconds"] * 1e6} for name, r in zip(names, rows, strict=True)}
        except RuntimeError as error:
            if len(names) == 1:
                return {names[0]: {"error": str(error)}}
        return {name: row for one in names for name, row in self.measured([one]).items()}


def read_table(folder: str) -> tuple[list[str], dict[str, Row]]:
    """The shape, as options of the command, and the programs."""
    lines = Path(folder, "programs.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["name"]: dict(row) for row in csv.DictReader(lines[1:])}
    for row in rows.values():
        row |= {"program": row["name"], "bytes": float(row["bytes"]), "flops": float(row["flops"])}
    return lines[0].lstrip("# ").split(), rows


def with_errors(rows: dict[str, Row], step: Any, jobs: int) -> None:
    """What a step says of every program that has not failed yet."""

    def attempt(row: Row) -> None:
        try:
            row |= step(row["program"])
        except RuntimeError as error:
            row["error"] = str(error)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(attempt, [row for row in rows.values() if "error" not in row]))


def ratio(a: float, b: float) -> float:
    """0 of what neither has."""
    return a / b if b else 0.0


def nearest(row: Row, zoo: list[Row]) -> Row:
    left = zoo
    for same in (lambda z: z["products"] == row["products"], lambda z: z["solves"] == row["solves"],
                 lambda z: z["decay"] == row["decay"],
                 lambda z: (z["rows"] == "1") == (row["rows"] == "1")):  # fmt: skip
        left = [z for z in left if same(z)] or left

    def distance(z: Row) -> float:
        return sum(abs(math.log(ratio(row[what], z[what]) or 1)) for what in ("bytes", "flops"))

    return min(left, key=distance)


def allowance(row: Row, zoo: list[Row]) -> Row:
    """What the program may take, and by which variant's measure."""
    near = nearest(row, zoo)
    found = {"nearest": near["program"], "nearest_us": near["us"]}
    found |= {f"{what}_ratio": ratio(row[what], near[what]) for what in ("bytes", "flops")}
    found["allowed_us"] = CALL_US + (near["us"] - CALL_US) * max(found["bytes_ratio"], found["flops_ratio"])
    found["ratio"] = row["us"] / found["allowed_us"] if row.get("us") else None
    return found


def judge(rows: dict[str, Row]) -> list[Row]:
    """All but the zoo, the worst first; those without a time at the end."""
    zoo = [row for row in rows.values() if row["origin"] == "zoo" and row.get("us") and row.get("engine") != PORTABLE]
    zoo = [z for z in zoo if len(zoo) == 1 or allowance(z, [other for other in zoo if other is not z])["ratio"] <= MOST]
    for row in rows.values():
        row |= allowance(row, zoo)
    others = [row for row in rows.values() if row["origin"] != "zoo"]
    return sorted(others, key=lambda row: -(row["ratio"] or 0))


def header(args: argparse.Namespace) -> list[str]:
    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except FileNotFoundError:
            return ""

    about = "name,driver_version,clocks.max.sm,utilization.gpu"
    measured = said("nvidia-smi", f"--query-gpu={about}", "--format=csv,noheader")
    gpu = f"predicted, on {args.on}" if args.on else measured
    now = datetime.datetime.now(datetime.timezone.utc)
    return [f"# {now:%Y-%m-%d %H:%M} UTC | {said(args.forge, '--version')} | {gpu}", f"# {' '.join(sys.argv)}"]


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1e6 else f"{value:.4g}"
    return "" if value is None else str(value)


def report(judged: list[Row]) -> None:
    form = "{:20} {:11} {:10} {:>9} {:>9} {:>6}  {:19} {:>6} {:>6} {:>7} {:>7}  {}"
    print(form.format("program", "engine", "strategy", "us", "allowed", "ratio", "nearest", "bytes", "flops", "spilled",
                      "waiting", "why"))  # fmt: skip
    for row in judged:
        cells = [shown(row.get(c)) for c in ("program", "engine", "strategy", "us", "allowed_us", "ratio", "nearest",
                 "bytes_ratio", "flops_ratio", "spilled_bytes", "waiting_products")]  # fmt: skip
        print(form.format(*cells, row.get("error") or row.get("why_portable", "")).rstrip())
    over = [row for row in judged if (row["ratio"] or 0) > MOST]
    reasons = Counter(row["why_portable"].split(":")[0] for row in judged if "why_portable" in row)
    portable = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
    print(f"\n{len(judged)} programs: {len(over)} over {MOST:g} times what is allowed, {reasons.total()} portable "
          f"({portable}), {sum('error' in row for row in judged)} failed")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="what build/record_programs wrote")
    parser.add_argument("--forge", default=str(ROOT / "build" / "forge"))
    parser.add_argument("--on", help="a GPU of facts/: nothing is measured, times are predicted")
    parser.add_argument("--compile", action="store_true", help="with --on: for spills")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations at a time")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds in which work may begin")
    parser.add_argument("--cache", help="of compiled kernels, of this version alone; default: one that is removed")
    parser.add_argument("--csv", default="programs.csv")
    args = parser.parse_args()
    shape, rows = read_table(args.folder)
    with tempfile.TemporaryDirectory() as folder:
        forge = Forge(args, shape, args.cache or folder)
        with_errors(rows, forge.plan, args.jobs)
        if args.compile or not args.on:
            with_errors(rows, forge.compiled, args.jobs)
        names = [name for name, row in rows.items() if "error" not in row]
        for begin in range(0, 0 if args.on else len(names), GROUP):
            for name, row in forge.measured(names[begin : begin + GROUP]).items():
                rows[name] |= row
    if args.on:
        for row in rows.values():
            row["us"] = row.get("predicted_us")
    judged = judge(rows)
    with open(args.csv, "w", encoding="utf-8", newline="") as file:
        for line in header(args):
            print(line, file=file)
        out = csv.writer(file)
        out.writerow(COLUMNS)
        zoo = [row for row in rows.values() if row["origin"] == "zoo"]
        out.writerows([shown(row.get(column)) for column in COLUMNS] for row in [*zoo, *judged])
    report(judged)


if __name__ == "__main__":
    main()
