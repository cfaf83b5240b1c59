"""The recall task of bench/quality, for any variant: a small model of one layer learns to look things up. PyTorch is
loaded here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ._calls import factor_of, symbol_of
from .attention import Attention
from .nn import Layer

FILLER, IGNORED = 0, -100
#: as bench/quality/quality.py has them; `rewritten`: keys that get another value, of which the newest is asked for
TASK = {"batch": 32, "pairs": 12, "rewritten": 6, "length": 64, "symbols": 64, "size": 64, "heads": 2, "head": 16}
Tensor = Any


def recall(
    sequences: int, pairs: int, rewritten: int, length: int, symbols: int, generator: Any
) -> tuple[Tensor, Tensor]:
    """(tokens, wanted), each [sequences, length]: pairs of a key (from 1) and a value (from symbols + 1), then each key
    once more at a random place, where its newest value is wanted."""

    def drawn(count: int, among: int) -> Tensor:
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
    return tokens, wanted


class Made(Layer):
    """A layer of any variant with inputs q, k and v: its other inputs are projections of x, or parameters per head,
    taken to the range that the variant declares. Numbers without a default are 1."""

    conv, activation, norm, gate = 4, "silu", "rms", None

    def __init__(self, variant: Attention, size: int, heads: int, head: int, unit: bool) -> None:
        inputs = {i.name: i for i in variant.signature.tensors}
        super().__init__(size, heads, key=head, value=head)
        self.variant, self.unit = variant, unit  #: unit: queries and keys have the length 1
        factor = factor_of(inputs["k"].dims[2]) if not inputs["k"].dims[2].isdigit() else 1
        self.sizes = {symbol_of(inputs["k"].dims[2]): head // factor, symbol_of(inputs["v"].dims[2]): head}
        self.ranges = ranges(variant.definition)
        self.rows = {name: factor_of(i.dims[0]) for name, i in inputs.items() if i.kind == "input"}
        self.more, self.own = nn.ModuleDict(), nn.ParameterDict()
        for name, i in inputs.items():
            shape = [int(d) if d.isdigit() else factor_of(d) * self.sizes.get(symbol_of(d), head)
                     for d in i.dims[2 if i.kind == "input" else 1 :]]  # fmt: skip
            if i.kind == "head":
                self.own[name] = nn.Parameter(0.5 * torch.randn(heads, *shape))
            elif name not in ("q", "k", "v"):
                self.more[name] = nn.Linear(size, self.rows[name] * heads * math.prod(shape))
            elif self.rows[name] > 1:  # the first row comes from the layer's own projection
                self.more[name] = nn.Linear(size, (self.rows[name] - 1) * heads * head, bias=False)
        self.inputs = inputs
        defaults = variant._arguments["forward"].defaults
        self.numbers = {i.name: defaults.get(i.name, 1.0) for i in variant.signature.scalars}

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, **states: Any) -> tuple[Any, ...]:
        given: dict[str, Any] = {"q": q, "k": k, "v": v}
        for name, projection in self.more.items():
            i, rows, y = self.inputs[name], self.rows[name], projection(x)
            if name in given:
                first = given[name]
                rest = y.unflatten(-1, (rows - 1, *first.shape[2:]))
                given[name] = torch.cat([first[:, :, None], rest], 2).flatten(1, 2)
                continue
            shape = (rows * self.heads, *self._sizes(i.dims[2:]))
            y = self._in_range(name, y).unflatten(-1, shape)
            given[name] = y.unflatten(2, (rows, self.heads)).flatten(1, 2)
        given.update({name: self._in_range(name, p) for name, p in self.own.items()})
        if self.unit:
            given.update({n: functional.normalize(given[n], dim=-1) for n in ("q", "k")})
        given.update(self.numbers)
        o, state = self.variant(**given, output_final_state=states["output_final_state"])
        return o, state

    def _sizes(self, dims: list[str]) -> list[int]:
        return [int(d) if d.isdigit() else factor_of(d) * self.sizes.get(symbol_of(d), self.key) for d in dims]

    def _in_range(self, name: str, y: Tensor) -> Tensor:
        """Logarithms of decays begin near 0, so that nothing is forgotten before it is learned."""
        low, high = self.ranges.get(name, (-math.inf, math.inf))
        if low == -math.inf and high == 0:
            return functional.logsigmoid(y + 4)
        if math.isfinite(low) and math.isfinite(high):
            return low + (high - low) * torch.sigmoid(y)
        return y + 4 if name == "g" else y  # before a sigmoid, a gate

    def extra_repr(self) -> str:
        return f"{self.variant.name}, {super().extra_repr()}"


def ranges(definition: str) -> dict[str, tuple[float, float]]:
    """What inputs are declared to hold."""
    import re

    found = re.findall(r"^  (?:input|head) (\w+): .*range=\[([^,]+), ([^\]]+)\]", definition, re.MULTILINE)
    return {name: (float(low), float(high)) for name, low, high in found}


class Model(nn.Module):  # type: ignore[misc]
    """Tokens [B, T] to logits of the next one at the places of a mask [B, T]."""

    def __init__(self, vocabulary: int, layer: Any, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layer, self.before, self.after = layer, nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        x = self.embedding(tokens)
        x = x + self.layer(self.before(x))
        return self.after(x[places]) @ self.embedding.weight.T


def train(
    variant: Attention, steps: int, rate: float, seed: int, unit: bool, told: Callable[[int, float], None],
    task: Mapping[str, int] = TASK,
) -> dict[str, Any]:  # fmt: skip
    """{"accuracy", "loss", "parameters", "train_seconds"} after so many steps: the accuracy of 256 sequences that were
    not trained on. `told` hears of steps and losses. PyTorch has one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices are small; Forge takes all cores
    try:
        return _trained(variant, steps, rate, seed, unit, told, task)
    finally:
        torch.set_num_threads(threads)


def _trained(
    variant: Attention, steps: int, rate: float, seed: int, unit: bool, told: Callable[[int, float], None],
    task: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    torch.manual_seed(seed)
    model = Model(1 + 2 * task["symbols"], Made(variant, task["size"], task["heads"], task["head"], unit), task["size"])
    of = task["pairs"], task["rewritten"], task["length"], task["symbols"]
    test = recall(256, *of, torch.Generator().manual_seed(seed + 1_000_000))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=max(2, steps), pct_start=0.1)

    def losses(tokens: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        places = wanted != IGNORED
        logits, values = model(tokens, places), wanted[places]
        return functional.cross_entropy(logits, values), logits.argmax(-1) == values

    recent, begin = math.nan, time.perf_counter()
    for step in range(1, steps + 1):
        loss, _ = losses(*recall(task["batch"], *of, generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent = loss.item() if step == 1 else 0.9 * recent + 0.1 * loss.item()
        told(step, recent)
    spent = time.perf_counter() - begin
    with torch.no_grad():
        right = losses(*test)[1].float().mean().item()
    return {"accuracy": round(right, 4), "loss": round(recent, 4), "train_seconds": round(spent, 1),
            "parameters": sum(p.numel() for p in model.parameters())}  # fmt: skip
