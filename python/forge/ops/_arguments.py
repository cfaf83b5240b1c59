"""Arguments of operators: their shapes checked in the operator's own names, and what programs want of them."""

from __future__ import annotations

import math
import warnings
from functools import cache

from .._arrays import library_of
from .._calls import fail
from ._dispatch import torch

_FLOAT32 = None if torch is None else torch.float32

# ------------------------------------------------------------------------------------------------- shapes


def checked(name: str, cu_seqlens, initial_state=None, state: str = "HV K V", **given) -> None:
    """Errors for wrong shapes of `given`, an array and the names of its axes each: "B T H K". Heads are as flash-linear-attention
    means them: q and k have H, values and states HV, a multiple of it, and value head i goes with query head i // (HV / H)."""
    known: dict[str, tuple[int, str]] = {}
    for argument, (x, axes) in given.items():
        _check_axes(name, argument, x, axes.split(), known)
    H, HV = known.get("H", (1, ""))[0], known.get("HV", (1, ""))
    if HV[1] and (H == 0 or HV[0] % H):
        raise ValueError(f"{name}: argument {HV[1]!r}: expected a multiple of H = {H} heads, those of {known['H'][1]!r}, got {HV[0]}")
    sequences = known["B"][0]
    if cu_seqlens is not None:
        _check_axes(name, "cu_seqlens", cu_seqlens, ["offsets"], {})
        if sequences != 1:
            raise ValueError(f"{name}: expected a batch of 1 with `cu_seqlens`, got {sequences}")
        sequences = cu_seqlens.shape[0] - 1
    if initial_state is not None:
        _array(name, "initial_state", initial_state)
        if tuple(initial_state.shape)[:1] != (sequences,):
            raise ValueError(
                f"{name}: argument 'initial_state': expected {sequences} states, one per sequence, got shape {list(initial_state.shape)}"
            )
        known.setdefault("HV", known.get("H", (1, "")))
        _check_axes(name, "initial_state", initial_state, ["N", *state.split()], known)


def _array(name: str, argument: str, x) -> None:
    if library_of(x) is None:
        raise TypeError(f"{name}: argument {argument!r}: expected a NumPy array or a PyTorch tensor, got {type(x).__name__}")


def _check_axes(name: str, argument: str, x, axes: list[str], known: dict[str, tuple[int, str]]) -> None:
    """Axes are symbols, or multiples of them: 2*T."""
    _array(name, argument, x)
    if len(x.shape) != len(axes):
        fail(name, argument, f"shape [{', '.join(axes)}]", str(list(x.shape)))
    for axis, size in zip(axes, x.shape):
        factor, _, symbol = axis.rpartition("*")
        before = known.get(symbol)
        if before is None:
            known[symbol] = size, argument
        elif before[0] * int(factor or 1) != size:
            expected = f"{axis} = {before[0] * int(factor or 1)}, as {before[1]!r} says, in shape [{', '.join(axes)}]"
            if symbol in ("H", "HV"):
                raise ValueError(f"{name}: argument {argument!r}: expected {expected}, got {list(x.shape)}")
            fail(name, argument, expected, str(list(x.shape)))


# ------------------------------------------------------------------------------------------------- keywords


def check_chunk_size(chunk_size: int | None, sizes: tuple[int, ...] = ()) -> None:
    """ValueError for lengths of chunks that flash-linear-attention has not: others than `sizes`, or than powers of 2. Forge chooses its
    own, by the program and the machine; results are the same but for rounding."""
    if chunk_size is None or chunk_size in sizes:
        return
    if sizes:
        listed = f"either {' or '.join(map(str, sizes))}" if len(sizes) == 2 else f"one of {', '.join(map(str, sizes))}"
        raise ValueError(f"`chunk_size` must be {listed}, got {chunk_size}")
    if chunk_size < 1 or chunk_size & (chunk_size - 1):
        raise ValueError(f"`chunk_size` must be a power of 2, got {chunk_size}")


def v_first_of(name: str, legacy: dict, state_v_first: bool | None = None) -> bool:
    """state_v_first (None: there is no such keyword), from what flash-linear-attention called so before too; `legacy` are keywords
    beyond the signature."""
    if "head_first" in legacy:
        raise DeprecationWarning("head_first has been removed: tensors are [B, T, H, ...]")
    if state_v_first is not None and "transpose_state_layout" in legacy:
        if state_v_first:
            raise ValueError("expected `state_v_first` or the deprecated `transpose_state_layout`, got both")
        warnings.warn("`transpose_state_layout` is deprecated and renamed to `state_v_first`", DeprecationWarning, stacklevel=4)
        state_v_first = legacy.pop("transpose_state_layout")
    if legacy:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(legacy))!r}")
    return bool(state_v_first)


def scale_of(scale: float | None, k) -> float:
    return k.shape[-1] ** -0.5 if scale is None else float(scale)


def beta_of(beta, q, use_sigmoid: bool = False, negative: bool = False) -> tuple:
    """(beta, part of the key): float32 betas stay what they are."""
    if negative and not use_sigmoid:
        raise ValueError("`allow_neg_eigval=True` needs `use_beta_sigmoid_in_kernel=True`")
    kind = ";beta=twice_sigmoid" if negative else ";beta=sigmoid" if use_sigmoid else ""
    if beta.dtype == q.dtype:
        return beta, kind
    return wide(beta), ";beta=f32" + kind


def raw_gate(name: str, g, A_log, dt_bias, bias_shape: tuple, lower_bound=None) -> tuple:
    """(gate inputs, further tensors, scalars, part of the key) of a gate that the kernel computes. A_log has a number per value head,
    dt_bias one for each of `bias_shape`, in whatever shape."""
    flags, more = [], []
    if lower_bound is not None:
        flags.append("bounded")
    if A_log is not None:
        flags.append("log")
        more.append(shaped(name, "A_log", A_log, bias_shape[:1]))
    if dt_bias is not None:
        flags.append("bias")
        more.append(shaped(name, "dt_bias", dt_bias, bias_shape))
    return wide(g), more, [] if lower_bound is None else [float(lower_bound)], ";gate=" + "+".join(flags)


def shaped(name: str, argument: str, x, shape: tuple):
    """x in float32 and in this shape."""
    _array(name, argument, x)
    if tuple(x.shape) == shape:  # a view costs 2 us
        return wide(x)
    if math.prod(x.shape) != math.prod(shape):
        fail(name, argument, f"{' * '.join(map(str, shape))} numbers, for each of the value heads", f"shape {list(x.shape)}")
    return wide(x).reshape(shape)


# ------------------------------------------------------------------------------------------------- arrays


def wide(x):
    """x in float32, as gates are."""
    if x.dtype is _FLOAT32:
        return x
    return x.float() if hasattr(x, "float") else x.astype("float32", copy=False)


def like(x, other):
    """x in the element type of another array."""
    if x.dtype == other.dtype:
        return x
    return x.to(other.dtype) if hasattr(x, "float") else x.astype(other.dtype)


def swapped(x):
    return x.transpose(-1, -2) if hasattr(x, "float") else x.swapaxes(-1, -2)


def zeros(shape: tuple, like):
    """In float32, where `like` is."""
    if hasattr(like, "new_zeros"):
        return like.new_zeros(shape, dtype=_FLOAT32)
    import numpy

    return numpy.zeros(shape, numpy.float32)


@cache
def _on_device(device, values, *args):
    return torch.tensor(values(*args), dtype=torch.float32, device=device)


def constant(q, values, *args):
    """float32 numbers, one per head, where q is: values(*args)."""
    if torch is None or not isinstance(q, torch.Tensor):
        import numpy

        return numpy.array(values(*args), numpy.float32)
    if torch.compiler.is_compiling() or type(q) is not torch.Tensor:
        return torch.tensor(values(*args), dtype=torch.float32, device=q.device)
    return _on_device(q.device, values, *args)


def retention_gates(heads: int) -> list[float]:
    return [math.log1p(-(2.0 ** (-5 - h))) for h in range(heads)]


def lightning_slopes(heads: int, layer_idx: int, num_layers: int) -> list[float]:
    return [8 / heads * (1 - layer_idx / num_layers) * h for h in range(heads)]


def attention_scores(q, k, g, scale: float):
    """What the parallel form multiplies values with, [B, heads, T, T] in q's type: scale q_i k_j e^(g_(j+1) + … + g_i) for j <= i.
    Gates [B, T, heads], or None. Sums are of the gates between two tokens, so that none is a difference."""
    if torch is not None and isinstance(q, torch.Tensor):
        library, repeat = torch, torch.repeat_interleave
    else:
        import numpy as library

        repeat = library.repeat
    q_heads, k_heads = (wide(x).swapaxes(1, 2) for x in (q, k))
    scores = library.tril(q_heads @ swapped(k_heads)) * scale
    if g is not None:
        gates = wide(g).swapaxes(1, 2)[..., None]
        between = library.tril(library.broadcast_to(gates, (*gates.shape[:-1], gates.shape[-2])), -1).cumsum(-2)
        scores = repeat(scores, gates.shape[1] // scores.shape[1], 1) * library.exp(between)
    return scores.to(q.dtype) if library is torch else scores.astype(q.dtype)
