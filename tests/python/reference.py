"""The recurrences of forge.ops token by token in float64, and inputs for them. NumPy alone: tests on every device use
it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0, x)


def unit(x):
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


@dataclass
class Case:
    """A call of an operator: `inputs` in its own argument order, `keywords`, and what they mean for the recurrence."""

    op: str
    gate: str = ""  #: "", scalar or vector
    delta: bool = False
    rows: int = 1  #: of k, v and beta per token
    keywords: dict = field(default_factory=dict)
    raw_gate: str = ""  #: "", plain or bounded
    groups: int = 1  #: value heads per query head
    beta_dtype: str = "half"
    name: str = ""

    def __str__(self):
        return self.name or self.op.removeprefix("chunk_")


CASES = [
    Case("chunk_linear_attn", keywords={"normalize": False}),
    Case("chunk_linear_attn", keywords={"normalize": True}, name="linear_attn normalized"),
    Case("chunk_retention"),
    Case("chunk_lightning_attn", keywords={"layer_idx": 1, "num_layers": 4}),
    Case("chunk_simple_gla", gate="scalar"),
    Case("chunk_simple_gla", gate="scalar", groups=2, name="simple_gla grouped"),
    Case("chunk_simple_gla", name="simple_gla without gates"),
    Case("chunk_simple_gla", keywords={"g_gamma": True}, name="simple_gla with constant gates"),
    Case("chunk_simple_gla", gate="scalar", keywords={"g_gamma": True}, name="simple_gla with both gates"),
    Case("chunk_gla", gate="vector"),
    Case("chunk_rwkv6", gate="vector"),
    Case("chunk_rwkv6", gate="vector", groups=2, name="rwkv6 grouped"),
    Case("chunk_hgrn", gate="vector"),
    Case("chunk_delta_rule", delta=True),
    Case("chunk_delta_rule", delta=True, keywords={"use_qk_l2norm_in_kernel": True}, name="delta_rule l2norm"),
    Case("chunk_gated_delta_rule", gate="scalar", delta=True),
    Case(
        "chunk_gated_delta_rule",
        gate="scalar",
        delta=True,
        groups=2,
        beta_dtype="float32",
        name="gated_delta_rule grouped",
    ),
    Case(
        "chunk_gated_delta_rule",
        gate="scalar",
        delta=True,
        raw_gate="plain",
        name="gated_delta_rule raw",
        keywords={"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True},
    ),
    Case(
        "chunk_gated_delta_product",
        gate="scalar",
        delta=True,
        rows=1,
        keywords={"num_householder": 1},
        name="gated_delta_product 1",
    ),
    Case(
        "chunk_gated_delta_product",
        gate="scalar",
        delta=True,
        rows=2,
        keywords={"num_householder": 2},
        name="gated_delta_product 2",
    ),
    Case(
        "chunk_gated_delta_product",
        gate="scalar",
        delta=True,
        rows=3,
        keywords={"num_householder": 3},
        name="gated_delta_product 3",
    ),
    Case("chunk_kda", gate="vector", delta=True),
    Case("chunk_kda", gate="vector", delta=True, groups=2, name="kda grouped"),
    Case(
        "chunk_kda",
        gate="vector",
        delta=True,
        raw_gate="plain",
        name="kda raw",
        keywords={"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True},
    ),
    Case(
        "chunk_kda",
        gate="vector",
        delta=True,
        raw_gate="bounded",
        name="kda bounded",
        keywords={"safe_gate": True, "lower_bound": -4.0},
    ),
]


def inputs_for(case: Case, B: int, T: int, H: int, K: int, V: int, seed: int = 0) -> dict[str, np.ndarray]:
    """float32 arguments by the operator's names; `half` lists those that tests round to 16 bits."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    HV = H * case.groups
    if case.op == "chunk_hgrn":
        return {"x": normal(B, T, K), "g": np.log(sigmoid(normal(B, T, K)))}
    positive = np.abs if case.keywords.get("normalize") else np.asarray  # its denominator must not vanish
    first = "r" if case.op == "chunk_rwkv6" else "q"
    x = {
        first: positive(normal(B, T, H, K)),
        "k": positive(normal(B, T * case.rows, H, K)),
        "v": normal(B, T * case.rows, HV, V),
    }
    if case.delta and not case.keywords.get("use_qk_l2norm_in_kernel"):
        x["k"] /= np.linalg.norm(x["k"], axis=-1, keepdims=True)
    if case.gate:
        g = normal(B, T, HV, *([K] if case.gate == "vector" else []))
        x["w" if case.op == "chunk_rwkv6" else "g"] = g if case.raw_gate else np.log(sigmoid(g))
    if case.op == "chunk_rwkv6":
        x["u"] = normal(HV, K)
    if case.delta:
        beta = normal(B, T * case.rows, HV)
        x["beta"] = beta if case.keywords.get("use_beta_sigmoid_in_kernel") else sigmoid(beta)
    if case.raw_gate:
        x["A_log"], x["dt_bias"] = normal(HV) * 0.5, normal(HV * (K if case.gate == "vector" else 1)) * 0.5
    if case.keywords.get("g_gamma"):
        x["g_gamma"] = -np.abs(normal(HV)) * 0.1
    return x


def is_half(case: Case, name: str) -> bool:
    """Whether tests round the argument to 16 bits."""
    return (
        name in "qkvrx" or (name == "beta" and case.beta_dtype == "half") or (name == "g" and case.op == "chunk_hgrn")
    )


def keywords_for(case: Case) -> dict:
    more = {"use_gate_in_kernel": True} if case.raw_gate else {}
    return {**{k: v for k, v in case.keywords.items() if k != "g_gamma"}, **more}


def _gates(case: Case, x: dict, B: int, T: int, HV: int) -> np.ndarray:
    """Log decay [B, T, HV, K or 1]."""
    if case.op in ("chunk_retention", "chunk_lightning_attn"):
        heads = np.arange(HV)
        constant = (
            np.log(1 - 2.0 ** (-5 - heads))
            if case.op == "chunk_retention"
            else -8 / HV * (1 - case.keywords["layer_idx"] / case.keywords["num_layers"]) * heads
        )
        return np.broadcast_to(constant[None, None, :, None], (B, T, HV, 1))
    g = x.get("w", x.get("g"))
    g = np.zeros((B, T, HV, 1)) if g is None else g if case.gate == "vector" else g[..., None]
    if case.raw_gate:
        raw = g + (x["dt_bias"].reshape(HV, -1) if "dt_bias" in x else 0)
        A = np.exp(x["A_log"]).reshape(HV, 1) if "A_log" in x else 1.0
        g = case.keywords["lower_bound"] * sigmoid(A * raw) if case.raw_gate == "bounded" else -A * softplus(raw)
    return g + (x["g_gamma"][:, None] if "g_gamma" in x else 0)


def reference(case: Case, inputs: dict, initial=None, offsets=None) -> tuple[np.ndarray, list[np.ndarray]]:
    """(output, final states); `initial`: the states before, in the same order."""
    x = {n: np.asarray(a, dtype=np.float64) for n, a in inputs.items()}
    if case.op == "chunk_hgrn":
        return _vector_recurrence(x, initial, offsets)
    q = x.get("q", x.get("r"))
    B, T, H, K = q.shape
    HV, V, n = x["v"].shape[2], x["v"].shape[3], case.rows
    g = _gates(case, x, B, T, HV)
    q, k = (np.repeat(a, HV // H, axis=2) for a in (q, x["k"]))
    if case.keywords.get("use_qk_l2norm_in_kernel"):
        q, k = unit(q), unit(k)
    beta = x.get("beta")
    if case.keywords.get("use_beta_sigmoid_in_kernel"):
        beta = sigmoid(beta) * (2 if case.keywords.get("allow_neg_eigval") else 1)
    spans = [(0, a, b) for a, b in zip(offsets, offsets[1:])] if offsets is not None else [(b, 0, T) for b in range(B)]
    scale = case.keywords.get("scale") or K**-0.5
    o, final, sums = np.zeros((B, T, HV, V)), np.zeros((len(spans), HV, K, V)), np.zeros((len(spans), HV, K))
    for i, (b, begin, end) in enumerate(spans):
        S = np.zeros((HV, K, V)) if initial is None else np.array(initial[0][i], dtype=np.float64)
        z = np.zeros((HV, K)) if initial is None or len(initial) < 2 else np.array(initial[1][i], dtype=np.float64)
        for t in range(begin, end):
            before = S
            S = S * np.exp(g[b, t])[..., None]
            for row in range(t * n, t * n + n):
                new = x["v"][b, row]
                if case.delta:
                    new = (new - np.einsum("hk,hkv->hv", k[b, row], S)) * beta[b, row][:, None]
                S = S + k[b, row][:, :, None] * new[:, None]
            read = S
            if case.op == "chunk_rwkv6":
                read = before + (x["u"] * k[b, t])[:, :, None] * x["v"][b, t][:, None]
            o[b, t] = np.einsum("hk,hkv->hv", q[b, t], read) * scale
            z = z + k[b, t * n]
            if case.keywords.get("normalize"):
                o[b, t] /= (q[b, t] * z).sum(-1, keepdims=True) * scale + 1e-10
        final[i], sums[i] = S, z
    return o, [final, sums] if case.keywords.get("normalize") else [final]


def _vector_recurrence(x: dict, initial, offsets) -> tuple[np.ndarray, list[np.ndarray]]:
    B, T, D = x["x"].shape
    spans = [(0, a, b) for a, b in zip(offsets, offsets[1:])] if offsets is not None else [(b, 0, T) for b in range(B)]
    o, final = np.zeros((B, T, D)), np.zeros((len(spans), D))
    for i, (b, begin, end) in enumerate(spans):
        h = np.zeros(D) if initial is None else np.array(initial[0][i], dtype=np.float64)
        for t in range(begin, end):
            h = o[b, t] = np.exp(x["g"][b, t]) * h + x["x"][b, t]
        final[i] = h
    return o, [final]


def relative_rms(got, wanted) -> float:
    """The error that the tolerances are about; NaN is never within one."""
    got, wanted = np.asarray(got, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    if not wanted.size:
        return 0.0
    return float(np.sqrt(np.mean((got - wanted) ** 2)) / max(np.sqrt(np.mean(wanted**2)), 1e-12))
