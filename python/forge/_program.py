"""From `input_meta` and callables to a definition in text form."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _c
from ._location import Location, error, number_text
from ._suggest import suggestion
from ._tensor import Tensor
from ._trace import Trace
from ._types import HALF, ConstExpr, SymbTensor, dims_of, is_name

_CHUNK_ROWS = re.compile(r"^(\d+\*)?C$")
_TOKENS = re.compile(r"^(?:(\d+)\s*\*\s*)?T$")


@dataclass
class Input:
    name: str
    kind: str  #: input, head or scalar
    dtype: str = "f32"
    dims: list[str] = field(default_factory=list)
    pad: float = 0.0
    default: float | None = None  #: of a scalar
    range: tuple[float, float] | None = None  #: what checks draw from

    @property
    def type(self) -> str:
        return f"{self.dtype}[{', '.join(self.dims)}]"

    def phase_type(self, step: bool) -> str:
        """What a phase sees: no heads, the chunk's tokens for all tokens; `step` sees one token, and no 16-bit
        types."""
        dims = self.dims
        if self.kind == "head":
            dims = dims[1:]
        if self.kind == "input":
            factor = dims[0].removesuffix("T").removesuffix("*")
            tokens = [factor] if step and factor else [] if step else [f"{factor}*C" if factor else "C"]
            dims = tokens + dims[2:]
        dtype = "f32" if step and self.dtype in HALF else self.dtype
        return f"{dtype}[{', '.join(dims)}]"


@dataclass
class State:
    name: str
    dims: list[str]
    head: str | None
    prev_dtype: str = "f32"
    chunk_dtype: str = "f32"


class Meta:
    """`input_meta`, sorted out: inputs, states, and the sizes that ConstExpr fix."""

    def __init__(self, input_meta: Mapping[str, Any], where: Location, needs_state: bool = True) -> None:
        if not isinstance(input_meta, Mapping) or not input_meta:
            raise error(
                where, f"input_meta: expected a dictionary from names to SymbTensor and numbers, got {input_meta!r}"
            )
        self.where = where
        self.inputs: dict[str, Input] = {}
        self.states: dict[str, State] = {}
        self.constants: dict[str, tuple[int, ...]] = {}  #: the values that a symbol may have
        for name, value in input_meta.items():
            if not is_name(name):
                raise error(where, f"input_meta: expected names of letters, digits and _, no digit first, got {name!r}")
            self._add(name, value)
        if not self.states and needs_state:
            raise error(
                where,
                "input_meta: there is no state\n    expected: 'prev_s': SymbTensor(['NS', 'H', 'K', 'V'], dtype=...)",
            )

        if taken := [s for s in self.states if s in self.inputs]:
            raise error(
                where,
                f"input_meta: {taken[0]!r} is an input, and the state of 'prev_{taken[0]}'\n    expected: a name of "
                f"its own",
            )

    @property
    def sizes(self) -> dict[str, int]:
        """Symbols with a single value."""
        return {symbol: values[0] for symbol, values in self.constants.items() if len(values) == 1}

    def _dim(self, owner: str, dim: str | int | ConstExpr, position: int, head_at: int) -> str:
        if isinstance(dim, ConstExpr):
            if self.constants.setdefault(dim.name, dim.values) != dim.values:
                raise error(
                    self.where,
                    f"input_meta[{owner!r}]: {dim!r} has other values elsewhere: {list(self.constants[dim.name])}",
                )
            return dim.name
        if isinstance(dim, int):
            if position != head_at:
                return str(dim)
            self.constants.setdefault(f"H{dim}", (dim,))
            return f"H{dim}"
        return dim.replace(" ", "")

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.inputs[name] = Input(name, "scalar", default=float(value), range=(float(value), float(value)))
        elif isinstance(value, SymbTensor):
            (self._add_state if name.startswith(("prev_", "chunk_")) else self._add_tensor)(name, value)
        else:
            raise error(self.where, f"input_meta[{name!r}]: expected a SymbTensor or a number, got {value!r}")

    def _add_tensor(self, name: str, value: SymbTensor) -> None:
        if not value.dims:
            self.inputs[name] = Input(name, "scalar", range=value.range)
            return
        tokens = isinstance(value.dims[0], str) and _TOKENS.match(value.dims[0].replace(" ", ""))
        head_at = 1 if tokens else 0
        if len(value.dims) <= head_at:
            raise error(
                self.where,
                f"input_meta[{name!r}]: expected ['T', heads, ...] for tokens or [heads, ...] per head, got "
                f"{list(value.dims)}",
            )
        dims = [self._dim(name, d, i, head_at) for i, d in enumerate(value.dims)]
        self.inputs[name] = Input(
            name, "input" if tokens else "head", value.dtype.name, dims, value.pad, range=value.range
        )

    def _add_state(self, name: str, value: SymbTensor) -> None:
        prefix, _, own = name.partition("_")
        if len(value.dims) < 2:
            raise error(
                self.where, f"input_meta[{name!r}]: expected [sequences or chunks, heads, ...], got {list(value.dims)}"
            )
        dims = [self._dim(name, d, i, 1) for i, d in enumerate(value.dims)]
        if name == "chunk_state":
            if own in self.states or len(self.states) > 1:
                raise error(self.where, "input_meta: with several states, chunk_state is chunk_<name>")
            own = next(iter(self.states), "s")
        state = self.states.setdefault(own, State(own, dims[2:], dims[1]))
        if state.dims != dims[2:]:
            raise error(
                self.where,
                f"input_meta[{name!r}]: expected [.., heads, {', '.join(state.dims)}] as in the other, got "
                f"{list(value.dims)}",
            )
        setattr(state, f"{prefix}_dtype", value.dtype.name)

    def declarations(self) -> list[str]:
        """Of inputs and states, in text form."""
        where, lines = self.where.text, []
        for i in self.inputs.values():
            pad = f" pad={number_text(i.pad)}" if i.pad else ""
            among = f" range=[{number_text(i.range[0])}, {number_text(i.range[1])}]" if i.range else ""
            lines.append(f"  {i.kind} {i.name}: {i.type}{pad}{among}{where}")
        return lines + [f"  state {s.name}: f32[{', '.join(s.dims)}]{where}" for s in self.states.values()]

    def chunk_name(self, state: State) -> str:
        return "chunk_state" if len(self.states) == 1 else f"chunk_{state.name}"


def _called(phase: str) -> str:
    """What users call a phase."""
    return phase if phase == "step" else f"{phase}_mode"


class Program:
    """The phases of a variant, traced, or its step alone. `text` is its definition. `chunk`: the tokens per chunk if
    they are fixed, else 0."""

    def __init__(self, name: str, meta: Meta, phases: Mapping[str, Callable[..., Any] | None], chunk: int = 0) -> None:
        self.name, self.meta = name, meta
        self._cached: dict[str, str] = {}  #: types of what earlier phases cached
        self._outputs: dict[str, str] = {}
        self._step_alone = [phase for phase, fn in phases.items() if fn is not None] == ["step"]
        functions = [self._phase(phase, fn) for phase, fn in phases.items() if fn is not None]
        for cached in self._cached:  # cached values may stand in input_meta, but are not the caller's to give
            meta.inputs.pop(cached, None)
        if not any(i.kind == "input" for i in meta.inputs.values()):
            raise error(
                meta.where, "input_meta: there is no input of tokens\n    expected: SymbTensor(['T', heads, ...])"
            )
        fixed = f" chunk={chunk}" if chunk else ""
        self.text = (
            "\n".join([f"linear_attention @{name}{fixed}{meta.where.text} {{", *self._declarations(), *functions, "}"])
            + "\n"
        )
        _c.lower(self.text, "definition")  # the compiler's verifier reads it now, not at the first call

    def _declarations(self) -> list[str]:
        where, lines = self.meta.where.text, self.meta.declarations()
        tokens = [i for i in self.meta.inputs.values() if i.kind == "input"]
        head = next(iter(self.meta.states.values())).head or ""
        for name, type_ in self._outputs.items():
            dims = dims_of(type_)
            rows = _CHUNK_ROWS.match(dims[0]) if dims else None
            if not rows:
                raise error(
                    self._merge_at,
                    f"merge_mode: output {name!r} has no token axis\n    expected: [C, ...]\n    got:      {type_}",
                )
            if any(_CHUNK_ROWS.match(d) for d in dims[1:]):
                raise error(
                    self._merge_at,
                    f"merge_mode: output {name!r} has a second axis of tokens, whose size is the compiler's choice\n"
                    f"    expected: [C, ...]\n    got:      {type_}\n    hint:     multiply scores of tokens with "
                    f"tokens by values: scores @ v",
                )
            lines.append(
                f"  output {name}: {tokens[0].dtype}[{', '.join([(rows[1] or '') + 'T', head, *dims[1:]])}]{where}"
            )
        return lines

    # -- one phase -----------------------------------------------------------------------------------------------------

    def _phase(self, phase: str, fn: Callable[..., Any]) -> str:
        trace, where = Trace(phase, self.meta.sizes), Location.of_function(fn)
        if phase == "merge" or self._step_alone:
            self._merge_at = where
        parameters = inspect.signature(fn).parameters.values()
        arguments = {}
        for p in parameters:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise error(where, f"{_called(phase)}: expected named parameters, got {p}")
            known = self._argument(trace, phase, p.name, where)
            if known is None and p.default is p.empty:
                raise error(
                    where,
                    f"{_called(phase)}: {self._why_unknown(phase, p.name)}\n    expected: one of "
                    f"{', '.join(self._known(phase))}\n"
                    f"    hint:     {self._hint(phase, p.name)}",
                )
            if known is not None:
                arguments[p.name] = known
        results = self._results(trace, phase, fn(**arguments), where)
        if phase != "step":
            self._cached.update({name: x.type for name, x in trace.cached.items()})
        returned = [f'cached "{name}" = %{x.name}' for name, x in trace.cached.items()]
        returned += [f'{role} "{name}" = %{x.name}' for role, name, x in results]
        body = "\n".join("    " + line for line in trace.lines)
        return f"  func @{phase} {{\n{body}\n    return {', '.join(returned)}\n  }}"

    def _argument(self, trace: Trace, phase: str, name: str, where: Location) -> Tensor | None:
        if name in self._cached and phase != "step":
            return trace.param(name, name, "cached", self._cached[name], where)
        if name in self.meta.inputs:
            i = self.meta.inputs[name]
            return trace.param(
                name, name, i.kind, "f32[]" if i.kind == "scalar" else i.phase_type(phase == "step"), where
            )
        if name == "token_mask":
            return trace.param(name, name, "mask", "f32[]" if phase == "step" else "f32[C]", where)
        return None if phase == "chunk" else self._state_argument(trace, phase, name, where)

    def _state_argument(self, trace: Trace, phase: str, name: str, where: Location) -> Tensor | None:
        for s in self.meta.states.values():
            before = name in (f"prev_{s.name}", "prev_s" if len(self.meta.states) == 1 else None)
            chunk = name == self.meta.chunk_name(s) and phase != "step"
            if not before and not chunk:
                continue
            role = "chunk" if chunk and phase == "decay" else "state"
            x = trace.param(name, s.name, role, f"f32[{', '.join(s.dims)}]", where)
            dtype = "f32" if phase == "step" else s.chunk_dtype if chunk else s.prev_dtype
            return x if dtype == "f32" else x.to(dtype)  # carried in float32, seen as declared
        return None

    def _is_state(self, name: str) -> bool:
        """Whether the name is that of a state before or in a chunk, in whichever phase."""
        chunks = [self.meta.chunk_name(s) for s in self.meta.states.values()]
        return name in [*(f"prev_{s}" for s in self.meta.states), *chunks] or (
            name == "prev_s" and len(self.meta.states) == 1
        )

    def _why_unknown(self, phase: str, name: str) -> str:
        if self._is_state(name):
            return f"{name!r} is a state, which this phase does not see"
        if phase == "step" and name in self._cached:
            return f"{name!r} was cached in a phase of chunks, which a token does not see"
        return f"unknown input {name!r}{suggestion(name, self._known(phase))}"

    def _hint(self, phase: str, name: str) -> str:
        if self._is_state(name):
            if phase == "chunk":
                return "a chunk's own contribution does not depend on states; take it in decay_mode or merge_mode"
            return "step is the recurrence of one token; it takes the state before the token, " + ", ".join(
                f"prev_{s}" for s in self.meta.states
            )
        if phase == "step" and name in self._cached:
            return "compute it from the inputs of one token here"
        return "declare it in input_meta, or cache it in an earlier phase with cache_result"

    def _known(self, phase: str) -> list[str]:
        names = [*self.meta.inputs, "token_mask"]
        if phase != "chunk":
            names += [f"prev_{s}" for s in self.meta.states]
        if phase in ("decay", "merge"):
            names += [self.meta.chunk_name(s) for s in self.meta.states.values()] + list(self._cached)
        return names

    def _results(self, trace: Trace, phase: str, returned: Any, where: Location) -> list[tuple[str, str, Tensor]]:
        """(role, name, value) of what a phase returned: one tensor, several in order, or a dictionary."""
        states = list(self.meta.states) if phase != "merge" else []
        outputs = [] if phase in ("chunk", "decay") else list(self._outputs) or ["o"]
        if isinstance(returned, Mapping):
            named = {
                re.sub("^(prev|chunk)_", "", k)
                if phase != "merge" and re.sub("^(prev|chunk)_", "", k) in states
                else k: v
                for k, v in returned.items()
            }
            if phase == "merge":
                outputs = list(named)
        else:
            values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
            wanted = [*states, *outputs]
            if len(values) != len(wanted):
                raise error(
                    where,
                    f"{_called(phase)}: expected {', '.join(wanted)} (a tensor each; a dictionary for several "
                    f"outputs), got {len(values)} values",
                )
            named = dict(zip(wanted, values))
        if missing := [n for n in [*states, *outputs] if n not in named]:
            raise error(where, f"{_called(phase)}: {', '.join(missing)} is not returned")
        for name, x in named.items():
            if phase == "decay" and isinstance(x, (int, float)):  # all of the state
                dims = self.meta.states[name].dims
                x = named[name] = trace.op("expand", [trace.constant(x)], own=f"f32[{', '.join(dims)}]")
            if not isinstance(x, Tensor):
                raise error(where, f"{_called(phase)}: expected a traced tensor as {name!r}, got {x!r}")
            if (
                (phase != "step" or self._step_alone)
                and name in states
                and dims_of(x.type) != self.meta.states[name].dims
            ):
                raise error(where, f"{_called(phase)}: state {name!r} has another shape than declared\n    expected: "
                                   f"[{', '.join(self.meta.states[name].dims)}]\n    got:      {x.type}")  # fmt: skip
        if phase == "merge":
            self._outputs = {name: x.type for name, x in named.items()}
        elif self._step_alone:  # a token's outputs, for every token
            self._outputs = {
                name: f"f32[{', '.join(['C', *dims_of(x.type)])}]" for name, x in named.items() if name not in states
            }
            if not self._outputs:
                raise error(where, "step: there is no output\n    expected: (next state, output)")
        named = {
            name: x.to("f32") if name in states and x.dtype != "f32" else x for name, x in named.items()
        }  # as it is carried
        role = "chunk" if phase == "chunk" else "state"
        return [(role if name in states else "input", name, x) for name, x in named.items()]
