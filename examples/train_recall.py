#!/usr/bin/env python3
"""Small models learn to look things up, on the CPU, with Forge's kernels forwards and backwards: with the delta rule
they do, with plain linear attention they do not.

    python3 examples/train_recall.py         # one to two minutes on two cores; writes train_recall.svg
    python3 examples/train_recall.py --layers DeltaNet GLA --steps 500

The task is multi-query associative recall (Arora et al. 2023, "Zoology", arXiv:2312.04927), scaled down, with one
thing more: a sequence has PAIRS pairs of a key and a value, drawn anew; then some of the keys get another value; then
each key comes once more at a random place, where its newest value is asked for. The models are that paper's, with one
layer in place of two: embeddings, norms, a residual. All have the same short convolution, heads, sizes, learning rate
and seeds, and see the same sequences.

Linear attention adds every pair to its state and cannot take one out again. The delta rule writes the difference to
what the state answers already: a key's old value goes, and keys that are not orthogonal do not disturb each other.
`Sums` is DeltaNet in all but that, and learns the task as far as sums allow: of a rewritten key it knows two values,
and hardly which is the newer. (With --depth 2 it learns: its second layer writes what the first one recalls wrongly.)

PyTorch is needed, and matplotlib for the picture (without it, it is text).
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import forge

FILLER, IGNORED = 0, -100


def recall(
    sequences: int, pairs: int, rewritten: int, length: int, symbols: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tokens, wanted, newer), each [sequences, length]: tokens are 0 between queries, keys from 1, values from
    symbols + 1; wanted is the key's newest value at places of queries, else IGNORED; newer says where that is not its
    first."""

    def drawn(count: int, among: int) -> torch.Tensor:
        """[sequences, count] different numbers below `among`."""
        return torch.rand(sequences, among, generator=generator).argsort(-1)[:, :count]

    keys = 1 + drawn(pairs, symbols)
    values = 1 + symbols + torch.randint(symbols, (sequences, pairs + rewritten), generator=generator)
    written = 2 * (pairs + rewritten)
    tokens = torch.full((sequences, length), FILLER)
    tokens[:, :written] = torch.stack([torch.cat([keys, keys[:, :rewritten]], 1), values], -1).flatten(1)
    wanted = torch.full_like(tokens, IGNORED)
    places = written + drawn(pairs, length - written)
    tokens.scatter_(1, places, keys)
    wanted.scatter_(1, places, torch.cat([values[:, pairs:], values[:, rewritten:pairs]], 1))
    newer = torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, places[:, :rewritten], True)
    return tokens, wanted, newer


class Sums(forge.nn.DeltaNet):
    """S = S + β k vᵀ, and all else as in DeltaNet."""

    def attend(self, q, k, v, x, **states):
        q, k = (functional.normalize(y, dim=-1) for y in (q, k))
        v = v * torch.sigmoid(self.beta(x))[..., None]
        return forge.ops.chunk_linear_attn(q, k, v, normalize=False, **states)


OWN = {"Sums": Sums}  #: layers that forge.nn has not


class Model(nn.Module):
    """Tokens [B, T] to logits of the next one at the places of a mask [B, T]."""

    def __init__(self, vocabulary: int, layers: list, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(len(layers) + 1))

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
        return self.norms[-1](x[places]) @ self.embedding.weight.T


def loss_and_right(model: Model, tokens: torch.Tensor, wanted: torch.Tensor) -> tuple:
    """(mean loss, whether each answer is right)"""
    places = wanted != IGNORED
    logits, values = model(tokens, places), wanted[places]
    return functional.cross_entropy(logits, values), logits.argmax(-1) == values


def progress(name: str, step: int, steps: int, text: str) -> None:
    done = 30 * step // steps
    if sys.stderr.isatty() or step == steps:
        end = "\n" if step == steps else ""
        print(f"\r{name:<16}[{'#' * done}{'.' * (30 - done)}] {step:>5}/{steps} {text}", end=end, file=sys.stderr)


def train(name: str, o: argparse.Namespace) -> dict:
    """{"step": […], "seconds": […], "loss": […], "accuracy": […], "newer": […], "parameters": n}: accuracies of
    sequences that were not trained on, of all queries and of those for a rewritten key."""
    torch.manual_seed(o.seed)
    made = OWN.get(name) or getattr(forge.nn, name)
    sizes = {"heads": o.heads, "key": o.head, "value": o.head} | ({} if name == "RWKV6" else {"conv": 4})
    model = Model(1 + 2 * o.symbols, [made(o.size, **sizes) for _ in range(o.depth)], o.size)
    task = (o.pairs, o.rewritten, o.length, o.symbols)
    *test, newer = recall(256, *task, torch.Generator().manual_seed(o.seed + 1_000_000))
    newer = newer[test[1] != IGNORED]
    generator = torch.Generator().manual_seed(o.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, o.rate, total_steps=o.steps, pct_start=0.1)
    found: dict = {"step": [], "seconds": [], "loss": [], "accuracy": [], "newer": []}
    recent, spent = 0.0, 0.0
    for step in range(1, o.steps + 1):
        begin = time.perf_counter()
        loss, _ = loss_and_right(model, *recall(o.batch, *task, generator)[:2])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        spent += time.perf_counter() - begin
        recent = loss.item() if step == 1 else 0.9 * recent + 0.1 * loss.item()
        if step % o.every == 0 or step == o.steps:
            with torch.no_grad():
                right = loss_and_right(model, *test)[1].float()
            accuracy, of_newer = right.mean().item(), right[newer].mean().item() if o.rewritten else math.nan
            for key, x in zip(found, (step, spent, recent, accuracy, of_newer)):
                found[key].append(round(x, 4))
            progress(name, step, o.steps, f"loss {recent:6.3f}  accuracy {accuracy:6.1%}  {spent:5.0f} s")
    return found | {"parameters": sum(p.numel() for p in model.parameters())}


def draw(results: dict, o: argparse.Namespace, file: Path) -> None:
    try:
        import matplotlib
    except ImportError:
        for name, r in results.items():
            print(f"{name:<16}" + "".join(" .:-=+*#%@"[min(9, int(10 * a))] for a in r["accuracy"]))
        return
    matplotlib.use("agg")
    matplotlib.rcParams["svg.hashsalt"] = "forge"  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    panels = (("step", "accuracy"), ("step", "newer"), ("seconds", "loss"))
    for axis, (x, y) in zip(axes, panels):
        for name, r in results.items():
            axis.plot(r[x], r[y], label=name)
        text = {"newer": "accuracy, of rewritten keys"}.get(y, y)
        axis.set(xlabel=x, ylabel=text, ylim=(0, None) if y == "loss" else (0, 1.02))
        axis.grid(alpha=0.3)
    axes[0].legend()
    sizes = f"states of {o.heads} x {o.head} x {o.head}, seed {o.seed}"
    figure.suptitle(f"Recall of {o.pairs} pairs, {o.rewritten} of them rewritten; {sizes}")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    print(f"{file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", default=["DeltaNet", "Sums", "LinearAttention"], metavar="LAYER")
    for name, default, text in (
        ("steps", 2500, "of training"), ("batch", 32, "sequences per step"), ("pairs", 12, "of keys and values"),
        ("rewritten", 6, "keys that get another value"), ("length", 64, "tokens of a sequence"),
        ("symbols", 64, "different keys, and values"), ("depth", 1, "layers"), ("size", 64, "of a token's row"),
        ("heads", 2, "of a layer"), ("head", 16, "size of a key and of a value"),
        ("every", 20, "steps from test to test"), ("seed", 0, "of all that is random"),
        ("threads", 1, "of PyTorch; Forge takes all cores"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--rate", type=float, default=1e-2, help="greatest learning rate (0.01)")
    parser.add_argument("--out", type=Path, default=Path("train_recall.svg"), help="the picture; .json beside it")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    results = {name: train(name, o) for name in o.layers}
    for name, r in results.items():
        print(f"{name:<16} accuracy {r['accuracy'][-1]:6.1%}, of rewritten keys {r['newer'][-1]:6.1%}, after "
              f"{r['step'][-1]} steps, {r['seconds'][-1]:.0f} s")  # fmt: skip
    settings = {key: x for key, x in vars(o).items() if key != "out"}
    o.out.with_suffix(".json").write_text(json.dumps({"settings": settings, "results": results}) + "\n", "utf-8")
    draw(results, o, o.out)


if __name__ == "__main__":
    main()
