"""Searching among variants: given ones, and every one that some choices of parts make, with what each costs on a
machine and, on wish, how well it learns to recall. `forge search` on the command line; python -m forge._search is the
same."""

from __future__ import annotations

import argparse
import csv as csv_module
import hashlib
import itertools
import math
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any

from . import _c, _compose
from . import variants as ready_made
from ._calls import factor_of
from ._suggest import suggestion
from ._types import SymbTensor
from .attention import Attention

FUNCTIONS = ("mask", "transition")
#: features that give queries and keys a length of their own: the layers of others have them at length 1
_OF_ANY_LENGTH = ("elu", "softmax", "squared")


@dataclass
class Found:
    """A variant that was found: a row of the CSV."""

    variant: str  #: its choices that are not the first, "decay=scalar update=delta"
    definition: str  #: a digest of its text
    on: str
    tokens: int
    heads: int
    K: int
    V: int
    dtype: str
    operations: float = math.nan
    bytes: float = math.nan
    state_bytes: float = math.nan  #: of one head
    seconds: float = math.nan  #: predicted, of a forward pass
    bound: str = ""
    kernels: str = ""
    steps: int = 0  #: of training; 0: none
    seed: int = 0
    rate: float = math.nan  #: the learning rate that ended best
    accuracy: float = math.nan
    loss: float = math.nan
    parameters: int = 0
    train_seconds: float = math.nan
    error: str = ""  #: why there is no price, or no accuracy

    @property
    def key(self) -> tuple[Any, ...]:
        return self.variant, self.definition, self.on, self.tokens, self.heads, self.K, self.V, self.dtype


@dataclass
class SearchReport:
    """What a search found, the fastest first. str() is a table; `pareto` are those that nothing else is both faster
    and better than."""

    found: list[Found]
    refused: dict[str, str] = field(default_factory=dict)  #: choices that make no variant, with the reason

    @property
    def pareto(self) -> list[Found]:
        best, front = -math.inf, []
        for row in sorted(self.found, key=lambda r: (r.seconds, -r.accuracy)):
            if row.accuracy > best and math.isfinite(row.seconds):
                best = row.accuracy
                front.append(row)
        return front

    def __str__(self) -> str:
        trained = any(r.steps for r in self.found)
        head = ["variant", "operations", "bytes", "state", "time", "bound by", *(["accuracy"] if trained else [])]
        front = {id(r) for r in self.pareto}
        lines = [head]
        for r in self.found:
            cells = [r.variant, amount(r.operations), amount(r.bytes) + "B", amount(r.state_bytes) + "B",
                     microseconds(r.seconds), r.bound]  # fmt: skip
            if r.error and not r.bound:
                cells = [r.variant, "", "", "", "", r.error.splitlines()[0]]
            if trained:
                why = r.error if r.bound else ""
                cells.append(why if math.isnan(r.accuracy) else f"{r.accuracy:.3f}{' *' if id(r) in front else ''}")
            lines.append(cells)
        widths = [max(len(line[i]) if i < len(line) else 0 for line in lines) for i in range(len(head))]
        text = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines]
        if trained:
            text.append("*: nothing else is both faster and better")
        if self.refused:
            text.append(f"{len(self.refused)} other combinations make no variant, such as "
                        + "; ".join(f"{n}: {why}" for n, why in itertools.islice(self.refused.items(), 1)))  # fmt: skip
        return "\n".join(text)


def amount(n: float) -> str:
    if not math.isfinite(n):
        return ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g} {letter}"
    return f"{n:.3g} "


def microseconds(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"


# ---------------------------------------------------------------------------------------------------------- variants


def _listed(part: str, value: Any) -> list[Any]:
    """The choices of a part: one, several, or "all"."""
    if part in FUNCTIONS:
        given = list(value) if isinstance(value, (tuple, list)) else [value]
        if wrong := [x for x in given if x is not None and not callable(x)]:
            raise TypeError(f"search: argument {part!r}: expected functions, or None, got {wrong[0]!r}")
        return given
    if value == "all":
        return list(_compose.CHOICES[part]) if part in _compose.CHOICES else list(range(2, 9))
    if callable(value):
        raise TypeError(
            f"search: argument {part!r}: expected names, got the function {getattr(value, '__name__', value)!r}; "
            "functions are choices of mask and transition, and a whole step is a variant: "
            "search([LinearAttention(..., step=...)])"
        )
    return [value] if isinstance(value, (str, int)) else list(value)


def given_variants(variants: Attention | str | Iterable[Attention | str]) -> list[Attention]:
    """Own ones, and ready-made ones by their names."""
    listed = [variants] if isinstance(variants, (Attention, str)) else list(variants)
    if wrong := [x for x in listed if not isinstance(x, (Attention, str))]:
        raise TypeError(
            "search: argument 'variants': expected variants, such as LinearAttention(..., step=...), or names of "
            f"ready-made ones, got {wrong[0]!r}"
        )
    known = ready_made.names()
    if unknown := [x for x in listed if isinstance(x, str) and x not in known]:
        raise ValueError(f"search: there is no variant {unknown[0]!r}{suggestion(unknown[0], known)}")
    return [getattr(ready_made, x) if isinstance(x, str) else x for x in listed]


def combinations(
    parts: Mapping[str, Any], inputs: Mapping[str, SymbTensor] | None
) -> Iterator[tuple[str, dict[str, Any], Attention | str]]:
    """(name, choices, the variant or why there is none) of every combination, each definition once."""
    known = [*_compose.CHOICES, "rank", *FUNCTIONS]
    for part in parts:
        if part not in known:
            whole = (
                "; a variant of your own goes into variants=[LinearAttention(..., step=...)]" if part == "step" else ""
            )
            raise TypeError(
                f"search: unknown part {part!r}{suggestion(part, known)}; expected {', '.join(known)}{whole}"
            )
    seen: set[str] = set()
    listed = {part: _listed(part, value) for part, value in parts.items()}
    for values in itertools.product(*listed.values()):
        chosen = dict(zip(listed, values))
        usual = {part: choices[0] for part, choices in _compose.CHOICES.items()} | {"rank": 2}
        names = [f"{p}={getattr(x, '__name__', x)}" for p, x in chosen.items() if x != usual.get(p)]
        name = " ".join(names) or "linear attention"
        try:
            own: dict[str, Any] = {"inputs": inputs} if any(chosen.get(f) for f in FUNCTIONS) else {}
            variant = _compose.compose(**chosen, name="composed", **own)  # equal definitions have equal names
        except (ValueError, _c.CompileError) as refused:
            yield name, chosen, str(refused).removeprefix("compose: ")
            continue
        if variant.definition not in seen:
            seen.add(variant.definition)
            yield name, chosen, variant


def search(
    variants: Attention | str | Iterable[Attention | str] = (), *,
    on: str = "h200", tokens: int = 8192, heads: int = 32, K: int = 128, V: int = 128, dtype: str = "bf16",
    train: int = 0, rates: Sequence[float] = (1e-2,), seed: int = 0, csv: str | os.PathLike[str] | None = None,
    plot: str | os.PathLike[str] | None = None, inputs: Mapping[str, SymbTensor] | None = None,
    progress: bool = True, **parts: Any,
) -> SearchReport:  # fmt: skip
    """Given variants, and every one that `compose` makes of given choices, with its price, and how well it learns.

    variants    of your own, LinearAttention(..., step=...) or another Attention, and ready-made ones by name. Layers
                that are trained give them q, k and v, and projections of a token for their other inputs, taken to the
                ranges that these declare. A ring marks own ones in the plot
    parts       of compose: a choice, several, or "all"; mask and transition: functions, or None for none, whose names
                are those of rows, and whose inputs are `inputs`. Parts that are not given have their first choice
    on          the machine that calls are priced for: h200, a100, … or a file of facts; nothing is compiled
    tokens, heads, K, V, dtype      of a call, of one sequence
    train       steps on the recall task of docs/quality.md, keys rewritten; 0: none. It needs PyTorch, and compiles for
                this machine. `rates`: learning rates, of which the one that ends best counts; `seed`
    csv         a file of results, written after each; what it has already is not done again
    plot        an SVG file: accuracy against the predicted time, or where nothing was trained bytes of states

    The report prints as a table. Choices that make no variant are in its `refused`.
    """
    sizes: dict[str, Any] = {"on": on, "tokens": tokens, "heads": heads, "K": K, "V": V, "dtype": dtype}
    file = None if csv is None else Path(csv)
    known = {} if file is None or not file.exists() else {r.key: r for r in read(file)}
    given = given_variants(variants)
    own = {v.name for v in given if v.name not in ready_made.names()}
    made: list[tuple[str, dict[str, Any], Attention]] = [(v.name, {}, v) for v in given]
    refused: dict[str, str] = {}
    for name, chosen, variant in combinations(parts, inputs) if parts or not given else ():
        if isinstance(variant, str):
            refused[name] = variant
        else:
            made.append((name, chosen, variant))
    if not made:
        raise ValueError("search: these choices make no variant: " + "; ".join(f"{n}: {w}" for n, w in refused.items()))
    rows: list[Found] = []
    line = Line(progress, len(made))
    for n, (name, chosen, variant) in enumerate(made, 1):
        line.at(n, name)
        digest = hashlib.sha256(variant.definition.encode()).hexdigest()[:12]
        new = Found(name, digest, **sizes)
        row = known.pop(new.key, new)
        if row is new:
            price(row, variant)
        if train and (row.steps, row.seed) != (train, seed):
            learn(row, variant, chosen, train, rates, seed, line)
        rows.append(row)
        if file is not None:
            write(file, [*rows, *known.values()])
    line.end()
    report = SearchReport(sorted(rows, key=lambda r: r.seconds if math.isfinite(r.seconds) else math.inf), refused)
    if plot is not None:
        Path(plot).write_text(picture(report, own), encoding="utf-8")
    return report


def price(row: Found, variant: Attention) -> None:
    """By the model of forge cost."""
    symbols = {s: row.V if s == "V" else row.K for s in variant.signature.symbols}
    k = next((i for i in variant.signature.tensors if i.name == "k"), None)
    if k is not None and k.dims[-1] == "2*K":  # pairs of channels: as many channels as others have
        symbols["K"] = row.K // 2
    try:
        cost = variant.cost(
            on=row.on, entry="forward", dtype=row.dtype, tokens=row.tokens, sequences=1, heads=row.heads, **symbols
        )
    except _c.Error as wrong:
        row.error = str(wrong)
        return
    row.operations, row.bytes, row.state_bytes = cost.flops + cost.elementwise, cost.bytes, cost.state_bytes
    row.seconds, row.bound, row.kernels = cost.seconds, cost.bound, cost.engine


def unbounded(variant: Attention) -> str:
    """`; …`, where inputs have no range that would keep a state from growing."""
    declared = re.findall(r"^  (?:input|head) (\w+): (?!.*range=)", variant.definition, re.MULTILINE)
    named = [name for name in declared if name not in ("q", "k", "v")]
    return f"; of its inputs {', '.join(named)} have no range" if named else ""


def not_trained(variant: Attention) -> str:
    """Why no layer is made of it; empty: one is."""
    signature = variant.signature
    if missing := {"q", "k", "v"} - {i.name for i in signature.tensors}:
        return f"layers have q, k and v, and it has no {min(missing)}"
    if len(signature.outputs) != 1 or any(factor_of(dims[0]) > 1 for dims in signature.outputs.values()):
        return "layers have one row of one output for each token"
    return ""


def learn(
    row: Found, variant: Attention, chosen: Mapping[str, Any], steps: int, rates: Sequence[float], seed: int, line: Line
) -> None:
    try:
        from . import _recall
    except ImportError as missing:
        raise ImportError(f"search: argument 'train': needs PyTorch ({missing})") from missing
    row.steps, row.seed, row.accuracy, row.error = steps, seed, math.nan, ""
    if why := not_trained(variant):
        row.error = f"{variant.name} is not trained: {why}"
        line.done(row.error)
        return
    for rate in rates:

        def told(step: int, loss: float, rate: float = rate) -> None:
            line.at(text=f"rate {rate:g}, step {step}/{steps}, loss {loss:.3f}")

        try:
            unit = chosen.get("features", "identity") not in _OF_ANY_LENGTH
            found = _recall.train(variant, steps, rate, seed, unit, told)
        except _c.Error as wrong:
            row.error = str(wrong)
            return
        if not math.isfinite(found["loss"]):
            row.error = f"diverged at the learning rate {rate:g}{unbounded(variant)}"
        elif not found["accuracy"] <= row.accuracy:
            row.error = ""
            row.rate = rate
            for name, value in found.items():
                setattr(row, name, value)
    line.done(row.error or f"accuracy {row.accuracy:.3f}, {row.train_seconds:.0f} s")


class Line:
    """What is being done, on the terminal's last line; where there is none, a line per variant."""

    def __init__(self, wanted: bool, count: int) -> None:
        self.stream, self.count = sys.stderr if wanted else None, count
        self.live = self.stream is not None and self.stream.isatty()
        self.name, self.n, self.shown = "", 0, 0.0

    def at(self, n: int | None = None, name: str | None = None, text: str = "priced") -> None:
        self.n, self.name = n or self.n, name if name is not None else self.name
        now = time.monotonic()
        if self.live and (name is not None or now - self.shown > 0.1):
            self._write(f"\r\x1b[K[{self.n}/{self.count}] {self.name}: {text}")
            self.shown = now

    def done(self, text: str) -> None:
        start, end = ("\r\x1b[K", "\n") if self.live else ("", "\n")
        self._write(f"{start}[{self.n}/{self.count}] {self.name}: {text}{end}")

    def end(self) -> None:
        if self.live:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self.stream is not None:
            self.stream.write(text)
            self.stream.flush()


# ------------------------------------------------------------------------------------------------------------- files


def write(file: Path, rows: Iterable[Found]) -> None:
    """Whole, or not at all."""
    new = file.with_name(file.name + ".new")
    with new.open("w", newline="", encoding="utf-8") as out:
        writer = csv_module.writer(out)
        writer.writerow([f.name for f in fields(Found)])
        writer.writerows([getattr(r, f.name) for f in fields(Found)] for r in rows)
    new.replace(file)


def read(file: Path) -> list[Found]:
    kinds = {"int": int, "float": float, "str": str}
    with file.open(newline="", encoding="utf-8") as text:
        rows = [*csv_module.DictReader(text)]
    names = [f.name for f in fields(Found)]
    if rows and list(rows[0]) != names:
        raise ValueError(f"search: {file}: expected the columns {','.join(names)}, got {','.join(map(str, rows[0]))}")
    return [Found(**{f.name: kinds[str(f.type)](r[f.name]) for f in fields(Found)}) for r in rows]


def picture(report: SearchReport, own: Collection[str] = ()) -> str:
    """A scatter plot of what was found, time on a logarithmic axis, with a line through the best, and a ring around
    one's own."""
    rows = [r for r in report.found if math.isfinite(r.seconds)]
    trained = [r for r in rows if math.isfinite(r.accuracy)]
    shown, front = (trained, report.pareto) if trained else (rows, [])

    def value(r: Found) -> float:
        return r.accuracy if trained else r.state_bytes

    top = 1.0 if trained else max((value(r) for r in shown), default=1.0)
    times = [r.seconds * 1e6 for r in shown] or [1.0]
    low, high = min(times) / 1.3, max(times) * 1.3
    width, height, left, above, below = 760, 440, 64, 20, 52
    across, down = width - left - 200, height - above - below

    def x_of(us: float) -> float:
        return left + across * math.log(us / low) / math.log(high / low)

    def y_of(y: float) -> float:
        return above + down * (1 - y / top)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           'font-size="11">', f'<rect width="{width}" height="{height}" fill="#ffffff"/>']  # fmt: skip
    for share in (0, 0.25, 0.5, 0.75, 1):
        y, text = y_of(share * top), f"{share:.2f}" if trained else amount(share * top) + "B"
        out += [f'<line x1="{left}" y1="{y:.1f}" x2="{width - 10}" y2="{y:.1f}" stroke="#dddddd"/>',
                f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>']  # fmt: skip
    for us in ticks(low, high):
        out.append(f'<text x="{x_of(us):.1f}" y="{height - below + 18}" text-anchor="middle">{us:g}</text>')
    about = rows[0] if rows else report.found[0]
    what = (
        f"predicted microseconds: {about.tokens} tokens, {about.heads} heads, K = {about.K}, V = {about.V}, {about.on}"
    )
    side = f"accuracy after {trained[0].steps} steps" if trained else "bytes of a head's states"
    out += [
        f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{escape(what)}</text>',
        f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">{side}</text>',
    ]
    if len(front) > 1:
        points = " ".join(f"{x_of(r.seconds * 1e6):.1f},{y_of(value(r)):.1f}" for r in front)
        out.append(f'<polyline points="{points}" fill="none" stroke="#d1662a" stroke-width="1.5"/>')
    taken: list[tuple[float, float]] = []
    for r in sorted(shown, key=lambda r: -value(r)):
        x, y = x_of(r.seconds * 1e6), y_of(value(r))
        label = y + 4
        while any(abs(label - ty) < 12 and abs(x - tx) < 190 for tx, ty in taken):
            label += 12  # names that would lie on one another
        taken.append((x, label))
        colour = "#d1662a" if any(r is f for f in front) else "#1f5fa8"
        if r.variant in own:
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
                f'<text x="{x + 8:.1f}" y="{label:.1f}">{escape(r.variant)}</text>']  # fmt: skip
    return "\n".join([*out, "</svg>"]) + "\n"


def ticks(low: float, high: float) -> list[float]:
    steps = [m * 10.0**e for e in range(-1, 9) for m in (1, 2, 5)]
    return [s for s in steps if low <= s <= high]


# ------------------------------------------------------------------------------------------------------ command line


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="forge search",
        description="Price variants for a machine and, with --train, see how well they learn: ready-made ones, those "
        "of files in text form, and all that given choices of parts make. A part takes one choice, several with "
        "commas, or all; forge compose --list has them.",
        epilog="Example:  forge search --decay none,scalar --update additive,delta --on h200 --train 300 "
        "--csv found.csv --plot found.svg",
    )
    parser.add_argument(
        "variants", nargs="*", metavar="VARIANT|FILE", help="a name of forge list, or a file in text form"
    )
    for part, choices in _compose.CHOICES.items():
        parser.add_argument(f"--{part}", metavar="CHOICES", help=", ".join(choices))
    parser.add_argument("--rank", metavar="N", help="keys and values per token of householder and mimo, 2 to 8")
    for name, default, what in (
        ("on", "h200", "the machine: a name or a file of facts"), ("dtype", "bf16", "bf16, f16 or f32"),
        ("T", 8192, "tokens"), ("H", 32, "heads"), ("K", 128, "size of a key"), ("V", 128, "size of a value"),
        ("train", 0, "steps on the recall task; needs PyTorch"), ("seed", 0, "of training"),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{what} ({default})")
    parser.add_argument("--rates", default="0.01", help="learning rates, with commas; the best counts (0.01)")
    parser.add_argument("--csv", help="where results go; what is there already is not done again")
    parser.add_argument("--plot", help="an SVG file of accuracy against time")
    o = parser.parse_args(words)
    parts = {p: x if x == "all" else x.split(",") for p in _compose.CHOICES if (x := getattr(o, p)) is not None}
    try:
        if o.rank:
            parts["rank"] = [int(n) for n in o.rank.split(",")]
        rates = [float(r) for r in o.rates.split(",")]
        named = [Attention(Path(x).read_text("utf-8")) if Path(x).is_file() else x for x in o.variants]
        report = search(named, on=o.on, tokens=o.T, heads=o.H, K=o.K, V=o.V, dtype=o.dtype, train=o.train, rates=rates,
                        seed=o.seed, csv=o.csv, plot=o.plot, **parts)  # fmt: skip
    except (ValueError, TypeError, ImportError, OSError, _c.Error) as wrong:
        print(f"forge: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nforge: stopped{f'; the same command goes on from {o.csv}' if o.csv else ''}", file=sys.stderr)
        return 130
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
