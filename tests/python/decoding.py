"""Inputs for any definition, parts of them, and pools of states: what tests of decoding have in common on every
device."""

from __future__ import annotations

import numpy as np

SIZES = {"H": 2, "HV": 4, "K": 16, "V": 12, "D": 12}


def inputs_of(attn, B: int, T: int, seed: int = 0, **sizes: int) -> dict:
    """float32 inputs of a definition, by its names: unit keys, gates from logsigmoid, betas in (0, 1), other numbers
    normal."""
    rng = np.random.default_rng(seed)
    known = {**SIZES, **sizes, "T": T}

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    x = {}
    for i in attn.signature.tensors:
        pairs = [d.rpartition("*") for d in i.dims]
        shape = [int(factor or 1) * known[symbol] for factor, _, symbol in pairs]
        a = rng.standard_normal([B, *shape] if i.kind == "input" else shape)
        if i.name == "k":
            a /= np.linalg.norm(a, axis=-1, keepdims=True)
        x[i.name] = {"g": np.log(sigmoid(a)), "gamma_log": np.log(sigmoid(a)), "beta": sigmoid(a), "slope": abs(a)}.get(
            i.name, a
        ).astype(np.float32)
    return x


def rounded(attn, x: dict, to_half) -> dict:
    """The same with what the definition declares as 16-bit in such a type."""
    return {i.name: x[i.name] if i.dtype == "f32" else to_half(x[i.name]) for i in attn.signature.tensors}


def numbers_of(attn) -> dict:
    return {i.name: 0.25 for i in attn.signature.scalars}


def tokens(attn, x: dict, T: int, begin: int, end: int) -> dict:
    """Some of the T tokens of each sequence."""
    kinds = {i.name: i.kind for i in attn.signature.tensors}
    return {
        n: a[:, begin * (a.shape[1] // T) : end * (a.shape[1] // T)] if kinds[n] == "input" else a for n, a in x.items()
    }


def listed(states) -> list:
    return list(states) if isinstance(states, tuple) else [states]
