"""Calls of a definition: from arrays to a compiled variant, outputs, workspace and a launch.

Everything that follows from the arguments' types and shapes is worked out once, in a `Plan`, and found again by them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

from . import _c
from ._arrays import Array, Library, dense_strides
from ._decode import Pools
from ._launch import Launcher
from ._program import Input
from ._types import HALF, dims_of

Entry = tuple[str, tuple[int, ...], tuple[int, ...]]  #: an array: element type, shape, strides

_DECLARATION = re.compile(
    r"^\s*(input|head|scalar|state|output) (\w+): (\w+)(\[[^\]]*\])(?: pad=(\S+))?( of \w+)?", re.MULTILINE
)
_HEAD_OF_TEXT = re.compile(r"linear_attention @(\w+)")


class Signature:
    """The declarations of a definition, read off its text: inputs in order, states, outputs."""

    def __init__(self, text: str) -> None:
        if (head := _HEAD_OF_TEXT.search(text)) is None:
            raise _c.CompileError("definition: expected linear_attention @name {")
        self.name = head[1]
        self.inputs: list[Input] = []
        self.states: dict[str, list[str]] = {}
        self.outputs: dict[str, list[str]] = {}
        self.output_dtypes: dict[str, str] = {}
        if "prev_token(" in text:  # the compiler's own text lists the states that follow from it
            text = _c.lower(text, "definition")
        self.carried: list[str] = []  #: states that follow from prev_token: they may be left out of a call
        for kind, name, dtype, dims, pad, of in _DECLARATION.findall(text[: text.index("func @")]):
            listed = dims_of(dims)
            if kind == "state":
                self.states[name] = listed
                self.carried += [name] if of else []
            elif kind == "output":
                self.outputs[name], self.output_dtypes[name] = listed, dtype
            else:
                self.inputs.append(Input(name, kind, dtype, listed, float(pad or 0)))
        self.tensors = [i for i in self.inputs if i.kind != "scalar"]
        self.scalars = [i for i in self.inputs if i.kind == "scalar"]
        heads = [i.dims[1 if i.kind == "input" else 0] for i in self.tensors]
        self.head_symbols = {h for h in heads if not h.isdigit()}
        self.symbols = sorted(
            {s for i in self.tensors for d in i.dims[2 if i.kind == "input" else 1 :] if (s := symbol_of(d))}
            | {s for dims in self.states.values() for d in dims if (s := symbol_of(d))}
        )


def symbol_of(dim: str) -> str:
    """The symbol in a dimension: "2*K" has K, "60" none."""
    return "" if dim.isdigit() else dim.partition("*")[2] or dim


def factor_of(dim: str) -> int:
    return int(dim.partition("*")[0]) if "*" in dim else 1


@dataclass(frozen=True)
class Shape:
    """What a call's shapes say."""

    batch: int | None  #: None: there is no such axis
    tokens: int
    heads: dict[str, int]
    sizes: dict[str, int]
    sequences: int
    most_heads: int  #: of outputs and states

    def of(self, dims: list[str]) -> tuple[int, ...]:
        """A declared shape in numbers, without batch or sequences."""
        known = {"T": self.tokens, **self.heads, **self.sizes}
        return tuple(int(d) if d.isdigit() else factor_of(d) * known[symbol_of(d)] for d in dims)


def fail(name: str, argument: str, expected: str, got: str) -> NoReturn:
    raise _c.RuntimeError(f"{name}: argument '{argument}': expected {expected}, got {got}")


def read_shapes(
    signature: Signature, shapes: list[tuple[int, ...]], allowed: dict[str, tuple[int, ...]], sequences: int | None
) -> Shape:
    """Batch, tokens, heads and sizes of a call. `sequences`: how many are packed, or None."""
    batch = None
    found: dict[str, int] = {}
    origin: dict[str, str] = {}
    ranks = set()
    for i, shape in zip(signature.tensors, shapes):
        rest = list(shape)
        if i.kind == "input" and len(shape) == len(i.dims) + 1:
            if batch not in (None, shape[0]):
                fail(signature.name, i.name, f"a batch of {batch}, as in the arguments before", str(list(shape)))
            batch, rest = shape[0], rest[1:]
        if len(rest) != len(i.dims):
            wanted = ("[B, " if i.kind == "input" else "[") + ", ".join(i.dims) + "]"
            fail(signature.name, i.name, f"shape {wanted}", str(list(shape)))
        if i.kind == "input":
            ranks.add(len(shape) - len(i.dims))
        for dim, size in zip(i.dims, rest):
            if dim.isdigit():
                if int(dim) != size:
                    fail(signature.name, i.name, f"{dim} for the axis of that size", str(list(shape)))
                continue
            symbol, factor = symbol_of(dim), factor_of(dim)
            if size % factor:
                fail(signature.name, i.name, f"a multiple of {factor} for {dim}", str(list(shape)))
            if found.setdefault(symbol, size // factor) != size // factor:
                fail(signature.name, i.name, f"{symbol} = {found[symbol]}, as in '{origin[symbol]}'", str(list(shape)))
            origin.setdefault(symbol, i.name)
    if len(ranks) > 1:
        fail(signature.name, signature.tensors[0].name, "all token inputs with a batch axis, or none", "some of each")
    for symbol, values in allowed.items():
        if symbol in found and found[symbol] not in values:
            fail(
                signature.name,
                origin[symbol],
                f"{symbol} = {' or '.join(map(str, values))}, as its ConstExpr says",
                str(found[symbol]),
            )
    tokens = found.pop("T", 0)
    heads = {s: n for s, n in found.items() if s in signature.head_symbols}
    sizes = {s: n for s, n in found.items() if s not in signature.head_symbols}
    for symbol in signature.symbols:
        if symbol not in sizes and len(allowed.get(symbol, ())) == 1:
            sizes[symbol] = allowed[symbol][0]
    if sequences is not None and batch not in (None, 1):
        raise ValueError(
            f"{signature.name}: argument 'cu_seqlens': expected a batch of 1 with packed sequences, got {batch}"
        )
    most = most_heads(signature, heads, origin)
    return Shape(
        batch, tokens, heads, sizes, sequences if sequences is not None else batch if batch is not None else 1, most
    )


def most_heads(signature: Signature, heads: dict[str, int], origin: dict[str, str]) -> int:
    """The heads of outputs, which those of inputs divide; without outputs (gradients of states alone), the most heads
    of an input. `origin`: which input says how many there are."""
    whose, most = _heads_of_outputs(signature, heads)
    if most <= 0:
        fail(signature.name, whose, "at least one head", str(most))
    for symbol, n in heads.items():
        if n <= 0 or most % n:
            fail(signature.name, origin[symbol], f"heads ({symbol}) that divide the {most} of '{whose}'", str(n))
    return most


def _heads_of_outputs(signature: Signature, heads: dict[str, int]) -> tuple[str, int]:
    """Whose heads are the most, and how many."""
    for output, dims in signature.outputs.items():
        if not dims[1].isdigit() and dims[1] not in heads:
            fail(signature.name, output, f"heads ({dims[1]}) that an input has too", "a symbol of its own")
        return output, int(dims[1]) if dims[1].isdigit() else heads[dims[1]]
    fixed = [(i.name, i.dims[1]) for i in signature.inputs if i.kind == "input"]
    return max(((name, int(d) if d.isdigit() else heads[d]) for name, d in fixed), key=lambda each: each[1])


def dtype_of_call(signature: Signature, dtypes: list[str]) -> str:
    """What the definition's 16-bit types become: the type of the arrays given for them."""
    chosen = None
    for i, dtype in zip(signature.tensors, dtypes):
        if i.dtype not in HALF:
            if dtype != i.dtype:
                fail(signature.name, i.name, f"element type {i.dtype}", dtype + _conversion_of(dtype, i.dtype))
            continue
        if dtype not in ("f32", *HALF):
            fail(signature.name, i.name, "element type f32, bf16 or f16", dtype + _conversion_of(dtype, "f32"))
        if chosen not in (None, dtype):
            fail(signature.name, i.name, f"element type {chosen}, as in the arguments before", dtype)
        chosen = dtype
    return chosen or "f32"


def _conversion_of(dtype: str, wanted: str) -> str:
    """How to make float32 of the float64 that NumPy makes."""
    return "; x.astype('float32') converts NumPy's, x.float() PyTorch's" if (dtype, wanted) == ("f64", "f32") else ""


def rounded_up(n: int, base: int, least: int) -> int:
    """The smallest power of `base` times `least` that is no less than n."""
    while least < n:
        least *= base
    return least


def with_one_head(entry: tuple[Any, ...], dims_after: int) -> tuple[Any, ...]:
    """(dtype, shape, strides) of an array without the axis of heads, with one of one head before the last
    `dims_after`."""
    dtype, shape, strides = entry
    at = len(shape) - dims_after
    return dtype, (*shape[:at], 1, *shape[at:]), (*strides[:at], 1, *strides[at:])


class Plan:
    """All that the shapes of a call decide: from arrays to results without looking at a shape again."""

    __slots__ = (
        "_address", "_allocator", "_conversions", "_current_device", "_has_slots", "_index", "_launch", "_makers",
        "_outputs", "_pools", "_size", "_spare", "_stream", "compiled",
    )  # fmt: skip

    def __init__(
        self, compiled: _c.Compiled, shape: Shape, arrays: Library, like: Array, entries: list[Entry], initial:
        list[Entry] | None, final: bool, offsets: Entry | None, one_head: bool = False, chunks: int | None = None,
        conversions: tuple[tuple[int, Any], ...] = (), pools: Pools | None = None, slots: Entry | None = None,
        checkpoints: tuple[list[Entry], Entry | None] | None = None,
    ) -> None:  # fmt: skip
        """`like`: an array on the call's device. `entries`, `initial`, `offsets`: (dtype, shape, strides) of inputs,
        initial states (None: there are none) and cu_seqlens. `final`: whether final states are wanted. `one_head`:
        results are without the axis of heads. `chunks`: how many states before chunks are wanted, of each sequence or
        of all packed ones. `conversions`: (number, function) of arguments that kernels cannot read as they are, among
        inputs, initial states, cu_seqlens and slots; `entries` … are of what they become. `pools`: what initial states
        are if they are written in place; `slots`: (dtype, shape, strides) of those, if there are any.
        `checkpoints`: the same of pools for states before chunks, and of their slots; without slots they are what a
        backward pass begins with."""
        self.compiled, self._conversions, self._pools = compiled, conversions, pools
        checkpoint_pools = iter(checkpoints[0] if checkpoints else ())
        self._has_slots = slots is not None and shape.sequences > 0
        lead = () if shape.batch is None else (shape.batch,)
        outputs, final_states, chunk_states = [], [], []
        places: list[Entry | None] = list(entries)
        if pools is not None:
            sizes = [
                state_size(t, shape) for t in compiled.tensors if t["kind"] == "final_state" and not t.get("inner")
            ]
            initial = pools.entries(sizes, initial or [], shape.sequences, self._has_slots)
        initial_entries, written_entries = iter(initial or ()), iter(initial or ())
        for t in compiled.tensors:
            dims = [str(d) for d in t["shape"]]
            if t["kind"] == "output":
                size = (*lead, *shape.of(dims))
                outputs.append((without(size, len(lead) + 1) if one_head else size, t["dtype"]))
                places.append((t["dtype"], size, dense_strides(size)))
            elif t.get("inner"):  # a state that calls do not have
                places.append(None)
            elif t["kind"] == "initial_state":
                places.append(next(initial_entries, None))
            elif t["kind"] == "final_state" and pools is not None:
                places.append(next(written_entries))
            elif t["kind"] == "final_state":
                size = state_size(t, shape)
                if final:
                    final_states.append((without(size, 1) if one_head else size, "f32"))
                places.append(("f32", size, dense_strides(size)) if final else None)
            elif t["kind"] == "chunk_state" and chunks is None:
                places.append(next(checkpoint_pools, None))
            elif t["kind"] == "chunk_state":
                size = (*lead, chunks or 0, shape.most_heads, *shape.of(dims[2:]))
                chunk_states.append((without(size, len(lead) + 1) if one_head else size, "f32"))
                places.append(("f32", size, dense_strides(size)))
        workspace = compiled.workspace_bytes(shape.sequences, shape.tokens, shape.most_heads, offsets is not None)
        device = compiled.info["device"]
        self._address, self._stream, self._outputs = arrays.address, arrays.current_stream(device), len(outputs)
        self._makers = [arrays.maker(result, dtype, like) for result, dtype in [*outputs, *final_states, *chunk_states]]
        self._size, self._allocator = workspace, arrays.allocator(device) if workspace else None
        self._spare = arrays.maker((workspace + 63,), "u8", like) if workspace and self._allocator is None else None
        self._current_device, self._index = arrays.current_device(device), int(device.partition(":")[2] or 0)
        self._launch = Launcher(
            compiled, tuple(places), offsets, workspace, slots is not None and slots[0] == "i64",
            checkpoints[1] if checkpoints else None,
        )  # fmt: skip

    @property
    def converts(self) -> bool:
        """Whether some arguments are not read as they are, but converted first."""
        return bool(self._conversions)

    def run(
        self, tensors: list[Any], scalars: list[Any], initial: list[Any] | None, cu_seqlens: Any, slots: Any = None,
        checkpoints: tuple[list[Any], Any] | None = None,
        border: Any = None,
    ) -> list[Any]:  # fmt: skip
        """Outputs, then final states and states before chunks if they are wanted. Launches on the current stream."""
        if self._current_device is not None and self._current_device() != self._index:
            return self._run_elsewhere(tensors, scalars, initial, cu_seqlens, slots, checkpoints, border)
        if self._conversions:
            tensors, initial, cu_seqlens, slots = self._converted(tensors, initial, cu_seqlens, slots)
        address = self._address
        results = [make() for make in self._makers]
        given = (
            tensors + results
            if initial is None
            else [*tensors, *results[: self._outputs], *initial, *results[self._outputs :]]
        )
        if self._pools is not None and initial is not None:
            if len(initial) > 1:
                self._pools.check([address(x) for x in initial])
            given = [*tensors, *results[: self._outputs], *initial, *initial, *results[self._outputs :]]
        if checkpoints is not None:
            given = [*given, *checkpoints[0]]
        if cu_seqlens is not None:
            given.append(cu_seqlens)
        if checkpoints is not None and checkpoints[1] is not None:
            given.append(checkpoints[1])
        stream, at, slots_at = self._stream(), 0, address(slots) if self._has_slots else 0
        ranks = () if border is None else (border.of_launch,)
        if self._allocator is not None:
            alloc, delete = self._allocator
            at = alloc(self._size, stream)
            try:
                self._launch(map(address, given), scalars, at, stream, slots_at, *ranks)
            finally:
                delete(at)  # what comes later in the stream may have it
            return results
        if self._spare is not None:
            memory = self._spare()  # it lives until this returns
            at = (address(memory) + 63) & ~63
        self._launch(map(address, given), scalars, at, stream, slots_at, *ranks)
        return results

    def _converted(self, tensors: list[Any], initial: list[Any] | None, cu_seqlens: Any, slots: Any) -> tuple[Any, ...]:
        given = [*tensors, *(initial or ()), cu_seqlens, slots]
        for number, convert in self._conversions:
            given[number] = convert(given[number])
        return given[: len(tensors)], None if initial is None else given[len(tensors) : -2], *given[-2:]

    def _run_elsewhere(self, *call: Any) -> list[Any]:
        import torch

        with torch.cuda.device(self._index):
            return self.run(*call)


def state_size(place: dict[str, Any], shape: Shape) -> tuple[int, ...]:
    """[sequences, heads, …] of a state among the tensors of a compiled variant."""
    dims = [str(d) for d in place["shape"]]
    heads = shape.most_heads if dims[1] == "heads" else shape.of(dims[1:2])[0]
    return (shape.sequences, heads, *shape.of(dims[2:]))


def chunks_of(name: str, tokens: int, cu_seqlens: Any, chunk: int) -> int:
    """How many chunks a sequence has, or all packed ones together: their offsets are then read from where they lie."""
    if cu_seqlens is None:
        return -(-tokens // chunk)
    offsets = [int(n) for n in cu_seqlens.tolist()]
    if offsets[0] != 0:
        fail(name, "cu_seqlens", "0 as the first offset", str(offsets[0]))
    for place, (begin, end) in enumerate(zip(offsets, offsets[1:]), 2):
        if end < begin:
            fail(name, "cu_seqlens", "offsets that do not fall", f"{end} after {begin}")
        if end > tokens and place < len(offsets):
            fail(name, "cu_seqlens", f"offsets of at most {tokens} tokens", str(end))
    if offsets[-1] != tokens:
        fail(name, "cu_seqlens", f"the number of tokens, {tokens}, as the last offset", str(offsets[-1]))
    return sum(-(-(end - begin) // chunk) for begin, end in zip(offsets, offsets[1:]))


def without(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])
