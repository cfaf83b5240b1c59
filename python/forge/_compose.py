"""Variants from parts: `compose` writes the recurrence of one token of named choices, and derives the rest."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from . import _functions as f
from ._types import SymbTensor
from .linear_attention import LinearAttention

#: What there is to choose from. The first of each is the default.
CHOICES: dict[str, tuple[str, ...]] = {
    "decay": ("none", "head", "scalar", "vector", "value"),
    "gate": ("log", "raw"),
    "features": ("identity", "elu", "softmax", "cosine", "squared", "rotary", "rotary-data"),
    "update": ("additive", "delta", "householder", "dplr", "mimo", "momentum"),
    "read": ("after", "before"),
    "normalise": ("none", "sum"),
    "discretise": ("euler", "zero-order-hold", "trapezoidal"),
}

_LOG_DECAYS = (-math.inf, 0.0)


def refusal(**chosen: str) -> str | None:
    """Why these choices make no variant; None if they make one."""
    decay, update, discretise = chosen["decay"], chosen["update"], chosen["discretise"]
    reads = update in ("delta", "householder", "dplr")
    if decay == "none" and chosen["gate"] == "raw":
        return "gate='raw' is the form of a decay, and decay='none'"
    if decay == "value" and reads:
        return f"update={update!r} reads the state with a key, and columns that decay apart have no common system"
    if decay in ("vector", "value") and update == "momentum":
        return "update='momentum' adds one matrix to another, which is a product of matrices for decays by numbers only"
    if chosen["normalise"] == "sum" and update != "additive":
        return f"normalise='sum' divides by a sum of weights, and update={update!r} takes values out again"
    if chosen["normalise"] == "sum" and decay == "value":
        return "normalise='sum' sums the weights of keys, and decay='value' gives every value channel other weights"
    if chosen["normalise"] == "sum" and chosen["features"] in ("identity", "cosine", "rotary", "rotary-data"):
        return (
            f"normalise='sum' needs weights that are not negative, and features={chosen['features']!r} are of any sign"
        )
    if discretise != "euler" and update != "additive":
        return f"discretise={discretise!r} is a rule for an input that is added, and update={update!r} has its own"
    if discretise != "euler" and decay in ("none", "value"):
        return f"discretise={discretise!r} follows from a decay of keys, and decay={decay!r}"
    if discretise == "trapezoidal" and chosen["features"] in ("rotary", "rotary-data"):
        return "discretise='trapezoidal' reads the key before, whose angle prev_token does not know"
    return None


class _Parts:
    """The pieces of one token's recurrence that the choices stand for."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self.chosen = chosen
        rotary = chosen["features"].startswith("rotary")
        keys = "2*K" if rotary else "K"
        rows = "2*T" if chosen["update"] in ("householder", "mimo") else "T"
        self.meta: dict[str, Any] = {
            "q": SymbTensor(["T", "H", keys]), "k": SymbTensor([rows, "H", keys]), "v": SymbTensor([rows, "H", "V"]),
        }  # fmt: skip
        gate_range = _LOG_DECAYS if chosen["gate"] == "log" else None
        shapes = {"head": ["H"], "scalar": ["T", "H"], "vector": ["T", "H", keys], "value": ["T", "H", "V"]}
        if chosen["decay"] in shapes:
            self.meta["g"] = SymbTensor(shapes[chosen["decay"]], range=gate_range)
        if chosen["features"] == "rotary":
            self.meta["theta"] = SymbTensor(["H", "K"], range=(0, 1 / 16))  # places times larger ones round
        if chosen["features"] == "rotary-data":
            self.meta["theta"] = SymbTensor(["T", "H", "K"])
        if chosen["update"] in ("delta", "householder", "momentum"):
            self.meta["beta"] = SymbTensor([rows, "H"], range=(0, 1))
        if chosen["update"] == "dplr":
            self.meta |= {"p": SymbTensor(["T", "H", keys]), "rate": SymbTensor(["T", "H"], range=(0, 1))}
        if chosen["update"] == "momentum":
            self.meta["mu"] = SymbTensor(["T", "H"])
        if chosen["discretise"] == "trapezoidal":
            self.meta["mix"] = SymbTensor(["T", "H"], range=(0, 1))
        self.meta["prev_s"] = SymbTensor(["NS", "H", keys, "V"])
        if chosen["update"] == "momentum":
            self.meta["prev_m"] = SymbTensor(["NS", "H", keys, "V"])
        if chosen["normalise"] == "sum":
            self.meta["prev_z"] = SymbTensor(["NS", "H", keys])
        if chosen["features"] == "rotary":
            self.meta["prev_place"] = SymbTensor(["NS", "H"])
        if chosen["features"] == "rotary-data":
            self.meta["prev_angle"] = SymbTensor(["NS", "H", "K"])

    def features(self, x: Any, angle: Any) -> Any:
        kind = self.chosen["features"]
        if kind == "elu":
            return f.where(x > 0, x + 1, f.exp(f.minimum(x, 0)))
        if kind == "softmax":
            return f.softmax(x, -1)
        if kind == "cosine":
            return f.l2norm(x)
        if kind == "squared":
            return x * x
        if kind.startswith("rotary"):
            a, b = x.chunk(2, -1)
            return f.concat([a * f.cos(angle) - b * f.sin(angle), b * f.cos(angle) + a * f.sin(angle)], -1)
        return x

    def decay(self, a: Mapping[str, Any]) -> Any:
        """The factor of the state, with the axes that it lacks."""
        if self.chosen["decay"] == "none":
            return 1.0
        factor = f.exp(a["g"]) if self.chosen["gate"] == "log" else f.sigmoid(a["g"])
        return {"vector": lambda: factor[:, None], "value": lambda: factor[None, :]}.get(
            self.chosen["decay"], lambda: factor
        )()

    def step(self, **a: Any) -> dict[str, Any]:
        chosen, state, factor = self.chosen, a["prev_s"], self.decay(a)
        results: dict[str, Any] = {}
        angle = None
        if "prev_angle" in a:
            angle = results["angle"] = a["prev_angle"] + a["theta"]
        if "prev_place" in a:
            angle, results["place"] = a["prev_place"] * a["theta"], a["prev_place"] + 1
        q = self.features(a["q"], angle)
        kept = state * factor
        if chosen["update"] in ("householder", "mimo"):
            after = kept
            for row in (0, 1):
                k, v = self.features(a["k"][row], angle), a["v"][row]
                if chosen["update"] == "householder":
                    v = (v - f.l2norm(k) @ after) * a["beta"][row]
                    k = f.l2norm(k)
                after = after + f.outer(k, v)
        else:
            k, v = self.features(a["k"], angle), a["v"]
            after = self.updated(a, kept, factor, k, v, results)
        results["s"] = after
        o = q @ (after if chosen["read"] == "after" else state)
        if chosen["normalise"] == "sum":
            numbers = factor[:, 0] if chosen["decay"] == "vector" else factor
            held = 1 - numbers if chosen["discretise"] == "zero-order-hold" else 1.0
            z = a["prev_z"] * numbers + (self.trapezoid(a, numbers, k) if "mix" in a else k * held)
            results["z"] = z
            o = o / (abs((q * (z if chosen["read"] == "after" else a["prev_z"])).sum(0)) + 1e-3)
        return {**results, "o": o}

    def trapezoid(self, a: Mapping[str, Any], factor: Any, k: Any) -> Any:
        """The key of a normaliser by the same rule as the state's."""
        return k * a["mix"] + self.features(f.prev_token(a["k"]), None) * (1 - a["mix"]) * factor

    def updated(self, a: Mapping[str, Any], kept: Any, factor: Any, k: Any, v: Any, results: dict[str, Any]) -> Any:
        update, discretise = self.chosen["update"], self.chosen["discretise"]
        if update == "delta":
            unit = f.l2norm(k)
            return kept + f.outer(unit, (v - unit @ kept) * a["beta"])
        if update == "dplr":
            unit = f.l2norm(a["p"])
            return kept - f.outer(unit * a["rate"], unit @ a["prev_s"]) + f.outer(k, v)
        if update == "momentum":
            momentum = results["m"] = a["prev_m"] * f.sigmoid(a["mu"]) + f.outer(k, v * a["beta"])
            return kept + momentum
        if discretise == "zero-order-hold":
            held = 1 - (factor[:, 0] if self.chosen["decay"] == "vector" else factor)
            return kept + f.outer(k * held, v)
        if discretise == "trapezoidal":
            before = f.outer(self.features(f.prev_token(a["k"]), None), f.prev_token(a["v"]))
            return kept + before * factor * (1 - a["mix"]) + f.outer(k, v) * a["mix"]
        return kept + f.outer(k, v)


def compose(
    decay: str = "none",
    features: str = "identity",
    update: str = "additive",
    read: str = "after",
    normalise: str = "none",
    discretise: str = "euler",
    gate: str = "log",
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> LinearAttention:
    """A variant from the field's usual parts, by name; its recurrence is written of them, its phases are derived.

    decay       what the state is multiplied by: none, head (a constant g per head), scalar, vector (per key channel) or
                value (per value channel), all data-dependent but head
    gate        what g is: log, the logarithm of the decay, or raw, before a sigmoid
    features    of queries and keys: identity, elu (elu(x) + 1), softmax, cosine (unit length), squared, rotary (turned
                by the place times theta per head), rotary-data (turned by the sum of theta so far)
    update      additive; delta; householder (two delta steps per token, on rows 2t and 2t + 1 of k, v and beta); dplr
                (S - rate p pᵀ S + k vᵀ); mimo (two keys and values per token); momentum (mu before a sigmoid)
    read        queries read the state after the token, or before it
    normalise   none, or sum: outputs are divided by what queries read of the sum of keys
    discretise  euler; zero-order-hold (keys times 1 - decay); trapezoidal (this token's input and the last one's)

    ValueError for what there is not, and for choices that make no variant together, with the reason.
    """
    chosen = dict(
        decay=decay, gate=gate, features=features, update=update, read=read, normalise=normalise, discretise=discretise
    )
    for part, value in chosen.items():
        if value not in CHOICES[part]:
            raise ValueError(f"compose: argument '{part}': expected {', '.join(CHOICES[part])}, got {value!r}")
    if reason := refusal(**chosen):
        raise ValueError(f"compose: {reason}")
    parts = _Parts(chosen)
    differing = [v for part, v in chosen.items() if v != CHOICES[part][0]]
    return LinearAttention(
        parts.meta,
        step=_with_names(parts.step, list(parts.meta)),
        name=name or "_".join(["composed", *differing]).replace("-", "_"),
        options=options,
    )


def _with_names(step: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """`step`, whose parameters have these names for who asks."""

    def named(**arguments: Any) -> Any:
        return step(**arguments)

    named.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in names]
    )
    return named
