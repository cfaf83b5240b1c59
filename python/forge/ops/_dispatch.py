"""Running a program of _programs: at once on ordinary arrays, through a PyTorch operator where something wants to look
at it (torch.compile, fake tensors, dispatch modes)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

from .._arrays import library_of, like, wide
from .._calls import Plan, factor_of, symbol_of
from ._programs import program

P = ParamSpec("P")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch: Any = _imported("torch")  #: None without PyTorch: NumPy arrays are enough
#: Types whose arrays nothing looks at but torch.compile.
_ORDINARY = () if torch is None else (torch.Tensor, torch.nn.Parameter)
_is_compiling: Any = None if torch is None else torch.compiler.is_compiling


def run(
    key: str,
    tensors: list[Any],
    scalars: list[float],
    initial: list[Any] | None,
    final: bool,
    cu_seqlens: Any,
    before_chunks: bool = False,
    recurrent: bool = False,
) -> list[Any]:
    """[outputs…, final states… if `final`, states before chunks…] of the program that `key` names, with its tensors and
    scalars in their order; `recurrent`: by the kernels of `decode` where there are few tokens."""
    kind = type(tensors[0])
    if before_chunks:
        if torch is not None and _is_compiling():
            raise NotImplementedError("return_intermediate_states is not available under torch.compile")
        return program(key)._run(tensors, scalars, initial, final, cu_seqlens, True)
    if (kind in _ORDINARY and not _is_compiling()) or torch is None or not issubclass(kind, torch.Tensor):
        return program(key)._run(tensors, scalars, initial, final, cu_seqlens, recurrent=recurrent)
    return torch.ops.forge.attention(key, tensors, scalars, initial or [], final, cu_seqlens)


# ------------------------------------------------------------------------------------------------- operators


class Made(NamedTuple):
    """A tensor of a request that every call makes of its arguments, function(*arguments); without arguments a constant,
    made once."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def _tensor(x: Any) -> Any:
    return x.function(*x.arguments) if type(x) is Made else x


class Request(NamedTuple):
    """A call of an operator in the terms of `run`, and what it makes of the results. Tensors and initial states that
    are not arguments as they came are `Made` of them: such calls are as fast as others."""

    key: str
    tensors: list[Any]
    scalars: list[float]
    initial: list[Any] | None
    final: bool
    cu_seqlens: object
    returns: Callable[[list[Any]], tuple[Any, ...]]
    before_chunks: bool = False  #: whether the states before chunks are wanted
    recurrent: bool = False  #: whether few tokens go one by one


def can_advance(*tensors: Any) -> bool:
    """Whether `advanced` can write the last one, a state, in place: nothing looks at these tensors but the call."""
    ordinary = all(type(x) in _ORDINARY for x in tensors) and not _is_compiling()
    return ordinary and tensors[-1].dtype is torch.float32 and not _differentiable(tensors)


def advanced(wanted: Request) -> Any:
    """The output of the request. The final state lies in the place of the initial one, of which there must be one."""
    tensors, states = [_tensor(x) for x in wanted.tensors], [_tensor(x) for x in wanted.initial or ()]
    plan = program(wanted.key)._plan(
        library_of(tensors[0]), tensors, states, False, wanted.cu_seqlens, entry="decode"
    )  # fmt: skip
    return plan.run(tensors, wanted.scalars, states, wanted.cu_seqlens)[0]


#: The number of an argument, or a function and the numbers of the arguments that it makes a tensor of.
_Origin = int | tuple[Callable[..., Any], tuple[int, ...]]


class _Known(NamedTuple):
    """What calls with arguments like those seen before do."""

    plan: Plan
    tensors: list[_Origin]
    scalars: list[float]
    initial: list[_Origin] | None
    cu_seqlens: int | None
    returns: Callable[[list[Any]], tuple[Any, ...]]


_MOST_KNOWN = 4096
_PLAIN = (type(None), bool, int, float, str)
_Tensor: Any = None if torch is None else torch.Tensor
_grad_enabled: Any = None if torch is None else torch.is_grad_enabled


def operator(request: Callable[P, Request]) -> Callable[P, tuple[Any, ...]]:
    """The operator whose calls `request` describes. What follows from layouts of tensors and from numbers is worked out
    once: a request must follow from these alone and from tensors of one number, and take its tensors from the
    arguments, or be made again in every call."""
    known: dict[tuple[Any, ...], _Known | None] = {}
    latest: tuple[Any, ...] = (None, None)
    request = _of_one_type(request)

    @wraps(request)
    def call(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, ...]:
        nonlocal latest
        if "cp_context" in kwargs:
            return _of_rank(request, args, kwargs)
        if torch is None or _is_compiling():
            return _answer(request(*args, **kwargs))
        values: tuple[Any, ...] = (*args, *kwargs.values())
        try:
            key = (
                tuple(kwargs),
                [  # written out, as calls are short
                    (x.dtype, x.shape, x.is_contiguous() or (x.stride(), x.is_neg()), x.get_device())
                    if type(x) is _Tensor
                    else _plain(x)
                    for x in values
                ],
            )
        except _Strange:
            return _answer(request(*args, **kwargs))
        before, found = latest
        if key != before:  # comparing is faster than hashing
            hashed = key[0], tuple(key[1])
            if hashed not in known:
                wanted = request(*args, **kwargs)
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                answer = _answer(wanted)
                if _are_distinct(values) and not _differentiable(values):
                    known[hashed] = _known(wanted, values)
                return answer
            found = known[hashed]
            latest = key, found
        if found is None or _differentiable(values):
            return _answer(request(*args, **kwargs))
        plan, tensors, scalars, initial, cu_seqlens, returns = found
        inputs = [values[i] if type(i) is int else _from(i, values) for i in tensors]
        states = None if initial is None else [values[i] if type(i) is int else _from(i, values) for i in initial]
        return returns(plan.run(inputs, scalars, states, None if cu_seqlens is None else values[cu_seqlens]))

    return call


#: Element types that vectors of one call may have beside one another.
_MIXABLE = ("torch.float32", "torch.bfloat16", "torch.float16", "float32", "bfloat16", "float16")


def _of_one_type(request: Callable[P, Request]) -> Callable[P, Request]:
    """The request, with q (or r), k and v in float32 and the output in v's element type where theirs are several."""
    names = list(inspect.signature(request).parameters)[:3]
    if names[1:] != ["k", "v"]:
        return request

    @wraps(request)
    def wanted(*args: P.args, **kwargs: P.kwargs) -> Request:
        given: Any = [*args[:3], *map(kwargs.get, names[len(args) :])]
        try:
            first, second, third = given  # written out, as calls are short
            if first.dtype == second.dtype == third.dtype:
                return request(*args, **kwargs)
            mixed = all(str(x.dtype) in _MIXABLE for x in given)
        except AttributeError:
            mixed = False  # something is no array, which the request says
        if not mixed:
            return request(*args, **kwargs)
        vectors = [wide(x) for x in given]
        taken: Any = [*vectors[: len(args)], *args[3:]]
        named: Any = {**kwargs, **dict(zip(names[len(args) :], vectors[len(args) :]))}
        made = request(*taken, **named)
        return made._replace(returns=lambda results: made.returns([like(results[0], third), *results[1:]]))

    return wanted


def _of_rank(request: Callable[..., Request], args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """A call of several ranks, whose cu_seqlens are those of the context: this rank's."""
    context = kwargs.pop("cp_context")
    if context is None:
        return _answer(request(*args, **kwargs))
    if torch is not None and _is_compiling():
        raise NotImplementedError("cp_context is not available under torch.compile")
    from ..distributed import border_of_context

    border, kwargs["cu_seqlens"] = border_of_context(getattr(request, "__name__", "operator"), context)
    w = request(*args, **kwargs)
    initial = None if w.initial is None else [_tensor(x) for x in w.initial]
    tensors = [_tensor(x) for x in w.tensors]
    return w.returns(program(w.key)._run(tensors, w.scalars, initial, w.final, w.cu_seqlens, w.before_chunks, border))


def _from(origin: Any, values: tuple[Any, ...]) -> Any:
    function, arguments = origin
    return function(*[values[i] for i in arguments])


def _answer(wanted: Request) -> tuple[Any, ...]:
    # Written out: torch 2.6's torch.compile knows the fields of a NamedTuple, and no slices of it.
    w = wanted
    tensors = [x.function(*x.arguments) if type(x) is Made else x for x in w.tensors]
    initial = None if w.initial is None else [_tensor(x) for x in w.initial]
    return w.returns(run(w.key, tensors, w.scalars, initial, w.final, w.cu_seqlens, w.before_chunks, w.recurrent))


class _Strange(Exception):
    """An argument is neither a tensor nor a number or the like."""


def _plain(x: Any) -> Any:
    if type(x) in _PLAIN:
        return x
    raise _Strange


def _differentiable(values: tuple[Any, ...]) -> bool:
    """Whether results are to have gradients: such calls are not remembered, and take no plan of those that are."""
    return bool(_grad_enabled()) and any(x.requires_grad for x in values if type(x) is _Tensor)


def _are_distinct(values: tuple[Any, ...]) -> bool:
    """Whether no tensor is given twice: else nothing says which argument a tensor of the request was."""
    ids = [id(x) for x in values if type(x) is _Tensor]
    return len(set(ids)) == len(ids)


def _known(wanted: Request, values: tuple[Any, ...]) -> _Known | None:
    """None unless all tensors of a request are arguments of the call or made of them, and no other argument is a number
    in a tensor."""
    if wanted.before_chunks:  # how many there are may lie in cu_seqlens
        return None
    places = {id(x): i for i, x in enumerate(values) if type(x) is _Tensor}
    given = [*wanted.tensors, *(wanted.initial or ()), *(() if wanted.cu_seqlens is None else (wanted.cu_seqlens,))]
    sources = [x.arguments if type(x) is Made else (x,) for x in given]
    if any(id(x) not in places for xs in sources for x in xs):
        return None
    passed_on = {id(x) for xs in sources for x in xs}
    if any(values[i].numel() == 1 for x, i in places.items() if x not in passed_on):
        return None
    tensors, initial = (
        [_tensor(x) for x in wanted.tensors],
        None if wanted.initial is None else [_tensor(x) for x in wanted.initial],
    )
    attention, arrays = program(wanted.key), library_of(tensors[0])
    short = wanted.recurrent and wanted.final and attention._is_short(arrays, tensors, initial, wanted.cu_seqlens)
    entry = "decode" if short else "forward"
    plan = attention._plan(arrays, tensors, initial, wanted.final, wanted.cu_seqlens, entry=entry)
    states = wanted.initial or []
    origins = [
        _origin(x, made, places, plan) for x, made in zip([*wanted.tensors, *states], [*tensors, *(initial or [])])
    ]
    count = len(tensors)
    cu_seqlens = None if wanted.cu_seqlens is None else places[id(wanted.cu_seqlens)]
    return _Known(
        plan,
        origins[:count],
        wanted.scalars,
        None if wanted.initial is None else origins[count:],
        cu_seqlens,
        wanted.returns,
    )


def _origin(x: Any, made: Any, places: dict[int, int], plan: Plan) -> _Origin:
    """Where calls have a tensor of a request from. A plan takes nothing but the addresses of tensors: what lies where
    its argument does, a view, need not be made."""
    if type(x) is not Made:
        return places[id(x)]
    if not x.arguments:
        return lambda: made, ()
    if len(x.arguments) == 1 and made.data_ptr() == x.arguments[0].data_ptr() and not plan.converts:
        return places[id(x.arguments[0])]
    return x.function, tuple(places[id(argument)] for argument in x.arguments)


# -------------------------------------------------------------------------------------------- torch.ops.forge.attention


def _sizes(attention: Any, tensors: list[Any]) -> dict[str, Any]:
    """Symbols of a call, T and the batch included, symbolic sizes as they are."""
    sizes: dict[str, Any] = {}
    for i, x in zip(attention.signature.tensors, tensors):
        dims = _visible(attention, i.dims, 1 if i.kind == "input" else 0)
        lead = x.dim() - len(dims)
        if lead:
            sizes.setdefault("B", x.shape[0])
        for at, dim in enumerate(dims):
            if not dim.isdigit() and factor_of(dim) == 1:
                sizes.setdefault(dim, x.shape[lead + at])
    return sizes


def _visible(attention: Any, dims: list[str], head_at: int) -> list[str]:
    """The axes that arrays have."""
    return [*dims[:head_at], *dims[head_at + 1 :]] if attention._one_head else dims


def _fake(
    key: str,
    tensors: list[Any],
    scalars: list[float],
    initial_states: list[Any],
    output_final_state: bool,
    cu_seqlens: Any,
) -> list[Any]:
    """Results without numbers: shapes, types and devices."""
    attention, first = program(key), tensors[0]
    signature, sizes = attention.signature, _sizes(attention, tensors)
    lead = [sizes["B"]] if "B" in sizes else []

    def shape(dims: Any) -> Any:
        return [int(d) if d.isdigit() else factor_of(d) * sizes[symbol_of(d)] for d in dims]

    results = [first.new_empty([*lead, *shape(_visible(attention, dims, 1))]) for dims in signature.outputs.values()]
    if output_final_state:
        sequences = cu_seqlens.shape[0] - 1 if cu_seqlens is not None else sizes.get("B", 1)
        heads = next(iter(signature.outputs.values()))[1]  # outputs and states have the same
        states = signature.states.values()
        results += [
            first.new_empty([sequences, *shape(_visible(attention, [heads, *dims], 0))], dtype=torch.float32)
            for dims in states
        ]
    return results


def _real(
    key: str,
    tensors: list[Any],
    scalars: list[float],
    initial_states: list[Any],
    output_final_state: bool,
    cu_seqlens: Any,
) -> list[Any]:
    return program(key)._run(tensors, scalars, initial_states or None, output_final_state, cu_seqlens)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    key, tensors, scalars, initial, _, cu_seqlens = inputs
    ctx.key, ctx.scalars, ctx.counts = key, scalars, (len(tensors), len(initial))
    ctx.save_for_backward(*tensors, *initial, *([] if cu_seqlens is None else [cu_seqlens]))


def _gradient(ctx: Any, grads: list[Any]) -> tuple[Any, ...]:
    saved, (count, states) = list(ctx.saved_tensors), ctx.counts
    tensors, initial = saved[:count], saved[count : count + states]
    cu_seqlens = saved[count + states] if len(saved) > count + states else None
    made = torch.ops.forge.attention_backward(ctx.key, tensors, ctx.scalars, initial, list(grads), cu_seqlens)
    no_scalars: Any = None if ctx.scalars else []  # as PyTorch takes empty lists for lists of tensors
    return None, made[:count], no_scalars, made[count:], None, None


def _real_gradient(
    key: str, tensors: list[Any], scalars: list[float], initial_states: list[Any], grads: list[Any], cu_seqlens: Any,
) -> list[Any]:  # fmt: skip
    attention = program(key)
    signature, outputs = attention.signature, len(attention.signature.outputs)
    of_states = bool(initial_states) or any(g is not None for g in grads[outputs:])
    made = attention._backward(frozenset(i.name for i in signature.tensors), to_inputs=not of_states).run(
        tensors, scalars, initial_states or None, cu_seqlens, grads[:outputs], grads[outputs:]
    )
    names = [*(i.name for i in signature.tensors), *list(signature.states)[: len(initial_states)]]
    return [made[name].to(x.dtype) for name, x in zip(names, [*tensors, *initial_states])]


def _fake_gradient(
    key: str, tensors: list[Any], scalars: list[float], initial_states: list[Any], grads: list[Any], cu_seqlens: Any,
) -> list[Any]:  # fmt: skip
    return [x.new_empty(x.shape) for x in [*tensors, *initial_states]]


def _no_gradient(*_: Any) -> None:
    raise NotImplementedError("forge.ops: gradients have no gradients: a second derivative was asked for")


if torch is not None:
    _SCHEMA = (
        "(str key, Tensor[] tensors, float[] scalars, Tensor[] initial_states, bool output_final_state, "
        "Tensor? cu_seqlens) -> Tensor[]"
    )
    _operator = torch.library.custom_op("forge::attention", torch.no_grad()(_real), mutates_args=(), schema=_SCHEMA)
    _operator.register_fake(_fake)
    _operator.register_autograd(_gradient, setup_context=_setup_context)
    _BACKWARD_SCHEMA = (
        "(str key, Tensor[] tensors, float[] scalars, Tensor[] initial_states, Tensor?[] grads, Tensor? cu_seqlens) "
        "-> Tensor[]"
    )
    _backward = torch.library.custom_op(
        "forge::attention_backward", torch.no_grad()(_real_gradient), mutates_args=(), schema=_BACKWARD_SCHEMA
    )
    _backward.register_fake(_fake_gradient)
    _backward.register_autograd(_no_gradient)

__all__ = ["Made", "Request", "advanced", "can_advance", "operator", "torch"]
