#!/usr/bin/env python3
"""How well the layers of forge.nn learn, trained with Forge's kernels on the CPU: associative recall, and a language
model of bytes.

    python3 bench/quality/quality.py recall --csv bench/results/DATE-cpu-recall.csv
    python3 bench/quality/quality.py recall --rewritten 6 --pairs 12 --csv bench/results/DATE-cpu-recall-rewritten.csv
    python3 bench/quality/quality.py language --csv bench/results/DATE-cpu-language.csv
    python3 bench/quality/quality.py recall --layers Preconditioned Momentum --csv bench/results/DATE-cpu-objectives.csv
    python3 bench/quality/quality.py plot bench/results/DATE-cpu-recall.csv docs/recall.svg

`recall` is the task of examples/train_recall.py, with its model of one layer: multi-query associative recall (Arora et
al. 2023, "Zoology", arXiv:2312.04927), scaled down; --rewritten gives some keys another value. `language` predicts the
next byte of texts that Debian ships, /usr/share/common-licenses and the POD pages under /usr/share/perl: every tenth
file, by name, is held out, and its loss is in bits per byte. Two blocks of a layer and an MLP of four times the size,
with a norm before each; weights are tied. All layers have the same sizes of heads, the same convolution (RWKV-6, which
mixes with the token before instead, none), the same sequences and the same choice of learning rates, of which tables
and pictures have the one that ends best. What gates and projections add is in the column `parameters`. `Sums` is
DeltaNet with sums in place of the delta rule. --layers also takes those of objectives.py: Preconditioned,
PrecisionWeighted, TemporalDifference, Contrastive, Spectral, Momentum.

The CSV has a row per layer, learning rate, seed and test, and above them when, where, with what and by which command;
`seconds` are those of training, without tests, and say nothing where `others`, the share of the cores that other
processes used, is large.
"""

import argparse
import csv
import datetime
import hashlib
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "bench")]
import backward_cpu  # noqa: E402
import objectives  # noqa: E402
import train_recall  # noqa: E402

import forge  # noqa: E402

LAYERS = ["Sums", "LinearAttention", "RetNet", "Mamba2", "GLA", "HGRN2", "RWKV6", "DeltaNet", "GatedDeltaNet", "KDA"]
train_recall.OWN.update(objectives.LAYERS)  # --layers takes them too
COLUMNS = ["task", "layer", "rate", "seed", "parameters", "step", "seconds", "loss", "result", "unit", "others"]
RECALL = {"steps": 1000, "batch": 32, "pairs": 16, "rewritten": 0, "length": 64, "symbols": 64, "depth": 1, "size": 64,
          "heads": 2, "head": 16, "every": 50}  # fmt: skip
LANGUAGE = {"steps": 200, "batch": 8, "length": 512, "size": 128, "heads": 4, "head": 32, "every": 20}
RATES = {"recall": [1e-2, 3e-3], "language": [3e-3]}


def made(name: str, o: SimpleNamespace) -> nn.Module:
    conv = {} if name == "RWKV6" else {"conv": 4}
    layer = train_recall.OWN.get(name) or getattr(forge.nn, name)
    return layer(o.size, heads=o.heads, key=o.head, value=o.head, **conv)


# ---------------------------------------------------------------------------------------------------------- language


def texts() -> tuple[torch.Tensor, torch.Tensor, str]:
    """(bytes to train on, bytes held out, what they are)."""
    found: dict[bytes, Path] = {}
    for folder, pattern in (("/usr/share/common-licenses", "*"), ("/usr/share/perl", "**/*.pod")):
        for file in sorted(Path(folder).glob(pattern)):
            if file.is_file():
                found.setdefault(hashlib.sha256(file.read_bytes()).digest(), file)
    files = sorted(found.values())
    if len(files) < 20:
        raise SystemExit("language: this machine has no texts in /usr/share/common-licenses and /usr/share/perl")
    parts = [b"".join(f.read_bytes() for n, f in enumerate(files) if (n % 10 == 9) == held) for held in (False, True)]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    told = f"{len(files)} files, {len(parts[0])} bytes and {len(parts[1])} held out, sha256 {digest}"
    return *(torch.frombuffer(bytearray(p), dtype=torch.uint8).long() for p in parts), told


class Bytes(nn.Module):
    """Bytes [B, T] to logits [B, T, 256] of the next ones."""

    def __init__(self, name: str, o: SimpleNamespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, o.size)
        nn.init.normal_(self.embedding.weight, std=0.02)
        parts: list[nn.Module] = []
        for _ in range(2):
            mlp = nn.Sequential(nn.Linear(o.size, 4 * o.size), nn.GELU(), nn.Linear(4 * o.size, o.size))
            parts += [made(name, o), mlp]
        self.parts, self.norms = nn.ModuleList(parts), nn.ModuleList(nn.LayerNorm(o.size) for _ in range(5))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for part, norm in zip(self.parts, self.norms):
            x = x + part(norm(x))
        return self.norms[-1](x) @ self.embedding.weight.T


def language(name: str, o: SimpleNamespace, seen: torch.Tensor, held: torch.Tensor) -> Iterator[tuple]:
    """(step, seconds, bits per byte of the last batches, bits per byte of what is held out), and parameters first."""
    torch.manual_seed(o.seed)
    model = Bytes(name, o)
    yield sum(p.numel() for p in model.parameters())
    test = held[: len(held) // (o.length + 1) * (o.length + 1)].view(-1, o.length + 1)
    test = test[:: max(1, len(test) // 64)][:64]
    generator = torch.Generator().manual_seed(o.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, o.rate, total_steps=o.steps, pct_start=0.1)

    def bits(rows: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) / math.log(2)

    spent, recent = 0.0, 0.0
    for step in range(1, o.steps + 1):
        begin = time.perf_counter()
        first = torch.randint(len(seen) - o.length, (o.batch, 1), generator=generator)
        loss = bits(seen[first + torch.arange(o.length + 1)])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        spent += time.perf_counter() - begin
        recent = loss.item() if step == 1 else 0.9 * recent + 0.1 * loss.item()
        if step % o.every == 0 or step == o.steps:
            with torch.no_grad():
                result = sum(bits(part).item() * len(part) for part in test.split(8)) / len(test)
            train_recall.progress(name, step, o.steps, f"{recent:6.3f}, held out {result:6.3f} bits, {spent:5.0f} s")
            yield step, spent, recent, result


# ---------------------------------------------------------------------------------------------------------------- runs


def runs(task: str, o: SimpleNamespace) -> Iterator[list]:
    seen, held, told = texts() if task == "language" else (None, None, "")
    yield [told]
    for name, rate in [(name, rate) for name in o.layers for rate in o.rates]:
        o.rate = rate
        begin, others = time.perf_counter(), backward_cpu.busy()
        if task == "recall":
            found = train_recall.train(name, o)
            parameters, unit = found["parameters"], "accuracy"
            rows = list(zip(found["step"], found["seconds"], found["loss"], found["accuracy"]))
        else:
            parameters, *rows = language(name, o, seen, held)
            unit = "bits per byte"
        others = (backward_cpu.busy() - others) / (time.perf_counter() - begin) / (os.cpu_count() or 1)
        for step, seconds, loss, result in rows:
            yield [task, name, o.rate, o.seed, parameters, step, f"{seconds:.2f}", f"{loss:.4f}", f"{result:.4f}", unit,
                   f"{others:.0%}"]  # fmt: skip


def best(rows: list[dict]) -> dict[str, list[dict]]:
    """Of each layer the run that ends best."""
    ends: dict[str, list[dict]] = {}
    for name, rate in dict.fromkeys((r["layer"], r["rate"]) for r in rows):
        run = [r for r in rows if (r["layer"], r["rate"]) == (name, rate)]
        sign = 1 if run[0]["unit"] == "accuracy" else -1
        if name not in ends or sign * float(run[-1]["result"]) > sign * float(ends[name][-1]["result"]):
            ends[name] = run
    return ends


def table(rows: list[dict]) -> str:
    """In Markdown, the best last."""
    unit = rows[0]["unit"]
    lines = [f"| layer | {unit} | loss | learning rate | parameters | seconds |", "|---|---|---|---|---|---|"]
    last = (run[-1] for run in best(rows).values())
    ends = sorted(last, key=lambda r: float(r["result"]), reverse=unit != "accuracy")
    lines += [f"| {r['layer']} | {float(r['result']):.3f} | {float(r['loss']):.3f} | {r['rate']} | {r['parameters']} | "
              f"{float(r['seconds']):.0f} |" for r in ends]  # fmt: skip
    return "\n".join(lines)


def plot(source: Path, file: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "forge"
    from matplotlib import pyplot

    rows = [*csv.DictReader(line for line in source.read_text("utf-8").splitlines() if not line.startswith("#"))]
    unit = rows[0]["unit"]
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axis, (x, y) in zip(axes, (("step", "result"), ("step", "loss"), ("seconds", "result"))):
        for n, (name, run) in enumerate(best(rows).items()):
            points = [(float(r[x]), float(r[y])) for r in run]
            axis.plot(*zip(*points), label=name, linestyle=("-", "--", ":")[n % 3])
        axis.set(xlabel=x, ylabel=unit if y == "result" else "loss")
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=7)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    print(table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="task", required=True)
    for task, defaults in (("recall", RECALL), ("language", LANGUAGE)):
        command = commands.add_parser(task)
        command.add_argument("--layers", nargs="+", default=LAYERS)
        command.add_argument("--rates", nargs="+", type=float, default=RATES[task])
        command.add_argument("--csv", type=Path, required=True)
        for name, default in {**defaults, "seed": 0, "threads": 1}.items():
            command.add_argument(f"--{name}", type=type(default), default=default, help=f"({default})")
    command = commands.add_parser("plot")
    command.add_argument("source", type=Path)
    command.add_argument("file", type=Path)
    o = parser.parse_args()
    if o.task == "plot":
        plot(o.source, o.file)
        return
    torch.set_num_threads(o.threads)
    with o.csv.open("w", newline="", encoding="utf-8") as file:
        writer, every = csv.writer(file), runs(o.task, o)
        told = next(every)[0]
        where = f"{backward_cpu.cpu()}, {os.cpu_count()} cores | forge {forge.__version__}, torch {torch.__version__}"
        how = f"bench/quality/quality.py {' '.join(sys.argv[1:])}" + (f" | {told}" if told else "")
        file.write(f"# {datetime.date.today()} | {where} | {how}\n")
        writer.writerow(COLUMNS)
        rows = []
        for row in every:
            writer.writerow(row)
            file.flush()
            rows.append(dict(zip(COLUMNS, row)))
    print(table(rows))


if __name__ == "__main__":
    main()
