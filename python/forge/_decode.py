"""States that a call reads and writes in place: pools of slots, [slots, heads, …], of which each sequence has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _c

#: Options that decide about passes over whole sequences: decoding has one kernel, which takes one token after the
#: other.
OF_SEQUENCES = ("strategy", "chunk", "tiles", "segments", "engine")
_BYTES = {"f32": 4, "bf16": 2, "f16": 2}

Axes = tuple[tuple[int, int], ...]  #: (size, stride > 0) in bytes, the longest stride first


class Pools:
    """The states of calls of one layout. They must not share elements, as kernels write one while they read another:
    within a pool its strides say so, between pools the addresses of each call."""

    __slots__ = ("_apart", "_layouts", "_name", "_names")

    def __init__(self, name: str, names: Sequence[str], entries: Sequence[Any]) -> None:
        """`name`: of the definition. `names`, `entries`: of its states, and (dtype, shape, strides)."""
        self._name, self._names = name, names
        self._layouts = [_axes(*_in_bytes(*entry)) for entry in entries]
        self._apart: list[int] = []  #: addresses that were found to be apart
        for state, (axes, _), (_, shape, strides) in zip(names, self._layouts, entries):
            if any(stride < _extent(axes[place + 1 :]) for place, (_, stride) in enumerate(axes)) or _has_broadcast(
                shape, strides
            ):
                self._fail(
                    f"{state}: expected an element of its own for every number, as they are written in place, got "
                    f"shape {list(shape)} "
                    f"with strides {list(strides)}"
                )

    def entries(
        self, sizes: Sequence[tuple[int, ...]], entries: Sequence[Any], sequences: int, has_slots: bool
    ) -> list[Any]:
        """What a call is given of the pools. `sizes`: of a state for each sequence, [sequences, heads, …]. Without
        slots sequence n has slot n."""
        for state, size, (_, shape, _) in zip(self._names, sizes, entries):
            if len(shape) != len(size) or shape[1:] != size[1:]:
                self._fail(f"{state}: expected shape [slots, {', '.join(map(str, size[1:]))}], got {list(shape)}")
            if not has_slots and shape[0] < sequences:
                self._fail(f"{state}: expected {sequences} slots at least, one per sequence, got {shape[0]}; "
                           "`slots` says which sequences have one")  # fmt: skip
        return (
            list(entries)
            if has_slots
            else [(dtype, (sequences, *shape[1:]), strides) for dtype, shape, strides in entries]
        )

    def check(self, addresses: list[int]) -> None:
        """RuntimeError if pools at these addresses share elements."""
        if addresses == self._apart:
            return
        placed = [(a + first, axes, name) for a, (axes, first), name in zip(addresses, self._layouts, self._names)]
        for i, (at, axes, name) in enumerate(placed):
            for other_at, others, other in placed[:i]:
                if share_elements(at, axes, other_at, others):
                    self._fail(
                        f"{name}: expected memory of its own, as states are written in place, got some of {other}'s"
                    )
        self._apart = addresses

    def _fail(self, text: str) -> None:
        raise _c.RuntimeError(f"{self._name}: argument 'state': {text}")


def _in_bytes(dtype: str, shape: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    size = _BYTES[dtype]
    return [*shape, size], [*(stride * size for stride in strides), 1]


def state_dtype_of(name: str, states: Sequence[str], carried: Sequence[str], entries: Sequence[Any]) -> str:
    """What the pools of a call are made of: all alike, but for the last rows of inputs, which are float32."""
    own = {entry[0] for state, entry in zip(states, entries) if state not in carried}
    for state, (dtype, _, _) in zip(states, entries):
        if state in carried and dtype != "f32":
            raise TypeError(f"{name}: argument 'state': {state}: expected float32, got {dtype}")
    if len(own) > 1:
        raise TypeError(f"{name}: argument 'state': expected states of one type, got {' and '.join(sorted(own))}")
    return own.pop() if own else "f32"


def _axes(shape: Sequence[int], strides: Sequence[int]) -> tuple[Axes, int]:
    """The axes that move through memory, and where the first element in memory lies, from the one with index 0. Of an
    empty array one axis without elements."""
    if 0 in shape:
        return ((0, 1),), 0
    moving = [(size, stride) for size, stride in zip(shape, strides) if size > 1 and stride]
    first = sum((size - 1) * stride for size, stride in moving if stride < 0)
    return tuple(sorted(((size, abs(stride)) for size, stride in moving), key=lambda axis: -axis[1])), first


def _has_broadcast(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return 0 not in shape and any(size > 1 and stride == 0 for size, stride in zip(shape, strides))


def _extent(axes: Axes) -> int:
    """From the first to the last element."""
    return 0 if any(size == 0 for size, _ in axes) else 1 + sum((size - 1) * stride for size, stride in axes)


def share_elements(at: int, axes: Axes, other_at: int, others: Axes) -> bool:
    """Whether arrays whose elements do not overlap within each share some with each other. Exact where axes with the
    longest stride have that in common, as of parts of larger slots; else arrays between each other's elements count as
    sharing them."""
    if not (at < other_at + _extent(others) and other_at < at + _extent(axes)):
        return False
    if not axes or not others or axes[0][1] != others[0][1]:
        return True
    (size, stride), (other_size, _) = axes[0], others[0]
    apart = other_at - at
    nearest = -(
        apart // stride
    )  # rows further apart than this one and its neighbour do not meet: a row is no longer than the stride
    return any(
        share_elements(0, axes[1:], apart + rows * stride, others[1:])
        for rows in (nearest, nearest - 1)
        if -size < rows < other_size
    )  # fmt: skip
