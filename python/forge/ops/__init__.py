"""Ready-made operators with flash-linear-attention's names, argument order and conventions, differentiable by
PyTorch's autograd.

Tensors are [B, T, H, …]; values, gates, betas and states may have HV heads, a multiple of H, of which neighbours share
a head of q and k. Log gates are at most 0; `scale` None is K^-0.5; the output has q's type, or, where q,
k and v have several, v's: they are then taken in float32. States are [N, HV, K, V]
([N, HV, V, K] with state_v_first=True), N = B or the number of sequences that `cu_seqlens` (int32 or int64 [N + 1], on
the tensors' device) packs into a batch of 1; initial ones of any floating-point type, computed with and returned in
float32. `cu_seqlens_cpu` and `chunk_indices` are accepted and not needed, and so is `chunk_size`: Forge chooses its
own. They return (o, final_state), the latter None unless output_final_state.

All take `cp_context`, forge.distributed.partition(…) or flash-linear-attention's build_cp_context(…): the tensors are
then this rank's part of packed sequences, whose `cu_seqlens` the context has. Unlike there, initial states may be given
(they enter where sequences begin), final ones asked for (after the rank's last token), and parts be of any length.

They take PyTorch tensors, under torch.compile(fullgraph=True) too (torch.ops.forge.attention, with a fake
implementation and gradients), and NumPy arrays. Gradients have no gradients of their own.
Unknown keywords are refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

from .._arrays import Array, like
from .._suggest import suggestion
from ._arguments import (
    beta_of,
    check_chunk_size,
    checked,
    constant,
    lightning_slopes,
    raw_gate,
    retention_gates,
    scale_of,
    shaped,
    swapped,
    v_first_of,
    wide_sum,
    widened,
    zeros,
)
from ._dispatch import Made, Request, operator

__all__ = [
    "chunk_delta_rule", "chunk_gated_delta_product", "chunk_gated_delta_rule", "chunk_gdn", "chunk_gla", "chunk_hgrn",
    "chunk_kda", "chunk_lightning_attn", "chunk_linear_attn", "chunk_retention", "chunk_rwkv6", "chunk_simple_gla",
    "fused_chunk_delta_rule", "fused_chunk_gla", "fused_chunk_linear_attn", "fused_chunk_retention",
    "fused_chunk_simple_gla", "fused_recurrent_delta_rule", "fused_recurrent_gated_delta_rule", "fused_recurrent_gdn",
    "fused_recurrent_gla", "fused_recurrent_hgrn", "fused_recurrent_kda", "fused_recurrent_lightning_attn",
    "fused_recurrent_linear_attn", "fused_recurrent_retention", "fused_recurrent_rwkv6", "fused_recurrent_simple_gla",
    "parallel_retention", "parallel_simple_gla",
]  # fmt: skip

# ------------------------------------------------------------------------------------------------- requests


def _attend(
    key: str, tensors: list[Any], scalars: list[float], initial_state: Any, output_final_state: bool, cu_seqlens: Array,
    v_first: bool = False,
) -> Request:  # fmt: skip
    """Of a program with one state."""
    initial = None if initial_state is None else [Made(swapped, (initial_state,)) if v_first else initial_state]
    returns = _output if not output_final_state else _output_and_swapped_state if v_first else _output_and_state
    return Request(key, tensors, scalars, initial, output_final_state, cu_seqlens, returns)


def _with_states_before_chunks(wanted: Request, q: Array, v_first: bool) -> Request:
    """The same, and the states before chunks in q's type."""

    def returns(results: list[Any]) -> tuple[Any, ...]:
        before = like(results[-1], q)
        return *wanted.returns(results[:-1]), swapped(before) if v_first else before

    return wanted._replace(returns=returns, before_chunks=True)


def _output(results: list[Any]) -> tuple[Any, ...]:
    return results[0], None


def _output_and_state(results: list[Any]) -> tuple[Any, ...]:
    return results[0], results[1]


def _output_and_swapped_state(results: list[Any]) -> tuple[Any, ...]:
    return results[0], swapped(results[1])


def _output_and_two_states(results: list[Any]) -> tuple[Any, ...]:
    return results[0], (results[1], results[2][:, None])


def _named_alone(cp_context: Any) -> None:
    """By name it is taken before requests are made."""
    if cp_context is not None:
        raise TypeError("cp_context: expected by name, cp_context=…, got it by its place")


# ----------------------------------------------------------------------------------------- without or with scalar decay


def _linear_attn(
    name: str, q: Array, k: Array, v: Array, scale: float | None, initial_state: Any, output_final_state: bool,
    normalize: bool, cu_seqlens: Array,
) -> Request:  # fmt: skip
    kv, z = initial_state if isinstance(initial_state, (tuple, list)) else (initial_state, None)
    if not normalize:
        checked(name, cu_seqlens, kv, q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"))
        return _attend("linear_attention", [q, k, v], [scale_of(scale, k)], kv, output_final_state, cu_seqlens)
    checked(name, cu_seqlens, kv, "H K V", q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T H V"))
    initial = None
    if kv is not None or z is not None:
        shape = (q.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1, *q.shape[2:])
        z = Made(partial(zeros, shape), (q,)) if z is None else shaped(name, "initial_state", z, shape)
        initial = [Made(partial(zeros, (*shape, v.shape[-1])), (q,)) if kv is None else kv, z]
    returns = _output_and_two_states if output_final_state else _output
    return Request(
        "normalized_linear_attention", [q, k, v], [scale_of(scale, k)], initial, output_final_state, cu_seqlens, returns
    )


@operator
def chunk_linear_attn(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, normalize: bool = True, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """S = S + k vᵀ, o = scale Sᵀ q; normalize divides by scale zᵀ q + 1e-10, z = z + k, and the states are (S, z) with
    z [N, 1, H, K]; v then has H heads."""
    return _linear_attn("chunk_linear_attn", q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)


@operator
def fused_chunk_linear_attn(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, normalize: bool = True, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """As chunk_linear_attn."""
    return _linear_attn(
        "fused_chunk_linear_attn", q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens
    )


def _constant_decay(
    name: str, base: str, q: Array, k: Array, v: Array, gates: Any, scale: float | None, initial_state: Any,
    output_final_state: bool, cu_seqlens: Array, v_first: bool = False,
) -> Request:  # fmt: skip
    """With gates that follow from the number of q's heads: `gates`, a function of it and its further arguments."""
    checked(
        name,
        cu_seqlens,
        initial_state,
        "H V K" if v_first else "H K V",
        q=(q, "B T H K"),
        k=(k, "B T H K"),
        v=(v, "B T H V"),
    )
    decay = Made(partial(constant, q, gates[0], q.shape[2], *gates[1:]), ())
    return _attend(base, [q, k, v, decay], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens, v_first)


@operator
def chunk_retention(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, cu_seqlens: Array = None, *, state_v_first: bool = False, chunk_size: int | None = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = γ S + k vᵀ with γ = 1 - 2^(-5-h) for head h, o = scale Sᵀ q; v has H heads."""
    v_first = v_first_of("chunk_retention", legacy, state_v_first)
    check_chunk_size(chunk_size)
    return _constant_decay(
        "chunk_retention",
        "retnet",
        q,
        k,
        v,
        (retention_gates,),
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
        v_first,
    )


@operator
def fused_chunk_retention(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """As chunk_retention."""
    return _constant_decay(
        "fused_chunk_retention",
        "retnet",
        q,
        k,
        v,
        (retention_gates,),
        scale,
        initial_state,
        output_final_state,
        cu_seqlens,
    )


@operator
def chunk_lightning_attn(
    q: Array, k: Array, v: Array, layer_idx: int, num_layers: int, scale: float | None = None, initial_state: Any =
    None, output_final_state: bool = False, cu_seqlens: Array = None, *, chunk_size: int | None = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = e^-s S + k vᵀ with s = 8 h / H (1 - layer_idx / num_layers) for head h, o = scale Sᵀ q; v has H heads."""
    v_first_of("chunk_lightning_attn", legacy)
    check_chunk_size(chunk_size)
    base, gates = "lightning_attention", (lightning_slopes, layer_idx, num_layers)
    return _constant_decay(
        "chunk_lightning_attn", base, q, k, v, gates, scale, initial_state, output_final_state, cu_seqlens
    )


def _simple_gla(
    name: str, q: Array, k: Array, v: Array, g: Array, g_gamma: Array, scale: float | None, initial_state: Any,
    output_final_state: bool, cu_seqlens: Array, v_first: bool = False,
) -> Request:  # fmt: skip
    gates: dict[str, Any] = ({} if g is None else {"g": (g, "B T HV")}) | (
        {} if g_gamma is None else {"g_gamma": (g_gamma, "HV")}
    )
    state = "HV V K" if v_first else "HV K V"
    checked(name, cu_seqlens, initial_state, state, q=(q, "B T H K"), k=(k, "B T H K"), v=(v, "B T HV V"), **gates)
    if g is not None:
        key, more = "scalar_gla", [widened(g) if g_gamma is None else Made(wide_sum, (g, g_gamma))]
    elif g_gamma is not None:
        key, more = "retnet", [widened(g_gamma)]
    else:
        key, more = "linear_attention", []
    return _attend(key, [q, k, v, *more], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens, v_first)


@operator
def chunk_simple_gla(
    q: Array, k: Array, v: Array, g: Array = None, g_gamma: Array = None, scale: float | None = None, initial_state: Any
    = None, output_final_state: bool = False, state_v_first: bool = False, cu_seqlens: Array = None, cu_seqlens_cpu:
    Array = None, *, chunk_size: int | None = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = e^g S + k vᵀ with scalar gates g [B, T, HV], constant ones g_gamma [HV], their sum, or none; o = scale Sᵀ
    q."""
    v_first = v_first_of("chunk_simple_gla", legacy, state_v_first)
    check_chunk_size(chunk_size)
    return _simple_gla(
        "chunk_simple_gla", q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens, v_first
    )


@operator
def fused_chunk_simple_gla(
    q: Array, k: Array, v: Array, g: Array = None, g_gamma: Array = None, scale: float | None = None, initial_state: Any
    = None, output_final_state: bool = False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """As chunk_simple_gla."""
    return _simple_gla(
        "fused_chunk_simple_gla", q, k, v, g, g_gamma, scale, initial_state, output_final_state, cu_seqlens
    )


# ------------------------------------------------------------------------------------------------- vector decay


@operator
def chunk_gla(
    q: Array, k: Array, v: Array, g: Array, scale: float | None = None, initial_state: Any = None, output_final_state:
    bool = False, state_v_first: bool = False, cu_seqlens: Array = None, cu_seqlens_cpu: Array = None, *, chunk_size:
    int | None = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = diag(e^g) S + k vᵀ with g [B, T, HV, K], o = scale Sᵀ q."""
    v_first = v_first_of("chunk_gla", legacy, state_v_first)
    check_chunk_size(chunk_size)
    state = "HV V K" if v_first else "HV K V"
    checked(
        "chunk_gla",
        cu_seqlens,
        initial_state,
        state,
        q=(q, "B T H K"),
        k=(k, "B T H K"),
        v=(v, "B T HV V"),
        g=(g, "B T HV K"),
    )
    return _attend(
        "gla", [q, k, v, widened(g)], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens, v_first
    )


fused_chunk_gla = chunk_gla


@operator
def chunk_rwkv6(
    r: Array, k: Array, v: Array, w: Array, u: Array, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, cu_seqlens: Array = None, cu_seqlens_cpu: Array = None, *, chunk_size: int | None
    = None, **legacy: Any,
) -> Request:  # fmt: skip
    """o = scale (S + (u ⊙ k) vᵀ)ᵀ r, then S = diag(e^w) S + k vᵀ; w [B, T, HV, K], u [HV, K]."""
    v_first_of("chunk_rwkv6", legacy)
    check_chunk_size(chunk_size)
    given: dict[str, Any] = {
        "r": (r, "B T H K"),
        "k": (k, "B T H K"),
        "v": (v, "B T HV V"),
        "w": (w, "B T HV K"),
        "u": (u, "HV K"),
    }
    checked("chunk_rwkv6", cu_seqlens, initial_state, **given)
    return _attend(
        "rwkv6", [r, k, v, widened(w), widened(u)], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens
    )


@operator
def chunk_hgrn(
    x: Array, g: Array, initial_state: Any = None, output_final_state: bool = False, cu_seqlens: Array = None
) -> Request:
    """h = e^g h + x, o = h; x and g [B, T, D], states [N, D]."""
    checked("chunk_hgrn", cu_seqlens, initial_state, "D", x=(x, "B T D"), g=(g, "B T D"))
    key, gates = ("gated_scan", g) if g.dtype == x.dtype else ("gated_scan;g=f32", widened(g))
    return _attend(key, [x, gates], [], initial_state, output_final_state, cu_seqlens)


# ------------------------------------------------------------------------------------------------- the delta rule


@operator
def chunk_delta_rule(
    q: Array, k: Array, v: Array, beta: Array, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Array = None, cu_seqlens_cpu:
    Array = None, *, chunk_size: int | None = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = (I - β k kᵀ) S + β k vᵀ, o = scale Sᵀ q; β [B, T, HV]."""
    v_first_of("chunk_delta_rule", legacy)
    check_chunk_size(chunk_size, (16, 32, 64))
    given: dict[str, Any] = {"q": (q, "B T H K"), "k": (k, "B T H K"), "v": (v, "B T HV V"), "beta": (beta, "B T HV")}
    checked("chunk_delta_rule", cu_seqlens, initial_state, **given)
    beta, kind = beta_of(beta, q)
    key = "delta_net" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind
    return _attend(key, [q, k, v, beta], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens)


fused_chunk_delta_rule = chunk_delta_rule


@operator
def chunk_gated_delta_rule(
    q: Array, k: Array, v: Array, g: Array, beta: Array, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Array = None, cu_seqlens_cpu: Array = None,
    chunk_indices: Array = None, cp_context: Any = None, *, chunk_size: int | None = None, use_gate_in_kernel: bool =
    False, A_log: Array = None, dt_bias: Array = None, **legacy: Any,
) -> Request:  # fmt: skip
    """S = e^g (I - β k kᵀ) S + β k vᵀ, o = scale Sᵀ q; g and β [B, T, HV].

    use_gate_in_kernel=True: g = -e^A_log softplus(g + dt_bias), with A_log [HV] and, if given, dt_bias [HV].
    """
    v_first = v_first_of("chunk_gated_delta_rule", legacy, state_v_first)
    check_chunk_size(chunk_size, (16, 32, 64))
    _named_alone(cp_context)
    given: dict[str, Any] = {
        "q": (q, "B T H K"),
        "k": (k, "B T H K"),
        "v": (v, "B T HV V"),
        "g": (g, "B T HV"),
        "beta": (beta, "B T HV"),
    }
    checked("chunk_gated_delta_rule", cu_seqlens, initial_state, "HV V K" if v_first else "HV K V", **given)
    beta, kind = beta_of(beta, q, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    more, gate = [], ""
    if use_gate_in_kernel:
        if A_log is None:
            raise ValueError("`A_log` must be given with `use_gate_in_kernel=True`")
        more, _, gate = raw_gate("chunk_gated_delta_rule", A_log, dt_bias, (v.shape[2],))
    key = "gated_delta_net" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind + gate
    return _attend(
        key,
        [q, k, v, widened(g), beta, *more],
        [scale_of(scale, k)],
        initial_state,
        output_final_state,
        cu_seqlens,
        v_first,
    )


chunk_gdn = chunk_gated_delta_rule


@operator
def chunk_kda(
    q: Array, k: Array, v: Array, g: Array, beta: Array, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False, safe_gate: bool = False, lower_bound:
    float | None = None, disable_recompute: bool = False, return_intermediate_states: bool = False, state_v_first: bool
    = False, cu_seqlens: Array = None, cu_seqlens_cpu: Array = None, cp_context: Any = None, use_graph: bool = False,
    max_num_seqs: int | None = None, *, chunk_size: int | None = None, A_log: Array = None, dt_bias: Array = None,
    **legacy: Any,
) -> Request:  # fmt: skip
    """S = diag(e^g) S, then S += β k (v - Sᵀ k)ᵀ, o = scale Sᵀ q; g [B, T, HV, K], β [B, T, HV].

    use_gate_in_kernel=True: g = -e^A_log softplus(g + dt_bias), or lower_bound sigmoid(e^A_log (g + dt_bias)) where
    lower_bound is given; A_log [HV], dt_bias [HV * K]. return_intermediate_states=True: (o, final_state, h), where h
    has the states before every chunk (of 64 tokens, or chunk_size), in q's type, [B, chunks, HV, K, V], packed ones in
    a row. safe_gate promises gates of at least -5, and use_graph asks for kernels that can be captured: Forge has no
    need of the first, and its kernels always can be.
    """
    v_first = v_first_of("chunk_kda", legacy, state_v_first)
    check_chunk_size(chunk_size, (32, 64))
    _named_alone(cp_context)
    if safe_gate and use_gate_in_kernel:
        if lower_bound is None:
            raise ValueError("`lower_bound` must be given with `safe_gate=True` and `use_gate_in_kernel=True`")
        if not -5 <= lower_bound < 0:
            raise ValueError(f"`lower_bound` must be in [-5, 0), got {lower_bound}")
    given: dict[str, Any] = {
        "q": (q, "B T H K"),
        "k": (k, "B T H K"),
        "v": (v, "B T HV V"),
        "g": (g, "B T HV K"),
        "beta": (beta, "B T HV"),
    }
    checked("chunk_kda", cu_seqlens, initial_state, "HV V K" if v_first else "HV K V", **given)
    if use_graph and max_num_seqs is not None and cu_seqlens is not None and cu_seqlens.shape[0] != max_num_seqs + 1:
        raise ValueError(
            f"`cu_seqlens` must have max_num_seqs + 1 = {max_num_seqs + 1} offsets with `use_graph=True`, got "
            f"{cu_seqlens.shape[0]}"
        )
    beta, kind = beta_of(beta, q, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    more, scalars, gate = [], [], ""
    if use_gate_in_kernel:
        if A_log is None and lower_bound is None:
            raise ValueError("`A_log` must be given with `use_gate_in_kernel=True` unless `lower_bound` is")
        more, scalars, gate = raw_gate("chunk_kda", A_log, dt_bias, (v.shape[2], k.shape[-1]), lower_bound)
    chunk = f";chunk={chunk_size or 64}" if return_intermediate_states else ""  # of which there is a state each
    key = "kda" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind + gate + chunk
    tensors, scalars = [q, k, v, widened(g), beta, *more], [scale_of(scale, k), *scalars]
    wanted = _attend(key, tensors, scalars, initial_state, output_final_state, cu_seqlens, v_first)
    return _with_states_before_chunks(wanted, q, v_first) if return_intermediate_states else wanted


@operator
def chunk_gated_delta_product(
    q: Array, k: Array, v: Array, g: Array, beta: Array, num_householder: int, scale: float | None = None,
    initial_state: Any = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens:
    Array = None, cu_seqlens_cpu: Array = None, cp_context: Any = None,
) -> Request:  # fmt: skip
    """S = e^g S, then num_householder times S += β k (v - Sᵀ k)ᵀ, o = scale Sᵀ q; k, v, β have num_householder rows per
    token, [B, T * num_householder, H, …]; g [B, T, HV], or None for no decay."""
    _named_alone(cp_context)
    rows = f"{num_householder}*T"
    given: dict[str, Any] = {
        "q": (q, "B T H K"),
        "k": (k, f"B {rows} H K"),
        "v": (v, f"B {rows} HV V"),
        "beta": (beta, f"B {rows} HV"),
    }
    if g is not None:
        given["g"] = (g, "B T HV")
    checked("chunk_gated_delta_product", cu_seqlens, initial_state, **given)
    g = Made(partial(zeros, (*q.shape[:2], v.shape[2])), (q,)) if g is None else widened(g)
    beta, kind = beta_of(beta, q)
    base = {1: "gated_delta_net", 2: "delta_product"}.get(num_householder, f"delta_product_of={num_householder}")
    key = base + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind
    return _attend(key, [q, k, v, g, beta], [scale_of(scale, k)], initial_state, output_final_state, cu_seqlens)


# -- made of the chunk operators' requests: by tokens, and with scores

from ._parallel import parallel_retention, parallel_simple_gla  # noqa: E402
from ._recurrent import (  # noqa: E402
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gdn,
    fused_recurrent_gla,
    fused_recurrent_hgrn,
    fused_recurrent_kda,
    fused_recurrent_lightning_attn,
    fused_recurrent_linear_attn,
    fused_recurrent_retention,
    fused_recurrent_rwkv6,
    fused_recurrent_simple_gla,
)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"module 'forge.ops' has no attribute {name!r}{suggestion(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
