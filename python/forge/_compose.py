"""Variants from parts: `compose` asks the library for the recurrence of named choices, of which it derives the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _c
from .attention import Attention


def __getattr__(name: str) -> Any:
    if name == "CHOICES":  # what there is to choose from, by part; the first of each is the default
        return {part["name"]: tuple(c["name"] for c in part["choices"]) for part in _c.composition_parts()}
    raise AttributeError(f"module 'forge._compose' has no attribute {name!r}")


def refusal(**chosen: Any) -> str | None:
    """Why these choices make no variant; None if they make one."""
    try:
        _c.compose(chosen)
    except ValueError as refused:
        return str(refused).removeprefix("compose: ")
    return None


def compose(
    decay: str = "none",
    features: str = "identity",
    update: str = "additive",
    read: str = "after",
    normalise: str = "none",
    discretise: str = "euler",
    gate: str = "log",
    rank: int = 2,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Attention:
    """A variant from the field's usual parts, by name; its recurrence is written of them, its phases are derived.

    decay       what the state is multiplied by: none, head (a constant g per head), scalar, vector (per key channel) or
                value (per value channel), all data-dependent but head
    gate        what g is: log, the logarithm of the decay, or raw, before a sigmoid
    features    of queries and keys: identity, elu (elu(x) + 1), softmax, cosine (unit length), squared, rotary (turned
                by the place times theta per head), rotary-data (turned by the sum of theta so far)
    update      additive; delta; oja (the delta rule on the side of the values: S + beta (k - S v) vᵀ); householder (as
                many delta steps per token as `rank`, on rows 2t and 2t + 1 of k, v and beta if that is 2); dplr (S -
                rate p pᵀ S + k vᵀ); mimo (`rank` keys and values per token); momentum (mu before a sigmoid)
    read        queries read the state after the token, or before it
    normalise   none, or sum: outputs are divided by what queries read of the sum of keys
    discretise  euler; zero-order-hold (keys times 1 - decay); trapezoidal (this token's input and the last one's)
    rank        keys and values per token, 2 to 8, of householder and mimo

    ValueError for what there is not, and for choices that make no variant together, with the reason.
    `forge compose --decay vector --update delta` is the same on the command line, forge/compose.h in C++.
    """
    chosen = dict(
        decay=decay, gate=gate, features=features, update=update, read=read, normalise=normalise, discretise=discretise
    )
    more = {"rank": rank, **({} if name is None else {"name": name})}
    return Attention(_c.compose({**chosen, **more}), options=options)
