"""Running a program of _programs: at once on ordinary arrays, through a PyTorch operator where something wants to look at it
(torch.compile, fake tensors, dispatch modes)."""

from __future__ import annotations

from .._calls import factor_of, symbol_of
from ._programs import program

try:
    import torch
except ImportError:  # NumPy arrays are enough
    torch = None
#: Types whose arrays nothing looks at but torch.compile.
_ORDINARY = () if torch is None else (torch.Tensor, torch.nn.Parameter)
_is_compiling = None if torch is None else torch.compiler.is_compiling


def run(key: str, tensors: list, scalars: list[float], initial: list | None, final: bool, cu_seqlens) -> list:
    """[outputs…, final states… if `final`] of the program that `key` names, with its tensors and scalars in their order."""
    kind = type(tensors[0])
    if (kind in _ORDINARY and not _is_compiling()) or torch is None or not issubclass(kind, torch.Tensor):
        return program(key).run(tensors, scalars, initial, final, cu_seqlens)
    if torch.is_grad_enabled():
        for x in [*tensors, *(initial or [])]:
            if x.requires_grad:
                _no_gradient()
    return torch.ops.forge.attention(key, tensors, scalars, initial or [], final, cu_seqlens)


# ------------------------------------------------------------------------------------------------- torch.ops.forge.attention


def _sizes(attention, tensors: list) -> dict:
    """Symbols of a call, T and the batch included, symbolic sizes as they are."""
    sizes = {}
    for i, x in zip(attention.signature.tensors, tensors):
        dims = _visible(attention, i.dims, 1 if i.kind == "input" else 0)
        lead = x.dim() - len(dims)
        if lead:
            sizes.setdefault("B", x.shape[0])
        for at, dim in enumerate(dims):
            if not dim.isdigit() and factor_of(dim) == 1:
                sizes.setdefault(dim, x.shape[lead + at])
    return sizes


def _visible(attention, dims: list[str], head_at: int) -> list[str]:
    """The axes that arrays have."""
    return [*dims[:head_at], *dims[head_at + 1 :]] if attention.one_head else dims


def _fake(key: str, tensors: list, scalars: list[float], initial_states: list, output_final_state: bool, cu_seqlens) -> list:
    """Results without numbers: shapes, types and devices."""
    attention, first = program(key), tensors[0]
    signature, sizes = attention.signature, _sizes(attention, tensors)
    lead = [sizes["B"]] if "B" in sizes else []

    def shape(dims):
        return [int(d) if d.isdigit() else factor_of(d) * sizes[symbol_of(d)] for d in dims]

    results = [first.new_empty([*lead, *shape(_visible(attention, dims, 1))]) for dims in signature.outputs.values()]
    if output_final_state:
        sequences = cu_seqlens.shape[0] - 1 if cu_seqlens is not None else sizes.get("B", 1)
        heads = next(iter(signature.outputs.values()))[1]  # outputs and states have the same
        states = signature.states.values()
        results += [first.new_empty([sequences, *shape(_visible(attention, [heads, *dims], 0))], dtype=torch.float32) for dims in states]
    return results


def _real(key: str, tensors: list, scalars: list[float], initial_states: list, output_final_state: bool, cu_seqlens) -> list:
    return program(key).run(tensors, scalars, initial_states or None, output_final_state, cu_seqlens)


def _no_gradient(*_):
    raise NotImplementedError("forge.ops has no gradients yet: call it under torch.no_grad(), or detach the inputs")


if torch is not None:
    _SCHEMA = "(str key, Tensor[] tensors, float[] scalars, Tensor[] initial_states, bool output_final_state, Tensor? cu_seqlens) -> Tensor[]"
    _operator = torch.library.custom_op("forge::attention", torch.no_grad()(_real), mutates_args=(), schema=_SCHEMA)
    _operator.register_fake(_fake)
    _operator.register_autograd(_no_gradient)

__all__ = ["run", "torch"]
