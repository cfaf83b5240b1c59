"""Arguments of operators: their shapes checked in the operator's own names, and what programs want of them."""

from __future__ import annotations

import importlib
import inspect
import math
import warnings
from functools import cache, partial
from typing import Any

from .._arrays import library_of, wide
from .._calls import fail
from .._suggest import suggestion
from ._dispatch import Made, torch

_FLOAT32 = getattr(torch, "float32", None)

# ------------------------------------------------------------------------------------------------- shapes


def checked(name: str, cu_seqlens: Any, initial_state: Any = None, state: str = "HV K V", **given: Any) -> None:
    """Errors for wrong shapes of `given`, an array and the names of its axes each: "B T H K". Heads are as
    flash-linear-attention means them: q and k have H, values and states HV, a multiple of it, and value head i goes
    with query head i // (HV / H)."""
    known: dict[str, int] = {}
    argument = ""
    key = _shapes(name, state, cu_seqlens, initial_state, given)
    if key in _RIGHT:
        return
    try:
        for argument, (x, axes) in given.items():  # noqa: B007 (named in errors)
            _check_axes(x.shape, _parsed(axes), known)
        H, HV = known.get("H", 1), known.get("HV")
        if HV is not None and (H == 0 or HV % H):
            raise _Wrong("HV", f"a multiple of H = {H} heads", HV)
        argument, sequences = "cu_seqlens", known["B"]
        if cu_seqlens is not None:
            _check_axes(cu_seqlens.shape, _parsed("offsets"), {})
            if sequences != 1:
                raise ValueError(f"{name}: expected a batch of 1 with `cu_seqlens`, got {sequences}")
            sequences = cu_seqlens.shape[0] - 1
        argument = "initial_state"
        if initial_state is not None:
            if tuple(initial_state.shape)[:1] != (sequences,):
                got = list(initial_state.shape)
                raise ValueError(
                    f"{name}: argument {argument!r}: expected {sequences} states, one per sequence, got shape {got}"
                )
            known.setdefault("HV", H)
            _check_axes(initial_state.shape, _parsed("N " + state), known)
        if key is not None and len(_RIGHT) < _MOST_RIGHT:
            _RIGHT.add(key)
    except AttributeError:
        x = (
            cu_seqlens
            if argument == "cu_seqlens"
            else initial_state
            if argument == "initial_state"
            else given[argument][0]
        )
        raise TypeError(
            f"{name}: argument {argument!r}: expected a NumPy array or a PyTorch tensor, got {type(x).__name__}"
        ) from None
    except _Wrong as wrong:
        symbol, expected, got = wrong.args
        first = {s: n for n, (_, axes) in reversed(given.items()) for _, s, _ in _parsed(axes)}
        if expected.startswith("a multiple"):
            argument, expected = first["HV"], f"{expected}, those of {first['H']!r}"
        elif symbol:
            expected = f"{expected}, as {first.get(symbol, first.get('H'))!r} says"
        if symbol in ("H", "HV"):
            raise ValueError(f"{name}: argument {argument!r}: expected {expected}, got {got}") from None
        fail(name, argument, expected, str(got))


#: Shapes that were found right: most calls are like earlier ones.
_RIGHT: set[tuple[Any, ...]] = set()
_MOST_RIGHT = 4096


def _shapes(
    name: str, state: str, cu_seqlens: Any, initial_state: Any, given: dict[str, Any]
) -> tuple[Any, ...] | None:
    """What `checked` looks at; None if some of it has no shape, or, under torch.compile, one that is not known yet."""
    if torch is not None and torch.compiler.is_compiling():
        return None
    try:
        return (name, state, cu_seqlens is not None and cu_seqlens.shape, initial_state is not None and
        initial_state.shape,
                *[(argument, x.shape, axes) for argument, (x, axes) in given.items()])  # fmt: skip
    except AttributeError:
        return None


class _Wrong(Exception):
    """(symbol, what was expected, what came)"""


def _parse(axes: str) -> tuple[tuple[str, str, int], ...]:
    """(axis, its symbol, how many of it): 2*T is (2*T, T, 2)."""
    parts = [(axis, *axis.rpartition("*")[::2]) for axis in axes.split()]
    return tuple((axis, symbol, int(factor or 1)) for axis, factor, symbol in parts)


#: What most arguments have, made once; functools.cache is something that torch.compile warns of.
_KNOWN = {
    axes: _parse(axes) for axes in ("B T H K", "B T H V", "B T HV V", "B T HV", "B T HV K", "N HV K V", "N H K V")
}


def _parsed(axes: str) -> tuple[tuple[str, str, int], ...]:
    return _KNOWN.get(axes) or _parse(axes)


def _check_axes(shape: tuple[int, ...], axes: tuple[Any, ...], known: dict[str, int]) -> None:
    if len(shape) != len(axes):
        raise _Wrong("", f"shape [{', '.join(axis for axis, _, _ in axes)}]", list(shape))
    for (axis, symbol, factor), size in zip(axes, shape):
        if known.setdefault(symbol, size) * factor != size:
            raise _Wrong(symbol, f"{axis} = {known[symbol] * factor}", list(shape))


def _array(name: str, argument: str, x: Any) -> None:
    if library_of(x) is None:
        raise TypeError(
            f"{name}: argument {argument!r}: expected a NumPy array or a PyTorch tensor, got {type(x).__name__}"
        )


# ------------------------------------------------------------------------------------------------- keywords


def check_chunk_size(chunk_size: int | None, sizes: tuple[int, ...] = ()) -> None:
    """ValueError for lengths of chunks that flash-linear-attention has not: others than `sizes`, or than powers of 2.
    Forge chooses its own, by the program and the machine; results are the same but for rounding."""
    if chunk_size is None or chunk_size in sizes:
        return
    if sizes:
        listed = f"either {' or '.join(map(str, sizes))}" if len(sizes) == 2 else f"one of {', '.join(map(str, sizes))}"
        raise ValueError(f"`chunk_size` must be {listed}, got {chunk_size}")
    if chunk_size < 1 or chunk_size & (chunk_size - 1):
        raise ValueError(f"`chunk_size` must be a power of 2, got {chunk_size}")


def v_first_of(name: str, legacy: dict[str, Any], state_v_first: bool | None = None) -> bool:
    """state_v_first (None: there is no such keyword), from what flash-linear-attention called so before too; `legacy`
    are keywords beyond the signature."""
    if "head_first" in legacy:
        raise DeprecationWarning("head_first has been removed: tensors are [B, T, H, ...]")
    if state_v_first is not None and "transpose_state_layout" in legacy:
        if state_v_first:
            raise ValueError("expected `state_v_first` or the deprecated `transpose_state_layout`, got both")
        warnings.warn(
            "`transpose_state_layout` is deprecated and renamed to `state_v_first`", DeprecationWarning, stacklevel=4
        )
        state_v_first = legacy.pop("transpose_state_layout")
    if legacy:
        unknown = next(iter(legacy))
        known = inspect.signature(getattr(importlib.import_module("forge.ops"), name)).parameters
        raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{suggestion(unknown, known)}")
    return bool(state_v_first)


def scale_of(scale: float | None, k: Any) -> float:
    if isinstance(scale, (str, bytes)):
        raise TypeError(f"`scale` must be a number, got {scale!r}")
    return k.shape[-1] ** -0.5 if scale is None else float(scale)


def beta_of(beta: Any, q: Any, use_sigmoid: bool = False, negative: bool = False) -> tuple[Any, ...]:
    """(beta, part of the key): float32 betas stay what they are."""
    if negative and not use_sigmoid:
        raise ValueError("`allow_neg_eigval=True` needs `use_beta_sigmoid_in_kernel=True`")
    kind = ";beta=twice_sigmoid" if negative else ";beta=sigmoid" if use_sigmoid else ""
    if beta.dtype == q.dtype:
        return beta, kind
    return widened(beta), ";beta=f32" + kind


def raw_gate(
    name: str, A_log: Any, dt_bias: Any, bias_shape: tuple[Any, ...], lower_bound: float | None = None
) -> tuple[Any, ...]:
    """(further tensors, scalars, part of the key) of a gate that the kernel computes. A_log has a number per value
    head, dt_bias one for each of `bias_shape`, in whatever shape."""
    flags, more = [], []
    if lower_bound is not None:
        flags.append("bounded")
    if A_log is not None:
        flags.append("log")
        more.append(shaped(name, "A_log", A_log, bias_shape[:1]))
    if dt_bias is not None:
        flags.append("bias")
        more.append(shaped(name, "dt_bias", dt_bias, bias_shape))
    return more, [] if lower_bound is None else [float(lower_bound)], ";gate=" + "+".join(flags)


def shaped(name: str, argument: str, x: Any, shape: tuple[Any, ...]) -> Any:
    """x in float32 and in this shape, for a request."""
    _array(name, argument, x)
    if tuple(x.shape) == shape:
        return widened(x)
    if math.prod(x.shape) != math.prod(shape):
        fail(
            name,
            argument,
            f"{' * '.join(map(str, shape))} numbers, for each of the value heads",
            f"shape {list(x.shape)}",
        )
    return Made(partial(_wide_of, shape), (x,))


def _wide_of(shape: tuple[Any, ...], x: Any) -> Any:
    return wide(x).reshape(shape)


# ------------------------------------------------------------------------------------------------- arrays


def widened(x: Any) -> Any:
    """x in float32, for a request."""
    return x if x.dtype is _FLOAT32 else Made(wide, (x,))


def wide_sum(x: Any, y: Any) -> Any:
    return wide(x) + wide(y)


def swapped(x: Any) -> Any:
    return x.transpose(-1, -2) if hasattr(x, "float") else x.swapaxes(-1, -2)


def zeros(shape: tuple[Any, ...], like: Any) -> Any:
    """In float32, where `like` is."""
    if hasattr(like, "new_zeros"):
        return like.new_zeros(shape, dtype=_FLOAT32)
    import numpy

    return numpy.zeros(shape, numpy.float32)


@cache
def _on_device(device: str, values: Any, *args: Any) -> Any:
    return torch.tensor(values(*args), dtype=torch.float32, device=device)


def constant(q: Any, values: Any, *args: Any) -> Any:
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


def attention_scores(q: Any, k: Any, g: Any, scale: float) -> Any:
    """What the parallel form multiplies values with, [B, heads, T, T] in q's type: scale q_i k_j e^(g_(j+1) + … + g_i)
    for j <= i. Gates [B, T, heads], or None. Sums are of the gates between two tokens, so that none is a difference."""
    if torch is not None and isinstance(q, torch.Tensor):
        library, repeat = torch, torch.repeat_interleave
    else:
        library = importlib.import_module("numpy")
        repeat = library.repeat
    q_heads, k_heads = (wide(x).swapaxes(1, 2) for x in (q, k))
    scores = library.tril(q_heads @ swapped(k_heads)) * scale
    if g is not None:
        gates = wide(g).swapaxes(1, 2)[..., None]
        between = library.tril(library.broadcast_to(gates, (*gates.shape[:-1], gates.shape[-2])), -1).cumsum(-2)
        scores = repeat(scores, gates.shape[1] // scores.shape[1], 1) * library.exp(between)
    return scores.to(q.dtype) if library is torch else scores.astype(q.dtype)
