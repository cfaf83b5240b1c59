#!/usr/bin/env python3
"""flash-linear-attention's own layers, trained with its kernels and with Forge's under them (forge.fla.patched), on a
GPU: the same model, seeds and batches, and the loss of every step.

    python3 bench/quality/patched.py --csv bench/results/DATE-h200-patched.csv
    python3 bench/quality/patched.py --plot docs/patched.svg --csv bench/results/DATE-h200-patched.csv    # of that file

The model predicts bytes of this repository's documents and sources: two blocks of a layer (GatedLinearAttention and
GatedDeltaNet, as they come, with their short convolutions and fused norms) and an MLP, under bfloat16 autocast. Three
runs of each: FLA's kernels, Forge's with the same seed, and FLA's with another seed for the weights, which shows what
differences mean nothing. FLA refuses its gated backward kernels with Triton from 3.4 to 3.7.0 on Hopper;
--no-fla-guard runs them (bench/backward.py; their gradients were right beside Forge's with 3.6). Printed, and written
below the CSV's head: mean and greatest difference of the losses, of means over ten steps, from the first run; and
steps per second after the first ten.
"""

import argparse
import csv
import datetime
import importlib
import statistics
import subprocess
import sys
import time
import types
import warnings
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(ROOT / "bench"))

import backward  # noqa: E402
import vs_fla  # noqa: E402

import forge  # noqa: E402

#: Layers, and where they are in fla.layers.
LAYERS = {"GatedLinearAttention": "gla", "GatedDeltaNet": "gated_deltanet"}
#: Name, whether Forge is under FLA, how far the seed of the weights is from --seed.
RUNS = [("fla", False, 0), ("forge", True, 0), ("fla, another seed", False, 1)]


def corpus() -> torch.Tensor:
    """Bytes of the repository's documents, headers and sources."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.cpp", "*.h", "*.py"], cwd=ROOT, capture_output=True, text=True
    )
    files = listed.stdout.split() or [str(f) for p in ("docs/*.md", "src/**/*.cpp") for f in ROOT.glob(p)]
    text = b"".join((ROOT / f).read_bytes() for f in sorted(files) if "golden" not in f)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def layer_of_fla(name: str) -> type[nn.Module]:
    """From the layer's own module: fla.layers imports all layers, some of which need transformers."""
    fla = importlib.import_module("fla")
    if not hasattr(sys.modules.get("fla.layers"), name):
        package = types.ModuleType("fla.layers")
        package.__path__ = [str(Path(path) / "layers") for path in fla.__path__]
        sys.modules["fla.layers"] = package
    return getattr(importlib.import_module(f"fla.layers.{LAYERS[name]}"), name)


class Bytes(nn.Module):
    """Bytes [B, T] to logits [B, T, 256] of the next ones."""

    def __init__(self, layer: str, size: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, size)
        nn.init.normal_(self.embedding.weight, std=0.02)
        sizes = {"head_dim": size // heads} if layer == "GatedDeltaNet" else {}
        made = [layer_of_fla(layer)(hidden_size=size, num_heads=heads, **sizes) for _ in range(2)]
        self.layers = nn.ModuleList(made)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(5))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for n, (layer, mlp) in enumerate(zip(self.layers, self.mlps)):
            x = x + layer(self.norms[2 * n](x))[0]
            x = x + mlp(self.norms[2 * n + 1](x))
        return self.norms[-1](x) @ self.embedding.weight.T


def losses(layer: str, patched: bool, seed: int, o: argparse.Namespace, text: torch.Tensor) -> tuple[list, float]:
    """(losses of all steps, steps per second after the first ten)"""
    torch.manual_seed(o.seed + seed)
    model = Bytes(layer, o.size, o.heads).to(o.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, o.rate, total_steps=o.steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(o.seed)
    wait = torch.cuda.synchronize if o.device == "cuda" else lambda: None
    found, begin = [], 0.0
    with forge.fla.patched() if patched else nullcontext():
        for step in range(o.steps):
            if step == 10:
                wait()
                begin = time.perf_counter()
            first = torch.randint(len(text) - o.length, (o.batch, 1), generator=generator)
            rows = text[first + torch.arange(o.length + 1)].to(o.device)
            with torch.autocast(o.device, torch.bfloat16):
                logits = model(rows[:, :-1])
            loss = functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            found.append(loss.detach())
        wait()
    return [x.item() for x in found], (o.steps - 10) / (time.perf_counter() - begin)


def smooth(values: list) -> list:
    return [statistics.mean(values[i : i + 10]) for i in range(0, len(values), 10)]


def draw(path: Path, plot: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "forge"
    from matplotlib import pyplot

    curves: dict[str, dict[str, list[float]]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            curves.setdefault(row["layer"], {}).setdefault(row["run"], []).append(float(row["loss"]))
    figure, axes = pyplot.subplots(1, len(curves), figsize=(5 * len(curves), 3.4), layout="constrained", squeeze=False)
    for axis, (layer, runs) in zip(axes[0], curves.items()):
        for (name, *_), style in zip(RUNS, ("-", "--", ":")):
            if curve := runs.get(name):
                axis.plot(range(1, len(curve) + 1), curve, style, label=name, linewidth=1)
        axis.set(title=layer, xlabel="step", ylabel="loss, nats per byte")
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(plot, metadata={"Date": None} if plot.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", default=list(LAYERS))
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--plot", type=Path, help="draws what --csv has, and trains nothing")
    parser.add_argument("--no-fla-guard", action="store_true")
    parser.add_argument("--tuning-ms", type=float, help="for which Triton's tuner measures a configuration (100)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rate", type=float, default=1e-3)
    for name, default in (
        ("steps", 300), ("batch", 8), ("length", 1024), ("size", 512), ("heads", 4), ("seed", 0),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"({default})")
    o = parser.parse_args()
    if o.plot:
        return draw(o.csv, o.plot)
    warnings.simplefilter("ignore")
    if o.no_fla_guard:
        backward.without_guard()
    if o.tuning_ms:
        vs_fla.tune_for(o.tuning_ms)
    text, curves, said = corpus(), {}, []
    for layer in o.layers:
        for name, patched, seed in RUNS:
            try:
                curve, speed = losses(layer, patched, seed, o, text)
            except Exception as why:  # FLA refuses some versions of Triton on some GPUs
                said.append(f"{layer}, {name}: {type(why).__name__}: {' '.join(str(why).split())[:300]}")
            else:
                curves[layer, name] = curve
                said.append(f"{layer}, {name}: last ten steps {statistics.mean(curve[-10:]):.4f}; {speed:.1f} steps/s")
                if base := curves.get((layer, RUNS[0][0])):
                    off = [abs(a - b) for a, b in zip(smooth(curve), smooth(base))]
                    said[-1] += f"; from FLA's run {statistics.mean(off):.4f}, at most {max(off):.4f}"
            print(said[-1], flush=True)
    where = torch.cuda.get_device_name() if o.device == "cuda" else "CPU"
    with o.csv.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {datetime.date.today()} | {where} | torch {torch.__version__} | bench/quality/patched.py "
                   f"{' '.join(sys.argv[1:])}\n" + "".join(f"# {line}\n" for line in said))  # fmt: skip
        writer = csv.writer(file)
        writer.writerow(["layer", "run", "step", "loss"])
        for (layer, name), values in curves.items():
            writer.writerows([layer, name, step, f"{x:.5f}"] for step, x in enumerate(values, 1))


if __name__ == "__main__":
    main()
