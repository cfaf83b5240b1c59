"""flash-linear-attention's fused_recurrent_*: what its chunk operators compute, token by token.

Few tokens (up to 16 per sequence) go through the kernel of `decode`, in one launch that reads states once and writes
them once, if final states are wanted. More tokens take the kernels of the chunk operators, which are faster, and so do
calls with gradients.
"""

from __future__ import annotations

from typing import Any

from .._arrays import Array
from . import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_gla,
    chunk_hgrn,
    chunk_kda,
    chunk_lightning_attn,
    chunk_linear_attn,
    chunk_retention,
    chunk_rwkv6,
    chunk_simple_gla,
)
from ._arguments import zeros
from ._dispatch import Request, operator

__all__ = [
    "fused_recurrent_delta_rule", "fused_recurrent_gated_delta_rule", "fused_recurrent_gdn", "fused_recurrent_gla",
    "fused_recurrent_hgrn", "fused_recurrent_kda", "fused_recurrent_lightning_attn", "fused_recurrent_linear_attn",
    "fused_recurrent_retention", "fused_recurrent_rwkv6", "fused_recurrent_simple_gla",
]  # fmt: skip


def _recurrent(chunked: Any, *given: Any, **named: Any) -> Request:
    """The request of a chunk operator, for few tokens; errors have the name that was called."""
    try:
        wanted: Request = chunked.__wrapped__(*given, **named)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as wrong:
        name = chunked.__name__.replace("chunk", "fused_recurrent", 1)
        raise type(wrong)(str(wrong).replace(chunked.__name__, name)) from None
    return wanted._replace(recurrent=True)


def _refuse(name: str, **given: Any) -> None:
    """What FLA has and Forge has not; None and False ask for nothing."""
    for argument, value in given.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"fused_recurrent_{name}: argument {argument!r} is not available in forge.ops")


def _rates(beta: Array, v: Array) -> Array:
    return zeros(v.shape[:3], v) + 1 if beta is None else beta


@operator
def fused_recurrent_linear_attn(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, reverse: bool = False, normalize: bool = False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """chunk_linear_attn for few tokens."""
    _refuse("linear_attn", reverse=reverse)
    return _recurrent(chunk_linear_attn, q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)


@operator
def fused_recurrent_retention(
    q: Array, k: Array, v: Array, scale: float | None = None, initial_state: Any = None, output_final_state: bool =
    False, reverse: bool = False, state_v_first: bool = False, cu_seqlens: Array = None, **legacy: Any,
) -> Request:  # fmt: skip
    """chunk_retention for few tokens."""
    _refuse("retention", reverse=reverse)
    states = {"state_v_first": state_v_first, **legacy}
    return _recurrent(chunk_retention, q, k, v, scale, initial_state, output_final_state, cu_seqlens, **states)


@operator
def fused_recurrent_lightning_attn(
    q: Array, k: Array, v: Array, layer_idx: int, num_layers: int, scale: float | None = None, initial_state: Any =
    None, output_final_state: bool = False, reverse: bool = False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """chunk_lightning_attn for few tokens."""
    _refuse("lightning_attn", reverse=reverse)
    given = (q, k, v, layer_idx, num_layers, scale, initial_state, output_final_state, cu_seqlens)
    return _recurrent(chunk_lightning_attn, *given)


@operator
def fused_recurrent_simple_gla(
    q: Array, k: Array, v: Array, g: Array = None, g_gamma: Array = None, scale: float | None = None, initial_state: Any
    = None, output_final_state: bool = False, reverse: bool = False, state_v_first: bool = False, cu_seqlens: Array =
    None, **legacy: Any,
) -> Request:  # fmt: skip
    """chunk_simple_gla for few tokens."""
    _refuse("simple_gla", reverse=reverse)
    given = (q, k, v, g, g_gamma, scale, initial_state, output_final_state, state_v_first, cu_seqlens)
    return _recurrent(chunk_simple_gla, *given, **legacy)


@operator
def fused_recurrent_gla(
    q: Array, k: Array, v: Array, gk: Array = None, gv: Array = None, scale: float | None = None, initial_state: Any =
    None, output_final_state: bool = False, reverse: bool = False, state_v_first: bool = False, cu_seqlens: Array =
    None, **legacy: Any,
) -> Request:  # fmt: skip
    """chunk_gla for few tokens, with gates gk [B, T, HV, K]; gates per value, gv, are not available."""
    _refuse("gla", reverse=reverse, gv=gv)
    if gk is None:
        return _recurrent(chunk_simple_gla, q, k, v, None, None, scale, initial_state, output_final_state,
                          state_v_first, cu_seqlens, **legacy)  # fmt: skip
    given = (q, k, v, gk, scale, initial_state, output_final_state, state_v_first, cu_seqlens)
    return _recurrent(chunk_gla, *given, **legacy)


@operator
def fused_recurrent_rwkv6(
    r: Array, k: Array, v: Array, w: Array, u: Array, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, reverse: bool = False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """chunk_rwkv6 for few tokens."""
    _refuse("rwkv6", reverse=reverse)
    return _recurrent(chunk_rwkv6, r, k, v, w, u, scale, initial_state, output_final_state, cu_seqlens)


@operator
def fused_recurrent_hgrn(
    x: Array, g: Array, initial_state: Any = None, output_final_state: bool = False, cu_seqlens: Array = None
) -> Request:
    """chunk_hgrn for few tokens."""
    return _recurrent(chunk_hgrn, x, g, initial_state, output_final_state, cu_seqlens)


@operator
def fused_recurrent_delta_rule(
    q: Array, k: Array, v: Array, beta: Array = None, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, cu_seqlens: Array = None,
) -> Request:  # fmt: skip
    """chunk_delta_rule for few tokens; β None is 1."""
    given = (q, k, v, _rates(beta, v), scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)
    return _recurrent(chunk_delta_rule, *given)


@operator
def fused_recurrent_gated_delta_rule(
    q: Array, k: Array, v: Array, g: Array = None, gk: Array = None, gv: Array = None, beta: Array = None, scale: float
    | None = None, initial_state: Any = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False, A_log: Array = None, dt_bias: Array = None, use_beta_sigmoid_in_kernel: bool =
    False, allow_neg_eigval: bool = False, state_v_first: bool = False, cu_seqlens: Array = None, **legacy: Any,
) -> Request:  # fmt: skip
    """chunk_gated_delta_rule for few tokens; β None is 1, g None no decay. Gates per key or value, gk and gv, are not
    available: fused_recurrent_kda has the former."""
    _refuse("gated_delta_rule", gk=gk, gv=gv)
    if g is None:
        if use_gate_in_kernel:
            raise ValueError("fused_recurrent_gated_delta_rule: `g` must be given with `use_gate_in_kernel=True`")
        g = zeros(v.shape[:3], v)
    return _recurrent(
        chunk_gated_delta_rule, q, k, v, g, _rates(beta, v), scale, initial_state, output_final_state,
        use_qk_l2norm_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, state_v_first, cu_seqlens,
        use_gate_in_kernel=use_gate_in_kernel, A_log=A_log, dt_bias=dt_bias, **legacy,
    )  # fmt: skip


fused_recurrent_gdn = fused_recurrent_gated_delta_rule


@operator
def fused_recurrent_kda(
    q: Array, k: Array, v: Array, g: Array, beta: Array, A_log: Array = None, dt_bias: Array = None, scale: float | None
    = None, initial_state: Any = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False, use_beta_sigmoid_in_kernel: bool = False, allow_neg_eigval: bool = False,
    lower_bound: float | None = None, state_v_first: bool = False, cu_seqlens: Array = None, **legacy: Any,
) -> Request:  # fmt: skip
    """chunk_kda for few tokens."""
    return _recurrent(
        chunk_kda, q, k, v, g, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, lower_bound=lower_bound,
        state_v_first=state_v_first, cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias, **legacy,
    )  # fmt: skip
