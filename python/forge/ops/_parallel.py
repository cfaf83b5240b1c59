"""The operators that return attention scores, as flash-linear-attention's parallel forms do."""

from __future__ import annotations

from typing import Any

from .._arrays import Array
from . import _constant_decay, _simple_gla
from ._arguments import attention_scores, constant, retention_gates, scale_of, zeros
from ._dispatch import Request, operator

__all__ = ["parallel_retention", "parallel_simple_gla"]


def _with_scores(
    name: str, o: Array, q: Array, k: Array, g: Array, scale: float | None, output_attentions: bool, cu_seqlens: Array,
) -> tuple[Any, ...]:  # fmt: skip
    """What parallel forms return."""
    if not output_attentions:
        return o, None
    if cu_seqlens is not None:
        raise ValueError(f"{name}: `output_attentions=True` is for sequences that are not packed, got `cu_seqlens`")
    return o, attention_scores(q, k, g, scale_of(scale, k))


@operator
def _parallel_simple_gla(q: Array, k: Array, v: Array, g: Array, scale: float | None, cu_seqlens: Array) -> Request:
    return _simple_gla("parallel_simple_gla", q, k, v, g, None, scale, None, False, cu_seqlens)


def parallel_simple_gla(
    q: Array, k: Array, v: Array, g: Array = None, scale: float | None = None, output_attentions: bool = False,
    cu_seqlens: Array = None, cu_seqlens_cpu: Array = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The output of chunk_simple_gla, by the same kernels, and None; or the attention scores [B, HV, T, T] if
    output_attentions, which cost time and memory in proportion to T²."""
    o, _ = _parallel_simple_gla(q, k, v, g, scale, cu_seqlens)
    return _with_scores("parallel_simple_gla", o, q, k, g, scale, output_attentions, cu_seqlens)


@operator
def _parallel_retention(q: Array, k: Array, v: Array, scale: float | None, cu_seqlens: Array) -> Request:
    return _constant_decay("parallel_retention", "retnet", q, k, v, (retention_gates,), scale, None, False, cu_seqlens)


def parallel_retention(
    q: Array, k: Array, v: Array, scale: float | None = None, output_attentions: bool = False, cu_seqlens: Array = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The output of chunk_retention and None, or the attention scores, as parallel_simple_gla."""
    o, _ = _parallel_retention(q, k, v, scale, cu_seqlens)
    g = zeros(q.shape[:3], q) + constant(q, retention_gates, q.shape[2]) if output_attentions else None
    return _with_scores("parallel_retention", o, q, k, g, scale, output_attentions, cu_seqlens)
