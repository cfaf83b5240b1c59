"""Ready-made operators with flash-linear-attention's names, argument order and conventions, forward only.

Tensors are [B, T, H, …] (values and gates may have more heads, HV, of which H is a divisor); log gates, at most 0; `scale` None is
K^-0.5; the output has q's type, states are float32 [N, HV, K, V] ([N, HV, V, K] with state_v_first=True), N = B or the number of
sequences that `cu_seqlens` (int32 or int64 [N + 1], on the tensors' device) packs into a batch of 1. `cu_seqlens_cpu` and
`chunk_indices` are accepted and not needed. They return (o, final_state), the latter None unless output_final_state.

They take PyTorch tensors, under torch.compile(fullgraph=True) too (torch.ops.forge.attention, with a fake implementation), and
NumPy arrays. Inputs that require gradients get a NotImplementedError while gradients are enabled. Unknown keywords are refused.
"""

from __future__ import annotations

import math
import warnings
from functools import cache

from ._dispatch import Request, operator, torch

__all__ = [
    "chunk_delta_rule", "chunk_gated_delta_product", "chunk_gated_delta_rule", "chunk_gla", "chunk_hgrn", "chunk_kda", "chunk_lightning_attn",
    "chunk_linear_attn", "chunk_retention", "chunk_rwkv6", "chunk_simple_gla",
]  # fmt: skip


_FLOAT32 = None if torch is None else torch.float32

# ------------------------------------------------------------------------------------------------- arguments


def _checked(name: str, q, initial_state, cu_seqlens) -> None:
    """ValueError where flash-linear-attention has one."""
    if cu_seqlens is None:
        return
    if q.shape[0] != 1:
        raise ValueError(f"{name}: expected a batch of 1 with `cu_seqlens`, got {q.shape[0]}")
    if initial_state is not None and initial_state.shape[0] != cu_seqlens.shape[0] - 1:
        raise ValueError(f"{name}: expected {cu_seqlens.shape[0] - 1} initial states, one per sequence, got {initial_state.shape[0]}")


def _options(name: str, kwargs: dict, state_v_first: bool = False, chunk_sizes: tuple[int, ...] = (), legacy_layout: bool = True) -> tuple[bool, str]:
    """(state_v_first, the part of a program's key that the chunk size makes) from keywords beyond the signature."""
    if not kwargs:
        return state_v_first, ""
    if "head_first" in kwargs:
        raise DeprecationWarning("head_first has been removed: tensors are [B, T, H, ...]")
    if legacy_layout and "transpose_state_layout" in kwargs:
        if state_v_first:
            raise ValueError("expected `state_v_first` or the deprecated `transpose_state_layout`, got both")
        warnings.warn("`transpose_state_layout` is deprecated and renamed to `state_v_first`", DeprecationWarning, stacklevel=3)
        state_v_first = kwargs.pop("transpose_state_layout")
    chunk = kwargs.pop("chunk_size", None) if chunk_sizes else None
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(kwargs))!r}")
    if chunk is not None and chunk not in chunk_sizes:
        listed = f"either {' or '.join(map(str, chunk_sizes))}" if len(chunk_sizes) == 2 else f"one of {', '.join(map(str, chunk_sizes))}"
        raise ValueError(f"`chunk_size` must be {listed}, got {chunk}")
    return state_v_first, f";chunk={chunk}" if chunk is not None else ""


def _scale(scale: float | None, k) -> float:
    return k.shape[-1] ** -0.5 if scale is None else float(scale)


def _like(x, q):
    """x in q's element type, which 16-bit operands share."""
    return x if x.dtype == q.dtype else x.to(q.dtype) if hasattr(x, "to") else x.astype(q.dtype)


def _wide(x):
    """x in float32, as gates are."""
    if x.dtype is _FLOAT32:
        return x
    return x.float() if hasattr(x, "float") else x.astype("float32", copy=False)


def _swapped(x):
    return x.transpose(-1, -2) if hasattr(x, "float") else x.swapaxes(-1, -2)


def _attend(key: str, tensors: list, scalars: list[float], initial_state, output_final_state: bool, cu_seqlens, v_first: bool = False) -> Request:
    """Of a program with one state."""
    initial = None if initial_state is None else [_swapped(initial_state) if v_first else initial_state]
    returns = _output if not output_final_state else _output_and_swapped_state if v_first else _output_and_state
    return Request(key, tensors, scalars, initial, output_final_state, cu_seqlens, returns)


def _output(results: list) -> tuple:
    return results[0], None


def _output_and_state(results: list) -> tuple:
    return results[0], results[1]


def _output_and_swapped_state(results: list) -> tuple:
    return results[0], _swapped(results[1])


def _output_and_two_states(results: list) -> tuple:
    return results[0], (results[1], results[2][:, None])


def _no_context_parallelism(cp_context) -> None:
    if cp_context is not None:
        raise NotImplementedError("cp_context: context parallelism is not available in forge.ops yet")


# ------------------------------------------------------------------------------------------------- without or with scalar decay


@operator
def chunk_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True, cu_seqlens=None):
    """S = S + k vᵀ, o = scale Sᵀ q; normalize divides by scale zᵀ q + 1e-10, z = z + k, and the states are (S, z) with z
    [N, 1, H, K]."""
    kv = initial_state[0] if isinstance(initial_state, tuple) else initial_state
    _checked("chunk_linear_attn", q, kv, cu_seqlens)
    if not normalize:
        return _attend("linear_attention", [q, k, v], [_scale(scale, k)], kv, output_final_state, cu_seqlens)
    initial = None
    if kv is not None:
        z = initial_state[1] if isinstance(initial_state, tuple) else None
        zeros = kv[..., 0] * 0
        initial = [kv, zeros if z is None else z.reshape(zeros.shape)]
    returns = _output_and_two_states if output_final_state else _output
    return Request("normalized_linear_attention", [q, k, v], [_scale(scale, k)], initial, output_final_state, cu_seqlens, returns)


@operator
def chunk_retention(q, k, v, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None, **kwargs):
    """S = γ S + k vᵀ with γ = 1 - 2^(-5-h) for head h, o = scale Sᵀ q."""
    _, chunk = _options("chunk_retention", kwargs, chunk_sizes=(16, 32, 64, 128), legacy_layout=False)
    _checked("chunk_retention", q, initial_state, cu_seqlens)
    gamma = _constant(q, _retention_gates, q.shape[2])
    return _attend("retnet" + chunk, [q, k, v, gamma], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens)


@operator
def chunk_lightning_attn(q, k, v, layer_idx, num_layers, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None, **kwargs):
    """S = e^-s S + k vᵀ with s = 8 h / H (1 - layer_idx / num_layers) for head h, o = scale Sᵀ q."""
    _, chunk = _options("chunk_lightning_attn", kwargs, chunk_sizes=(16, 32, 64, 128), legacy_layout=False)
    _checked("chunk_lightning_attn", q, initial_state, cu_seqlens)
    slope = _constant(q, _lightning_slopes, q.shape[2], layer_idx, num_layers)
    return _attend("lightning_attention" + chunk, [q, k, v, slope], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens)


@operator
def chunk_simple_gla(
    q,
    k,
    v,
    g=None,
    g_gamma=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    state_v_first=False,
    cu_seqlens=None,
    cu_seqlens_cpu=None,
    **kwargs,
):
    """S = e^g S + k vᵀ with scalar gates g [B, T, HV], constant ones g_gamma [HV], their sum, or none; o = scale Sᵀ q."""
    v_first, chunk = _options("chunk_simple_gla", kwargs, state_v_first, (16, 32, 64, 128))
    _checked("chunk_simple_gla", q, initial_state, cu_seqlens)
    if g is not None:
        key, more = "scalar_gla", [_wide(g) if g_gamma is None else _wide(g) + _wide(g_gamma)]
    elif g_gamma is not None:
        key, more = "retnet", [_wide(g_gamma)]
    else:
        key, more = "linear_attention", []
    return _attend(key + chunk, [q, k, v, *more], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens, v_first)


# ------------------------------------------------------------------------------------------------- vector decay


@operator
def chunk_gla(
    q, k, v, g, scale=None, initial_state=None, output_final_state=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs
):
    """S = diag(e^g) S + k vᵀ with g [B, T, HV, K], o = scale Sᵀ q."""
    v_first, _ = _options("chunk_gla", kwargs, state_v_first)
    _checked("chunk_gla", q, initial_state, cu_seqlens)
    return _attend("gla", [q, k, v, _wide(g)], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens, v_first)


@operator
def chunk_rwkv6(r, k, v, w, u, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None, cu_seqlens_cpu=None, **kwargs):
    """o = scale (S + (u ⊙ k) vᵀ)ᵀ r, then S = diag(e^w) S + k vᵀ; w [B, T, H, K], u [H, K]."""
    _options("chunk_rwkv6", kwargs, legacy_layout=False)
    _checked("chunk_rwkv6", r, initial_state, cu_seqlens)
    return _attend("rwkv6", [r, k, v, _wide(w), _wide(u)], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens)


@operator
def chunk_hgrn(x, g, initial_state=None, output_final_state=False):
    """h = e^g h + x, o = h; x and g [B, T, D], states [B, D]."""
    return _attend("gated_scan", [x, _like(g, x)], [], initial_state, output_final_state, None)


# ------------------------------------------------------------------------------------------------- the delta rule


def _beta(beta, q, use_sigmoid: bool = False, negative: bool = False) -> tuple:
    """(beta, part of the key): float32 betas stay what they are."""
    if negative and not use_sigmoid:
        raise ValueError("`allow_neg_eigval=True` needs `use_beta_sigmoid_in_kernel=True`")
    kind = ";beta=twice_sigmoid" if negative else ";beta=sigmoid" if use_sigmoid else ""
    if beta.dtype == q.dtype:
        return beta, kind
    return _wide(beta), ";beta=f32" + kind


@operator
def chunk_delta_rule(
    q,
    k,
    v,
    beta,
    scale=None,
    initial_state=None,
    output_final_state=False,
    use_qk_l2norm_in_kernel=False,
    cu_seqlens=None,
    cu_seqlens_cpu=None,
    **kwargs,
):
    """S = (I - β k kᵀ) S + β k vᵀ, o = scale Sᵀ q; β [B, T, H]."""
    _, chunk = _options("chunk_delta_rule", kwargs, chunk_sizes=(16, 32, 64), legacy_layout=False)
    _checked("chunk_delta_rule", q, initial_state, cu_seqlens)
    beta, kind = _beta(beta, q)
    key = "delta_net" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind + chunk
    return _attend(key, [q, k, v, beta], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens)


def _raw_gate(g, A_log, dt_bias, bias_shape: tuple, lower_bound=None) -> tuple:
    """(gate inputs, further tensors, scalars, part of the key) of a gate that the kernel computes."""
    flags, more = [], []
    if lower_bound is not None:
        flags.append("bounded")
    if A_log is not None:
        flags.append("log")
        more.append(_wide(A_log))
    if dt_bias is not None:
        flags.append("bias")
        more.append(_wide(dt_bias) if dt_bias.shape == bias_shape else _wide(dt_bias).reshape(bias_shape))  # a view costs 2 us
    return _wide(g), more, [] if lower_bound is None else [float(lower_bound)], ";gate=" + "+".join(flags)


@operator
def chunk_gated_delta_rule(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False,
    allow_neg_eigval=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, **kwargs,
):  # fmt: skip
    """S = e^g (I - β k kᵀ) S + β k vᵀ, o = scale Sᵀ q; g and β [B, T, HV].

    use_gate_in_kernel=True: g = -e^A_log softplus(g + dt_bias), with A_log [HV] and, if given, dt_bias [HV].
    """
    use_gate = A_log = dt_bias = None
    if kwargs:
        use_gate, A_log, dt_bias = kwargs.pop("use_gate_in_kernel", False), kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)
    v_first, chunk = _options("chunk_gated_delta_rule", kwargs, state_v_first, (16, 32, 64))
    _no_context_parallelism(cp_context)
    _checked("chunk_gated_delta_rule", q, initial_state, cu_seqlens)
    beta, kind = _beta(beta, q, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    more, gate = [], ""
    if use_gate:
        if A_log is None:
            raise ValueError("`A_log` must be given with `use_gate_in_kernel=True`")
        g, more, _, gate = _raw_gate(g, A_log, dt_bias, (v.shape[2],))
    key = "gated_delta_net" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind + gate + chunk
    return _attend(key, [q, k, v, _wide(g), beta, *more], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens, v_first)


@operator
def chunk_kda(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
    use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
    return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, cp_context=None, **kwargs,
):  # fmt: skip
    """S = diag(e^g) S, then S += β k (v - Sᵀ k)ᵀ, o = scale Sᵀ q; g [B, T, HV, K], β [B, T, HV].

    use_gate_in_kernel=True: g = -e^A_log softplus(g + dt_bias), or lower_bound sigmoid(e^A_log (g + dt_bias)) where lower_bound is
    given; A_log [HV], dt_bias [HV * K]. safe_gate promises gates of at least -5, which Forge has no need of.
    """
    A_log, dt_bias = (kwargs.pop("A_log", None), kwargs.pop("dt_bias", None)) if kwargs else (None, None)
    v_first, chunk = _options("chunk_kda", kwargs, state_v_first, (32, 64))
    _no_context_parallelism(cp_context)
    if return_intermediate_states:
        raise NotImplementedError("return_intermediate_states: forge.ops gives final states only")
    if safe_gate and use_gate_in_kernel:
        if lower_bound is None:
            raise ValueError("`lower_bound` must be given with `safe_gate=True` and `use_gate_in_kernel=True`")
        if not -5 <= lower_bound < 0:
            raise ValueError(f"`lower_bound` must be in [-5, 0), got {lower_bound}")
    _checked("chunk_kda", q, initial_state, cu_seqlens)
    beta, kind = _beta(beta, q, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    more, scalars, gate = [], [], ""
    if use_gate_in_kernel:
        if A_log is None and lower_bound is None:
            raise ValueError("`A_log` must be given with `use_gate_in_kernel=True` unless `lower_bound` is")
        g, more, scalars, gate = _raw_gate(g, A_log, dt_bias, (v.shape[2], k.shape[-1]), lower_bound)
    key = "kda" + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind + gate + chunk
    return _attend(key, [q, k, v, _wide(g), beta, *more], [_scale(scale, k), *scalars], initial_state, output_final_state, cu_seqlens, v_first)


@operator
def chunk_gated_delta_product(
    q, k, v, g, beta, num_householder, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, cu_seqlens=None,
    cu_seqlens_cpu=None, cp_context=None,
):  # fmt: skip
    """S = e^g S, then num_householder times S += β k (v - Sᵀ k)ᵀ, o = scale Sᵀ q; k, v, β have num_householder rows per token,
    [B, T * num_householder, H, …]; g [B, T, H], or None for no decay."""
    _no_context_parallelism(cp_context)
    _checked("chunk_gated_delta_product", q, initial_state, cu_seqlens)
    if k.shape[1] != q.shape[1] * num_householder:
        raise ValueError(f"chunk_gated_delta_product: expected {q.shape[1] * num_householder} rows of k, got {k.shape[1]}")
    g = _wide(q[..., 0] * 0 if g is None else g)
    beta, kind = _beta(beta, q)
    base = {1: "gated_delta_net", 2: "delta_product"}.get(num_householder, f"delta_product_of={num_householder}")
    key = base + (";l2norm" if use_qk_l2norm_in_kernel else "") + kind
    return _attend(key, [q, k, v, g, beta], [_scale(scale, k)], initial_state, output_final_state, cu_seqlens)


# ------------------------------------------------------------------------------------------------- constants of heads


def _retention_gates(heads: int) -> list[float]:
    return [math.log1p(-(2.0 ** (-5 - h))) for h in range(heads)]


def _lightning_slopes(heads: int, layer_idx: int, num_layers: int) -> list[float]:
    return [8 / heads * (1 - layer_idx / num_layers) * h for h in range(heads)]


@cache
def _on_device(device, values, *args):
    return torch.tensor(values(*args), dtype=torch.float32, device=device)


def _constant(q, values, *args):
    """float32 numbers, one per head, where q is: values(*args)."""
    if torch is None or not isinstance(q, torch.Tensor):
        import numpy

        return numpy.array(values(*args), numpy.float32)
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor:
        return torch.tensor(values(*args), dtype=torch.float32, device=q.device)
    return _on_device(q.device, values, *args)
