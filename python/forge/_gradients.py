"""Gradients: the backward pass of a variant as a variant of its own, and what PyTorch's autograd makes of it."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from ._arguments import Arguments
from ._calls import Shape, Signature, read_shapes
from ._program import Input
from ._variant import KEPT_CHUNK

if TYPE_CHECKING:
    from .attention import Attention


def backward_signature(
    forward: Signature, of: frozenset[str] | None, from_states: bool = False, to_inputs: bool = False
) -> Signature:
    """The tensors of the entry point `backward` (graph::gradient_interface): the inputs and the gradients of outputs;
    as states those of the definition, the gradients of all states, and sums for what all tokens share, [N, heads, …];
    as outputs the gradients of token inputs, one per head of the outputs. `of`: the inputs whose gradients are wanted;
    None: all. `from_states`: states of the definition come before chunks, and are none of the call's own. `to_inputs`:
    there are no gradients of states."""
    made = copy.copy(forward)
    given = [Input(grad(name), "input", forward.output_dtypes[name], dims, 0.0)
             for name, dims in forward.outputs.items()]  # fmt: skip
    made.inputs, made.tensors = [*forward.inputs, *given], [*forward.tensors, *given]
    heads = next(iter(forward.outputs.values()))[1]
    own = {name: dims for name, dims in forward.states.items() if name not in forward.carried}
    carried = {name: dims for name, dims in forward.states.items() if name in forward.carried}
    wanted = [i for i in forward.inputs if of is None or i.name in of]
    shared = {i.name: i.dims[1:] for i in wanted if i.kind != "input"}
    states = {} if to_inputs else {**own, **carried}
    made.states = {
        **({} if from_states else own),
        **{grad(name): dims for name, dims in {**states, **shared}.items()},
        **carried,
    }
    made.outputs = {grad(i.name): [i.dims[0], heads, *i.dims[2:]] for i in wanted if i.kind == "input"}
    return made


def grad(name: str) -> str:
    return "grad_" + name


def _entry(signature: Signature, of: frozenset[str] | None, from_states: bool, to_inputs: bool) -> str:
    """The entry point's name, with inputs in the order of declaration."""
    entry = "backward from states" if from_states else "backward to inputs" if to_inputs else "backward"
    return entry if of is None else f"{entry} of " + ", ".join(i.name for i in signature.inputs if i.name in of)


class Backward:
    """The backward pass of a variant. `of`: the inputs whose gradients are wanted; None: all. `from_states`: it begins
    with the states before chunks of the forward pass. `to_inputs`: it has no gradients of states."""

    def __init__(
        self, forward: Attention, of: frozenset[str] | None = None, from_states: bool = False, to_inputs: bool = False
    ) -> None:
        from .attention import Attention

        self.forward, self._of = forward, of
        made = self._attention = copy.copy(forward)
        made.options = {**{n: x for n, x in forward.options.items() if n not in ("strategy", "segments", "engine")},
                        "entry": _entry(forward.signature, of, from_states, to_inputs)}  # fmt: skip
        if from_states:
            made.options["chunk"] = forward._of_chunks("forward", KEPT_CHUNK)["chunk"]
        made.signature = backward_signature(forward.signature, of, from_states, to_inputs)
        self._wants_final = any(name not in forward.signature.states for name in made.signature.states)
        made._arguments = {"forward": Arguments(made.signature, forward._arguments["forward"].defaults)}
        Attention._forget(made)

    def run(
        self, tensors: list[Any], scalars: list[float], initial: list[Any] | None, cu_seqlens: Any,
        grad_outputs: list[Any], grad_final: list[Any], border: Any = None, kept: list[Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The gradients of the inputs and of all initial states, if it has such, by name. Arguments are in the order of
        declaration; gradients that are None are zero. `kept`: the states before chunks, if it begins with them."""
        signature, first = self.forward.signature, tensors[0]
        shape = cache(lambda: self._shape(tensors, cu_seqlens))  # most calls need none
        outputs = [_zeros(first, self._output_size(shape(), dims), like=True) if g is None else g
                   for g, dims in zip(grad_outputs, signature.outputs.values())]  # fmt: skip
        given = {n: x for n, x in zip(signature.states, initial or []) if n in self._attention.signature.states}
        given.update((grad(name), g) for name, g in zip(signature.states, grad_final) if g is not None)
        states = None if not given else [
            given[name] if name in given else _zeros(first, self._state_size(shape(), name, dims))
            for name, dims in self._attention.signature.states.items()
        ]  # fmt: skip
        results = self._attention._run(
            [*tensors, *outputs], scalars, states, self._wants_final, cu_seqlens, border=border, kept=kept
        )
        names = [*self._attention.signature.outputs, *self._attention.signature.states]
        by_name = dict(zip(names, results))
        inputs = dict(zip((i.name for i in signature.tensors), tensors))
        made = {
            i.name: self._of_input(by_name[grad(i.name)], i, inputs.get(i.name))
            for i in signature.inputs
            if self._of is None or i.name in self._of
        }
        return {**made, **{name: by_name[grad(name)] for name in signature.states if grad(name) in by_name}}

    # -- shapes --------------------------------------------------------------------------------------------------------

    def _shape(self, tensors: list[Any], cu_seqlens: Any) -> Shape:
        signature, sequences = self.forward.signature, None if cu_seqlens is None else cu_seqlens.shape[0] - 1
        shapes = [tuple(x.shape) for x in tensors]
        if self.forward._one_head:
            at = [len(s) - len(i.dims) + (2 if i.kind == "input" else 1) for s, i in zip(shapes, signature.tensors)]
            shapes = [(*s[:n], 1, *s[n:]) for s, n in zip(shapes, at)]
        return read_shapes(signature, shapes, self.forward._allowed, sequences)

    def _output_size(self, shape: Shape, dims: list[str]) -> tuple[int, ...]:
        size = shape.of(self._visible(dims, 1))
        return size if shape.batch is None else (shape.batch, *size)

    def _state_size(self, shape: Shape, name: str, dims: list[str]) -> tuple[int, ...]:
        heads: tuple[int, ...] = (shape.most_heads,)
        if name in self.forward.signature.carried:  # those of the input that is read
            source = next(i for i in self.forward.signature.tensors if "last_" + i.name == name)
            heads = shape.of([source.dims[1]])
        return (shape.sequences, *(() if self.forward._one_head else heads), *shape.of(dims))

    def _visible(self, dims: list[str], head_at: int) -> list[str]:
        return [*dims[:head_at], *dims[head_at + 1 :]] if self.forward._one_head else dims

    # -- sums of what heads and sequences share ------------------------------------------------------------------------

    def _of_input(self, g: Any, i: Input, x: Any) -> Any:
        """From a gradient per head of the outputs, or per sequence and head, to one in the shape of the input."""
        if i.kind == "scalar":
            return g.sum()
        if i.kind == "head":
            total = g.sum(0)
            heads = x.shape[0] if not self.forward._one_head else 1
            return _converted(total if self.forward._one_head else _grouped(total, 0, heads), x)
        if tuple(g.shape) == tuple(x.shape):
            return _converted(g, x)
        axis = len(x.shape) - len(i.dims) + 1
        return _converted(_grouped(g, axis, x.shape[axis]), x)


def _grouped(g: Any, axis: int, heads: int) -> Any:
    """The sum over groups of neighbouring heads."""
    size = tuple(g.shape)
    if size[axis] == heads:
        return g
    g = g if hasattr(g, "to") else g.astype("float32")  # PyTorch adds numbers of 16 bits in float32 by itself
    return g.reshape(*size[:axis], heads, size[axis] // heads, *size[axis + 1 :]).sum(axis + 1)


def _converted(g: Any, x: Any) -> Any:
    if g.dtype == x.dtype:
        return g
    return g.to(x.dtype) if hasattr(g, "to") else g.astype(x.dtype)


def _zeros(first: Any, size: tuple[int, ...], like: bool = False) -> Any:
    """float32, or `like` the first tensor's type, where that is."""
    if hasattr(first, "new_zeros"):
        import torch

        return first.new_zeros(size, dtype=first.dtype if like else torch.float32)
    import numpy

    return numpy.zeros(size, first.dtype if like else numpy.float32)


# ------------------------------------------------------------------------------------------------------------- autograd


@cache
def _function() -> Any:
    """The autograd.Function of all variants; made when PyTorch is there."""
    import torch

    class OfAttention(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, attention: Attention, scalars: list[float], final: bool, cu_seqlens: Any, count: int,
                    border: Any, *given: Any) -> Any:  # fmt: skip
            tensors, initial = list(given[:count]), list(given[count:])
            ctx.attention, ctx.scalars, ctx.cu_seqlens, ctx.count = attention, scalars, cu_seqlens, count
            ctx.border = border
            ctx.set_materialize_grads(False)
            keeps = border is None and attention._keeps_states(tensors[0])
            results = attention._run(
                tensors, scalars, initial or None, final, cu_seqlens, KEPT_CHUNK if keeps else 0, border
            )
            own = len(results) - (len(attention.signature.states) - len(attention.signature.carried) if keeps else 0)
            ctx.given = len(given)
            ctx.save_for_backward(*given, *results[own:])
            return tuple(results[:own])

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = list(ctx.saved_tensors)  # read once: checkpoints compute them again for that
            saved, kept = saved[: ctx.given], saved[ctx.given :]
            tensors, initial = saved[: ctx.count], saved[ctx.count :]
            signature, outputs = ctx.attention.signature, len(ctx.attention.signature.outputs)
            needed = frozenset(i.name for i, need in zip(signature.tensors, ctx.needs_input_grad[6:]) if need)
            of_states = any(g is not None for g in grads[outputs:]) or any(ctx.needs_input_grad[6 + ctx.count :])
            to_inputs = not kept and not of_states and ctx.border is None
            made = ctx.attention._backward(needed, bool(kept), to_inputs).run(
                tensors,
                ctx.scalars,
                initial or None,
                ctx.cu_seqlens,
                list(grads[:outputs]),
                list(grads[outputs:]),
                ctx.border,
                kept or None,
            )
            names = [*(i.name for i in signature.tensors), *list(signature.states)[: len(initial)]]
            of_given = [
                _converted(made[name], x) if wanted else None
                for name, x, wanted in zip(names, saved, ctx.needs_input_grad[6:])
            ]
            return (None, None, None, None, None, None, *of_given)

    return OfAttention


def run_with_gradients(
    attention: Attention, tensors: list[Any], scalars: list[float], initial: list[Any] | None, final: bool,
    cu_seqlens: Any, border: Any = None,
) -> list[Any]:  # fmt: skip
    """Attention._run for tensors that require gradients."""
    given = [*tensors, *(initial or ())]
    return list(_function().apply(attention, scalars, final, cu_seqlens, len(tensors), border, *given))
