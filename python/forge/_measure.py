"""Reports: what `check` found, and times of calls."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

QUIET = 0.05  #: the share of the cores that others may have without spoiling a measurement


class CheckReport:
    """The outcome of a check; true if every case is within tolerance."""

    def __init__(self, name: str, report: dict[str, Any]) -> None:
        for value in (v for c in report["cases"] for v in c["values"]):  # JSON has null for what is not finite
            value.update(
                {key: x for key, x in (("relative_rms", math.inf), ("max_abs", math.nan)) if value[key] is None}
            )
        self.name, self.report = name, report
        self.ok: bool = report["ok"]
        self.worst: float = max(
            (v["relative_rms"] for c in report["cases"] if c["admitted"] for v in c["values"]), default=0.0
        )

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        against = "its step" if self.report["against_step"] else "its own three phases in float64 (there is no step)"
        lines = [f"{self.name}: {self.report['chunk_dependence']}"] if "chunk_dependence" in self.report else []
        lines += [f"{self.name} against {against}; tolerance {self.report['tolerance']:g} (relative RMS)"]
        for case in self.report["cases"]:
            if not case["admitted"]:
                lines.append(f"  {case['name']:<50} not compared: the recurrence itself is not finite")
                continue
            worst = max(case["values"], key=lambda v: v["relative_rms"])
            verdict = "ok" if case["ok"] else "FAIL"
            text = f"  {case['name']:<50} {worst['name']:<12} {worst['relative_rms']:.2e}  {verdict}"
            if not case["ok"] and worst["head"] >= 0:
                token = "" if worst["token"] < 0 else f"token {worst['token']}, "
                text += f", first at {token}head {worst['head']} of sequence {worst['sequence']}"
            lines.append(text)
        return "\n".join([*lines, "ok" if self.ok else "FAILED"])

    __repr__ = __str__


@dataclass
class Cost:
    """What a call of one shape costs on a machine: counted and predicted, not measured. str() is a table with bars."""

    name: str
    entry: str
    device: str
    schedule: str
    engine: str
    tokens: int  #: per sequence
    sequences: int
    heads: int
    flops: float  #: of products and inverses, a multiply-add is two
    elementwise: float  #: other operations; an exponential counts as several
    bytes: float  #: from and to memory, by all kernels
    floor_bytes: float  #: of arguments and results alone
    workspace_bytes: float  #: what passes between kernels
    state_bytes: float  #: of one sequence and head
    tasks: int  #: of the kernel that takes longest
    roofline_seconds: float  #: no kernels of such chunks take less
    seconds: float  #: predicted
    bound: str  #: memory, matrix units, arithmetic, latency or launch
    beside: bool  #: the first kernel runs while the second does
    basis: str  #: what the prediction rests on
    kernels: list[dict[str, Any]]  #: name, tasks, hops, flops, bytes, …, seconds, bound of each (forge/cost.h)
    text: str = field(repr=False)  #: the table
    html: str = field(repr=False)  #: a page with a picture of the same

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


@dataclass
class Timing:
    """Times of a call, in seconds."""

    name: str
    shape: str
    strategy: str
    seconds: float  #: median
    runs: list[float]
    tokens_per_second: float
    flops_per_second: float
    others: float = 0.0  #: share of all cores that other processes used meanwhile

    @property
    def under_load(self) -> bool:
        """Whether other processes were so busy that the times are not the machine's best."""
        return self.others >= QUIET

    def __str__(self) -> str:
        load = f"; under load: other processes used {self.others:.0%} of the cores" if self.under_load else ""
        return (
            f"{self.name} {self.shape}, {self.strategy}: {self.seconds * 1e3:.3f} ms, "
            f"{self.tokens_per_second / 1e6:.3g} M tokens/s, "
            f"{self.flops_per_second / 1e9:.3g} GFLOP/s{load}"
        )


class Contention:
    """How much of the machine's cores other processes used since it was made; nothing where /proc/stat is missing."""

    def __init__(self) -> None:
        self._begin, self._start = time.monotonic(), self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds of all cores: busy, busy or not, busy with this process."""
        try:
            with open("/proc/stat", encoding="ascii") as stat:
                user, nice, system, idle, wait, irq, soft_irq, steal = (
                    int(x) / os.sysconf("SC_CLK_TCK") for x in stat.readline().split()[1:9]
                )
        except (OSError, ValueError):
            return 0.0, 0.0, 0.0
        busy = user + nice + system + irq + soft_irq + steal
        return busy, busy + idle + wait, sum(os.times()[:4])

    def others(self) -> float:
        """Their share; waits until two tenths of a second have passed, as the system counts hundredths."""
        time.sleep(max(0.0, 0.2 - (time.monotonic() - self._begin)))
        busy, everything, own = (end - start for end, start in zip(self._now(), self._start))
        return min(1.0, max(0.0, (busy - own) / everything)) if everything > 0 else 0.0


def default_device() -> str:
    """cuda:<current> if PyTorch is loaded and has a GPU, else cpu."""
    torch = sys.modules.get("torch")
    return f"cuda:{torch.cuda.current_device()}" if torch is not None and torch.cuda.is_available() else "cpu"


def architecture(device: str) -> str:
    """Of a GPU, as the targets of packages are called."""
    major, minor = sys.modules["torch"].cuda.get_device_capability(device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def _arrays_of(device: str) -> Any:
    """(random, to, synchronize): normal numbers of a shape as float32, conversion, and waiting for the device."""
    if device == "cpu" and "torch" not in sys.modules:
        import numpy

        from ._arrays import NumPy

        numpys, rng = NumPy(), numpy.random.default_rng(0)
        return (
            lambda shape: rng.standard_normal(shape, numpy.float32),
            lambda x, dtype: x.astype(numpys.numpy_dtype(dtype)),
            lambda: None,
        )
    import torch

    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
    wait = (lambda: torch.cuda.synchronize(device)) if device != "cpu" else (lambda: None)
    return lambda shape: torch.randn(*shape, device=device), lambda x, dtype: x.to(types[dtype]), wait


def benchmark(
    attention: Any, B: int, T: int, H: int, device: str, dtype: str, runs: int, sizes: dict[str, int]
) -> Timing:
    """16-bit inputs are small normal numbers, 32-bit ones small negative numbers: gates, as a rule."""
    import statistics  # which imports a dozen modules

    normal, to, wait = _arrays_of(device)
    known = {"T": T, **{h: sizes.get(h, H) for h in attention.signature.head_symbols}, **sizes}
    arguments = {}
    for i in attention.signature.tensors:
        shape = [
            int(d) if d.isdigit() else (int(d.partition("*")[0]) if "*" in d else 1) * known[d.partition("*")[2] or d]
            for d in i.dims
        ]
        x = normal(([B] if i.kind == "input" else []) + shape)
        half = i.dtype in ("bf16", "f16")
        arguments[i.name] = to(x * (shape[-1] ** -0.5) if half else -abs(x) * 0.1, dtype if half else i.dtype)
    for i in attention.signature.scalars:
        arguments[i.name] = 1.0

    def seconds_of_call() -> float:
        wait()
        begin = time.perf_counter()
        attention(**arguments)
        wait()
        return time.perf_counter() - begin

    for _ in range(2):  # the first compiles
        seconds_of_call()
    contention = Contention()
    times = [seconds_of_call() for _ in range(runs)]
    seconds, info = statistics.median(times), attention.info
    heads = max((known[h] for h in attention.signature.head_symbols), default=1)
    called, how = (
        f"B={B} T={T} H={heads} {dtype} on {device} ({info['arch']})",
        f"{info['strategy']}, chunks of {info['chunk']}",
    )
    return Timing(attention.name, called, how, seconds, times,
                  B * T / seconds, info["flops_per_token"] * B * T * heads / seconds, contention.others())  # fmt: skip
