"""Parts of axes: indices and slices, equal parts, and so many elements from either end.

An axis whose size is a symbol has parts only as far as their sizes have names: halves of 2*D, or a number of elements.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._location import Location, error
from ._types import SymbolicSize, dims_of, factor_and_symbol

if TYPE_CHECKING:
    from ._tensor import Tensor


_MOST_LOOKED_UP = 256


def indexed(x: Tensor, index: Any) -> Tensor:
    """x[…] with None, Ellipsis, one integer per axis, and slices; or table[index], a number at every place of index."""
    if isinstance(index, type(x)):
        return _looked_up(x, index)
    entries = list(index) if isinstance(index, tuple) else [index]
    taken = sum(e is not None and e is not Ellipsis for e in entries)
    known = all(e is None or e is Ellipsis or isinstance(e, slice) or hasattr(e, "__index__") for e in entries)
    if taken > x.ndim or not known:
        raise error(
            Location.of_caller(), f"cannot index {x.type} with {index!r}\n    expected: None, ..., integers and slices"
        )
    if (at := next((i for i, e in enumerate(entries) if e is Ellipsis), None)) is not None:
        entries[at : at + 1] = [slice(None)] * (x.ndim - taken)
    result, axis = x, 0
    for part in entries:
        if part is None:
            result, axis = result.unsqueeze(axis), axis + 1
        elif isinstance(part, slice):
            result, axis = _sliced(result, axis, part), axis + 1
        else:
            result = result.select(axis, part)
    return result


def _looked_up(table: Tensor, index: Tensor) -> Tensor:
    """0 where the index is none of 0, 1, …, n - 1."""
    n = table.shape[0] if table.ndim == 1 else None
    if not isinstance(n, int) or n > _MOST_LOOKED_UP:
        raise error(
            Location.of_caller(),
            f"cannot look up a traced index in {table.type}\n    expected: [n], a number n <= {_MOST_LOOKED_UP}\n"
            "    hint:     declare the axis as a number or as a ConstExpr of one value",
        )
    found = table.trace.constant(0)
    for at in reversed(range(n)):
        found = table.trace.op("where", [index == at, table.select(0, at), found])
    return found


def _sliced(x: Tensor, axis: int, part: slice) -> Tensor:
    """x[start:stop:step] along an axis. Sizes that are symbols have parts with sizes of their own, or so many
    elements."""
    factor, symbol = factor_and_symbol(dims_of(x.type)[axis])
    size, step = x.shape[axis], 1 if part.step is None else operator.index(part.step)
    if part.start in (None, 0) and (part.stop is None or part.stop == size) and step == 1:
        return x
    if step < 1:
        raise error(Location.of_caller(), f"cannot take steps of {step}\n    expected: a step of at least 1")
    if isinstance(part.start, SymbolicSize) or isinstance(part.stop, SymbolicSize):
        return _part_between(x, axis, part, step)
    start, stop = (None if b is None else operator.index(b) for b in (part.start, part.stop))
    if stop is None and (start or 0) in range(step) and symbol and factor % step == 0:
        return x.trace.op("slice", [x], dim=axis, start=start or 0, step=step)
    if isinstance(size, int):
        taken = range(size)[start:stop:step]
        return stretch(x, axis, taken.start, len(taken), step)
    start = start or 0
    last = stop if stop is not None else 0 if start < 0 else None
    if last is None or (start < 0) != (last <= 0 and stop != 0):
        raise error(
            Location.of_caller(),
            f"{_text(part)} of an axis of {size}: how many elements are left has no name\n"
            "    expected: a number of elements, from either end of the axis, or one of its equal parts\n"
            "    hint:     declare the axis as a number, as ConstExpr, or as a multiple, such as 2*D, whose halves "
            "are D",
        )
    return stretch(x, axis, start, len(range(start, last, step)), step)


def _text(part: slice) -> str:
    start, stop = ("" if b is None else b for b in (part.start, part.stop))
    return f"{start}:{stop}" + ("" if part.step is None else f":{part.step}")


def stretch(x: Tensor, axis: int, start: int, length: int, step: int) -> Tensor:
    if length < 1:
        raise error(Location.of_caller(), f"no elements of axis {axis} are left: {x.type}\n    expected: at least one")
    return x.trace.op("slice", [x], dim=axis, start=start, step=step, length=length)


def _part_between(x: Tensor, axis: int, part: slice, step: int) -> Tensor:
    """Bounds that are multiples of the axis's symbol."""
    factor, symbol = factor_and_symbol(dims_of(x.type)[axis])

    def multiple(bound: Any, otherwise: int) -> int | None:
        return (
            otherwise
            if bound is None
            else 0
            if bound == 0
            else bound.multiple_of(symbol)
            if isinstance(bound, SymbolicSize)
            else None
        )

    start, stop = multiple(part.start, 0), multiple(part.stop, factor)
    count = 0 if start is None or stop is None else stop - start
    if start is None or stop is None or step != 1 or count <= 0 or stop > factor or factor % count or start % count:
        raise error(
            Location.of_caller(),
            f"cannot take {_text(part)} of an axis of {x.shape[axis]}\n    expected: one of its equal parts",
        )
    return x.trace.op("part", [x], dim=axis, start=start // count, count=factor // count)


def axis_of(x: Tensor, dim: SupportsIndex) -> int:
    axis = operator.index(dim)
    if not -x.ndim <= axis < x.ndim:
        raise error(
            Location.of_caller(),
            f"dim {axis} is out of range\n    expected: a dim in [{-x.ndim}, {x.ndim})\n    got:      {x.type}",
        )
    return axis % x.ndim


def parts(x: Tensor, count: int, dim: int) -> tuple[Tensor, ...]:
    axis = axis_of(x, dim)
    factor, _ = factor_and_symbol(dims_of(x.type)[axis])
    size = x.shape[axis]
    if count > 0 and factor % count and isinstance(size, int) and size % count == 0:  # a ConstExpr's name has no half
        return tuple(stretch(x, axis, i * (size // count), size // count, 1) for i in range(count))
    return tuple(x.trace.op("part", [x], dim=axis, start=i, count=count) for i in range(max(count, 1)))


def number_of(x: Tensor, axis: int, operation: str) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise error(
            Location.of_caller(), f"{operation}: the size of axis {axis} is not known while tracing: {x.type}\n"
            "    hint:     chunk(count, dim) makes equal parts of 2*D; or declare the axis as a number, or as ConstExpr"
        )  # fmt: skip
    return int(size)


def sizes_of(n: int, each: int) -> list[int]:
    return [min(each, n - at) for at in range(0, n, each)] if each > 0 else [0]
