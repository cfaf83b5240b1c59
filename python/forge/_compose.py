"""Variants from parts: `compose` asks the library for the recurrence of named choices, of which it derives the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from . import _c
from ._location import Location, error
from ._program import Meta
from ._suggest import suggestion
from ._tensor import Tensor
from ._trace import Trace
from ._types import SymbTensor
from .attention import Attention


def __getattr__(name: str) -> Any:
    if name == "CHOICES":  # what there is to choose from, by part; the first of each is the default
        return {part["name"]: tuple(c["name"] for c in part["choices"]) for part in _c.composition_parts()}
    raise AttributeError(f"module 'forge._compose' has no attribute {name!r}")


def refusal(**chosen: Any) -> str | None:
    """Why these choices make no variant; None if they make one."""
    try:
        _c.compose(chosen)
    except ValueError as refused:
        return str(refused).removeprefix("compose: ")
    return None


def compose(
    decay: str = "none",
    features: str = "identity",
    update: str = "additive",
    read: str = "after",
    normalise: str = "none",
    discretise: str = "euler",
    gate: str = "log",
    rank: int = 2,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    mask: Callable[..., Any] | None = None,
    transition: Callable[..., Any] | None = None,
    inputs: Mapping[str, SymbTensor] | None = None,
    sequential: bool = False,
) -> Attention:
    """A variant from the field's usual parts, by name; its recurrence is written of them, its phases are derived.

    decay       what the state is multiplied by: none, head (a constant g per head), scalar, vector (per key channel) or
                value (per value channel), all data-dependent but head
    gate        what g is: log, the logarithm of the decay, or raw, before a sigmoid
    features    of queries and keys: identity, elu (elu(x) + 1), softmax, cosine (unit length), squared, rotary (turned
                by the place times theta per head), rotary-data (turned by the sum of theta so far)
    update      additive; delta; oja (the delta rule on the side of the values: S + beta (k - S v) vᵀ); householder (as
                many delta steps per token as `rank`, on rows 2t and 2t + 1 of k, v and beta if that is 2); dplr (S -
                rate p pᵀ S + k vᵀ); mimo (`rank` keys and values per token); momentum (mu before a sigmoid)
    read        queries read the state after the token, or before it
    normalise   none, or sum: outputs are divided by what queries read of the sum of keys
    discretise  euler; zero-order-hold (keys times 1 - decay); trapezoidal (this token's input and the last one's)
    rank        keys and values per token, 2 to 8, of householder and mimo

    Two parts may be functions of your own (docs/python.md says what is possible, with examples):

    mask        (i, j, …) -> what the score of the query at place i and the key at place j <= i is multiplied by, a
                number or a condition
    transition  (k, v, q, …) -> the matrix A of S' = A S + k vᵀ, in place of a decay: its diagonal (a number or [K]),
                (diagonal, a, b) for diag(diagonal) + a bᵀ, a matrix [K, K], or a dictionary with some of diagonal,
                left, right, matrix, angle, and the next values of states of its own
    inputs      what they take beside that, name -> SymbTensor: of tokens, per head, and "prev_<name>": a transition's
                states. A mask takes an input x of tokens as x_i and x_j
    sequential  token by token, for transitions that have no form over chunks

    ValueError for what there is not, and for choices that make no variant together, with the reason.
    `forge compose --decay vector --update delta` is the same on the command line, forge/compose.h in C++.
    """
    chosen = dict(
        decay=decay, gate=gate, features=features, update=update, read=read, normalise=normalise, discretise=discretise
    )
    more: dict[str, Any] = {"rank": rank, **({} if name is None else {"name": name})}
    allowed: Mapping[str, tuple[int, ...]] = {}
    if mask is not None or transition is not None or inputs is not None:
        meta = _meta(inputs, Location.of_caller())
        allowed = {} if meta is None else meta.constants
        more["functions"] = _functions(meta, mask, transition)
    if sequential:
        more["sequential"] = 1
    return Attention(_c.compose({**chosen, **more}), options=options, allowed=allowed)


def _meta(inputs: Mapping[str, SymbTensor] | None, where: Location) -> Meta | None:
    if inputs is not None and not isinstance(inputs, Mapping):
        raise TypeError(f"compose: argument 'inputs': expected a dictionary from names to SymbTensor, got {inputs!r}")
    return Meta(inputs, where, needs_state=False) if inputs else None


def _functions(meta: Meta | None, mask: Callable[..., Any] | None, transition: Callable[..., Any] | None) -> str:
    """Declarations and functions in text form."""
    lines = [] if meta is None else meta.declarations()
    for name, function in (("mask", mask), ("transition", transition)):
        if function is None:
            continue
        if not callable(function):
            raise TypeError(f"compose: argument {name!r}: expected a function, got {function!r}")
        lines.append(_function(name, function, meta))
    return "\n".join(lines)


def _types(name: str, meta: Meta | None) -> dict[str, str]:
    """What a function may take, with its types."""
    types = {"i": "f32[]", "j": "f32[]"} if name == "mask" else {"q": "f32[K]", "k": "f32[K]", "v": "f32[V]"}
    for i in () if meta is None else meta.inputs.values():
        names = [f"{i.name}_i", f"{i.name}_j"] if name == "mask" and i.kind == "input" else [i.name]
        types.update(dict.fromkeys(names, i.phase_type(True)))
    if name == "transition" and meta is not None:
        types.update({f"prev_{s.name}": f"f32[{', '.join(s.dims)}]" for s in meta.states.values()})
    return types


#: for whom a mask is too little
_OF_A_TRANSITION = "a mask is a function of distances; one of a token's q, k and v is a transition="


def _function(name: str, function: Callable[..., Any], meta: Meta | None) -> str:
    trace, where = Trace(name, {} if meta is None else meta.sizes), Location.of_function(function)
    types, arguments = _types(name, meta), {}
    for p in inspect.signature(function).parameters.values():
        if p.name in types and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            arguments[p.name] = trace.param(p.name, p.name, "input", types[p.name], where)
        elif p.default is p.empty:
            raise error(
                where,
                f"{name}: unknown input {p.name!r}{suggestion(p.name, list(types))}\n    expected: one of "
                f"{', '.join(types)}\n    hint:     "
                + (_OF_A_TRANSITION if name == "mask" and p.name in ("q", "k", "v") else "declare it in `inputs`"),
            )
    if name == "mask" and not {"i", "j"} & set(arguments):
        trace.param("i", "i", "input", "f32[]", where)
    if name == "transition" and not arguments:
        trace.param("k", "k", "input", "f32[K]", where)
    results = _results(name, function(**arguments), trace, where)
    body = "\n".join("    " + line for line in trace.lines)
    returned = ", ".join(f'input "{n}" = %{x.name}' for n, x in results.items())
    return f"  func @{name} {{\n{body}\n    return {returned}\n  }}"


def _results(name: str, returned: Any, trace: Trace, where: Location) -> dict[str, Tensor]:
    if name == "mask":
        named = {"mask": returned}
    elif isinstance(returned, Mapping):
        named = {n.removeprefix("prev_"): x for n, x in returned.items()}
    elif isinstance(returned, (tuple, list)):
        if len(returned) != 3:
            raise error(where, f"transition: expected (diagonal, left, right), got {len(returned)} values")
        named = dict(zip(("diagonal", "left", "right"), returned))
    else:
        named = {"matrix" if isinstance(returned, Tensor) and returned.ndim == 2 else "diagonal": returned}
    made = {}
    for n, x in named.items():
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            x = trace.constant(x)
        if not isinstance(x, Tensor):
            raise error(where, f"{name}: expected a traced tensor as {n!r}, got {x!r}")
        made[n] = x
    return made
