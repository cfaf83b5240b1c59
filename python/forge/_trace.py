"""Tracing: the callables run once on `Tensor`s that record what is done with them, as lines of the text form.

The rules of types are the compiler's (forge_infer), asked for each operation: a mistake is raised at the line that makes it.
"""

from __future__ import annotations

import math
import operator
import os
import re
import sys
from collections.abc import Sequence

from . import _c
from ._types import HALF, DType, KnownSize, SymbolicSize, dtype_name, factor_and_symbol

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FOREIGN = (f"{os.sep}torch{os.sep}", f"{os.sep}numpy{os.sep}")


class Location:
    """A place in the user's program."""

    __slots__ = ("column", "file", "line")

    def __init__(self, file: str, line: int, column: int = 1):
        self.file, self.line, self.column = file, line, column

    def __str__(self):
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        file = re.sub(r'[\x00-\x1f\x7f"\\]', lambda c: f"\\x{ord(c[0]):02x}", self.file)
        return f' loc("{file}":{self.line}:{self.column})'

    @classmethod
    def of_function(cls, fn) -> Location:
        code = getattr(fn, "__code__", None)
        return cls(code.co_filename, code.co_firstlineno) if code else cls("<unknown>", 1)

    @classmethod
    def of_caller(cls) -> Location:
        """The innermost frame outside of Forge, PyTorch and NumPy."""
        frame = sys._getframe(1)
        while frame.f_back and (frame.f_code.co_filename.startswith(_HERE) or any(part in frame.f_code.co_filename for part in _FOREIGN)):
            frame = frame.f_back
        column = None
        if hasattr(frame.f_code, "co_positions"):  # Python 3.11 and later
            for at, (_, _, start, _) in enumerate(frame.f_code.co_positions()):
                if at == frame.f_lasti // 2:
                    column = start
                    break
        return cls(frame.f_code.co_filename, frame.f_lineno, (column or 0) + 1)


def error(where: Location, message: str) -> _c.CompileError:
    """A mistake of the user's at a place."""
    message = message.removeprefix("error: ")
    return _c.CompileError(f"{where}: error: {message}")


def number_text(value: float) -> str:
    """A number in the text form."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


class Trace:
    """One phase being recorded; `sizes` are the symbols that a ConstExpr fixed to one value."""

    def __init__(self, phase: str, sizes: dict[str, int], prefix: str = ""):
        self.phase, self.sizes, self._prefix = phase, sizes, prefix
        self.lines: list[str] = []
        self.cached: dict[str, Tensor] = {}
        self._names: set[str] = set()

    def _fresh(self, hint: str | None) -> str:
        if not hint or not hint.isidentifier() or not hint.isascii():
            return f"{self._prefix}{len(self.lines)}"
        name, n = hint, 2
        while name in self._names:
            name, n = f"{hint}.{n}", n + 1
        self._names.add(name)
        return name

    def add(self, operation: str, inputs: Sequence[Tensor], attributes: str, type_: str, where: Location, hint: str | None = None) -> Tensor:
        """Appends an operation whose result's type is known."""
        name = self._fresh(hint)
        arguments = ", ".join(f"%{x.name}" for x in inputs)
        self.lines.append(f"%{name}: {type_} = {operation}({arguments}){' {' + attributes + '}' if attributes else ''}{where.text}")
        return Tensor(self, name, type_)

    def op(self, operation: str, inputs: Sequence[Tensor], own: str | None = None, hint: str | None = None, **attributes) -> Tensor:
        """Appends an operation; `own` is the type of results that do not follow from the operands."""
        where = Location.of_caller()
        for x in inputs:
            if x.trace is not self:
                raise error(
                    where, f"{operation}: a tensor of another phase\n    hint:     name the value with cache_result and take it as an argument"
                )
        text = ", ".join(f"{key}={value}" for key, value in attributes.items())
        query = f"{operation}({', '.join(x.type for x in inputs)}){' {' + text + '}' if text else ''}{' : ' + own if own else ''}"
        try:
            type_ = _c.infer(query)
        except _c.CompileError as mistake:
            raise error(where, str(mistake)) from None
        return self.add(operation, inputs, text, type_, where, hint)

    def constant(self, value: float) -> Tensor:
        return self.add("constant", [], f"value={number_text(float(value))}", "f32[]", Location.of_caller())

    def size(self, dim: str) -> Tensor:
        """The size of an axis as a number."""
        factor, symbol = factor_and_symbol(dim)
        return self.op("size", [], own="f32[]", name=f'"{symbol}"', count=factor) if symbol else self.constant(factor)

    def param(self, name: str, declared: str, role: str, type_: str, where: Location) -> Tensor:
        return self.add("param", [], f'name="{declared}", role={role}', type_, where, hint=name)


def dims_of(type_: str) -> list[str]:
    inside = type_[type_.index("[") + 1 : -1]
    return [d.strip() for d in inside.split(",")] if inside else []


class Tensor:
    """A value of a phase while it is traced: a type, no data. Its methods and operators are PyTorch's.

    In a phase the head axis is gone, and the token axis is the chunk's C tokens. forge's functions, torch's (`torch.exp(x)`) and
    NumPy's (`numpy.exp(x)`) take it as well.
    """

    __slots__ = ("name", "trace", "type")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, name: str, type_: str):
        self.trace, self.name, self.type = trace, name, type_

    def __repr__(self):
        return f"Tensor({self.type})"

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return DType(self.type[: self.type.index("[")])

    @property
    def shape(self) -> tuple:
        return tuple(self._size(d) for d in dims_of(self.type))

    def _size(self, dim: str):
        factor, symbol = factor_and_symbol(dim)
        if not symbol:
            return factor
        return KnownSize(factor * self.trace.sizes[symbol], dim) if symbol in self.trace.sizes else SymbolicSize(dim)

    def size(self, dim: int | None = None):
        """The size of an axis: a number where a ConstExpr or the program fixed it, else symbolic."""
        return self.shape if dim is None else self.shape[dim]

    @property
    def ndim(self) -> int:
        return len(dims_of(self.type))

    def dim(self) -> int:
        return self.ndim

    def __len__(self):
        return operator.index(self.shape[0])

    def __bool__(self):
        raise error(Location.of_caller(), "a traced value has no truth value\n    hint:     use where(condition, a, b)")

    def __iter__(self):
        raise error(Location.of_caller(), f"a traced value cannot be iterated over: {self.type}")

    # -- conversions ------------------------------------------------------------------------------------------------

    def to(self, dtype, *_, **__) -> Tensor:
        """Conversion to an element type, or to another tensor's."""
        name = dtype.dtype.name if isinstance(dtype, Tensor) else dtype_name(dtype)
        return self.trace.op("to", [self], dtype=name)

    def type_as(self, other: Tensor) -> Tensor:
        return self.to(other)

    def float(self) -> Tensor:
        return self.to("f32")

    def half(self) -> Tensor:
        return self.to("f16")

    def bfloat16(self) -> Tensor:
        return self.to("bf16")

    def contiguous(self) -> Tensor:
        return self

    clone = detach = contiguous

    # -- operators ---------------------------------------------------------------------------------------------------

    def _operand(self, value) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, SymbolicSize):
            return self.trace.size(value.symbol)
        try:
            return self.trace.constant(float(value + 0))  # no strings
        except (TypeError, ValueError):
            raise error(
                Location.of_caller(),
                f"expected a traced tensor or a number, got {value!r}\n    hint:     declare it in input_meta and take it as an argument",
            ) from None

    def _binary(self, operation: str, other, swapped: bool = False) -> Tensor:
        pair = [self, self._operand(other)]
        return self.trace.op(operation, pair[::-1] if swapped else pair)

    def __matmul__(self, other) -> Tensor:
        return product("matmul", self, other)

    def __rmatmul__(self, other) -> Tensor:
        return product("matmul", other, self)

    def __neg__(self) -> Tensor:
        return self.trace.op("neg", [self])

    def __floordiv__(self, other) -> Tensor:
        return (self / other).floor()

    def __mod__(self, other) -> Tensor:
        return self - (self // other) * other

    def __getitem__(self, index) -> Tensor:
        return indexed(self, index)

    def __setitem__(self, index, value):
        raise error(
            Location.of_caller(), "a traced value cannot be changed in place\n    hint:     compute a new one, with where(condition, a, b) for parts"
        )

    # -- axes --------------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Tensor:  # noqa: N802
        return self.permute(*reversed(range(self.ndim))) if self.ndim != 1 else self

    @property
    def mT(self) -> Tensor:  # noqa: N802
        return self.transpose(-1, -2)

    def t(self) -> Tensor:
        return self.T

    def permute(self, *axes) -> Tensor:
        return self.trace.op("permute", [self], perm=_axes_text(self, axes))

    def transpose(self, a: int, b: int) -> Tensor:
        axes = list(range(self.ndim))
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(axes)

    def unsqueeze(self, dim: int) -> Tensor:
        return self.trace.op("unsqueeze", [self], dim=operator.index(dim))

    def squeeze(self, dim: int) -> Tensor:
        return self.trace.op("squeeze", [self], dim=operator.index(dim))

    def select(self, dim: int, index: int) -> Tensor:
        return self.trace.op("select", [self], dim=operator.index(dim), start=operator.index(index))

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """`length` elements of an axis from `start` on."""
        return _stretch(self, operator.index(dim), operator.index(start), operator.index(length), 1)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """Equal parts of an axis, which `chunks` must divide."""
        return _parts(self, operator.index(chunks), operator.index(dim))

    def split(self, split_size, dim: int = 0) -> tuple[Tensor, ...]:
        """Parts of so many elements, or of as many as a list says, of an axis whose size is a number."""
        axis = _axis(self, dim)
        n = _number_of(self, axis, "split")
        sizes = [operator.index(s) for s in split_size] if isinstance(split_size, (tuple, list)) else _sizes_of(n, operator.index(split_size))
        if sum(sizes) != n or min(sizes) < 1:
            raise error(Location.of_caller(), f"split: {sizes} do not add up to an axis of {n}: {self.type}")
        return tuple(_stretch(self, axis, sum(sizes[:i]), size, 1) for i, size in enumerate(sizes))

    def repeat_interleave(self, repeats: int, dim: int) -> Tensor:
        return self.trace.op("repeat_interleave", [self], dim=operator.index(dim), count=operator.index(repeats))

    def expand(self, *shape) -> Tensor:
        """Broadcast to a shape; -1 keeps an axis."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        own = dims_of(self.type)
        missing = len(sizes) - len(own)
        dims = [own[i - missing] if isinstance(s, int) and s == -1 else size_text(s) for i, s in enumerate(sizes)]
        return self.trace.op("expand", [self], own=f"{self.dtype.name}[{', '.join(dims)}]")

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(*other.shape)

    # -- along one axis ------------------------------------------------------------------------------------------------

    def sum(self, dim=None, keepdim: bool = False) -> Tensor:
        return _reduced(self, "sum", dim, keepdim)

    def amax(self, dim=None, keepdim: bool = False) -> Tensor:
        return _reduced(self, "amax", dim, keepdim)

    def mean(self, dim=None, keepdim: bool = False) -> Tensor:
        """Not over tokens, of which the last chunk has fewer: there, divide a sum by token_mask.sum(0)."""
        dims = [_axis(self, d) for d in (range(self.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else [dim])]
        result = _reduced(self, "sum", dim, keepdim)
        for d in dims:
            result = result / self.trace.size(dims_of(self.type)[d])
        return result

    def prod(self, dim: int, keepdim: bool = False) -> Tensor:
        result = self.cumprod(dim).select(dim, -1)
        return result.unsqueeze(_axis(self, dim)) if keepdim else result

    def cumsum(self, dim: int, *, reverse: bool = False, exclusive: bool = False) -> Tensor:
        """Running sum; reverse: from the end; exclusive: without the element itself."""
        flags = {name: "true" for name, given in (("reverse", reverse), ("exclusive", exclusive)) if given}
        return self.trace.op("cumsum", [self], dim=operator.index(dim), **flags)

    def cumprod(self, dim: int) -> Tensor:
        """Running product. Rows past a sequence's end are 0, or what the input's `pad` says."""
        return self.trace.op("cumprod", [self], dim=operator.index(dim))

    def softmax(self, dim: int) -> Tensor:
        return self.trace.op("softmax", [self], dim=operator.index(dim))

    # -- triangles -----------------------------------------------------------------------------------------------------

    def tril(self, diagonal: int = 0) -> Tensor:
        return self.trace.op("tril", [self], diagonal=operator.index(diagonal))

    def triu(self, diagonal: int = 0) -> Tensor:
        return self.trace.op("triu", [self], diagonal=operator.index(diagonal))

    def inverse(self) -> Tensor:
        """Inverse of a unit lower-triangular matrix, identity plus tril(…, -1); computed in float32."""
        wide = self.to("f32") if self.dtype.name in HALF else self
        result = wide.trace.op("inverse", [wide])
        return result if wide is self else result.to(self.dtype)

    # -- some of PyTorch's longer names ----------------------------------------------------------------------------------

    def clamp(self, min=None, max=None) -> Tensor:  # noqa: A002: PyTorch's names
        x = self if min is None else self._binary("maximum", min)
        return x if max is None else x._binary("minimum", max)

    def masked_fill(self, mask: Tensor, value) -> Tensor:
        return where(mask, value, self)

    def square(self) -> Tensor:
        return self * self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from . import _functions

        return _functions.from_torch(func, args, kwargs or {})

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        from . import _functions

        return _functions.from_numpy(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", inputs, kwargs)

    def __array_function__(self, func, types, args, kwargs):
        from . import _functions

        return _functions.from_numpy(func.__name__, args, kwargs)


#: Operations of one operand, and of two, that are a method and a function of their own name (the op table's: a test compares).
UNARY = (
    "neg", "exp", "expm1", "exp2", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sigmoid", "logsigmoid", "softplus", "silu", "tanh", "relu", "abs",
    "sin", "cos", "floor", "ceil", "round", "sign",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne")
_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _unary(name):
    def method(self):
        return self.trace.op(name, [self])

    return method


def _binary(name, swapped=False):
    def method(self, other):
        return self._binary(name, other, swapped)

    return method


for _name in UNARY:
    setattr(Tensor, _name, _unary(_name))
for _name in BINARY:
    setattr(Tensor, _name, _binary(_name))
for _python, _name in _OPERATORS.items():
    setattr(Tensor, f"__{_python}__", _binary(_name))
    setattr(Tensor, f"__r{_python}__", _binary(_name, swapped=True))
for _name in _COMPARISONS:
    setattr(Tensor, f"__{_name}__", _binary(_name))
Tensor.__hash__ = object.__hash__
Tensor.__abs__ = Tensor.abs
Tensor.__floor__ = Tensor.floor
Tensor.__ceil__ = Tensor.ceil


def _axes_text(x: Tensor, axes) -> str:
    listed = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return "[" + ", ".join(str(operator.index(a) % x.ndim if x.ndim else a) for a in listed) + "]"


def _reduced(x: Tensor, operation: str, dim, keepdim: bool) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if not isinstance(dim, (tuple, list)) else dim
    ordered = sorted((operator.index(d) % x.ndim if x.ndim else d for d in dims), reverse=True)
    result = x
    for d in ordered:
        result = result.trace.op(operation, [result], dim=d)
    for d in reversed(ordered) if keepdim else ():
        result = result.unsqueeze(d)
    return result


def size_text(size) -> str:
    """A size in the text form."""
    return size.symbol if isinstance(size, (KnownSize, SymbolicSize)) else str(operator.index(size))


def product(operation: str, a, b) -> Tensor:
    """Matrix product; vectors are a row on the left, a column on the right. Of two element types the wider one counts."""
    for x in (a, b):
        if not isinstance(x, Tensor):
            raise error(Location.of_caller(), f"{operation}: expected a traced tensor, got {x!r}")
    if a.dtype != b.dtype:
        wider = "f64" if "f64" in (a.dtype.name, b.dtype.name) else "f32"
        a, b = (x if x.dtype.name == wider else x.to(wider) for x in (a, b))
    row, column = a.ndim == 1, b.ndim == 1
    result = a.trace.op(operation, [a.unsqueeze(0) if row else a, b.unsqueeze(1) if column else b])
    result = result.squeeze(-1) if column else result
    return result.squeeze(0) if row else result


def where(condition: Tensor, a, b) -> Tensor:
    """a where the condition holds, b elsewhere."""
    return condition.trace.op("where", [condition, condition._operand(a), condition._operand(b)])


def indexed(x: Tensor, index) -> Tensor:
    """x[…] with None, Ellipsis, one integer per axis, and slices."""
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(p is not None and p is not Ellipsis for p in parts)
    if Ellipsis in [p for p in parts if not isinstance(p, Tensor)]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (x.ndim - taken)
    if taken > x.ndim or any(isinstance(p, Tensor) for p in parts):
        raise error(Location.of_caller(), f"cannot index {x.type} with {index!r}\n    expected: None, ..., integers and slices")
    result, axis = x, 0
    for part in parts:
        if part is None:
            result, axis = result.unsqueeze(axis), axis + 1
        elif isinstance(part, slice):
            result, axis = _sliced(result, axis, part), axis + 1
        else:
            result = result.select(axis, part)
    return result


def _sliced(x: Tensor, axis: int, part: slice) -> Tensor:
    """x[start:stop:step] along an axis. Sizes that are symbols have parts with sizes of their own, or so many elements."""
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
        return _stretch(x, axis, taken.start, len(taken), step)
    start = start or 0
    last = stop if stop is not None else 0 if start < 0 else None
    if last is None or (start < 0) != (last <= 0 and stop != 0):
        raise error(
            Location.of_caller(),
            f"{_text(part)} of an axis of {size}: how many elements are left has no name\n"
            "    expected: a number of elements, from either end of the axis, or one of its equal parts\n"
            "    hint:     declare the axis as a number, as ConstExpr, or as a multiple, such as 2*D, whose halves are D",
        )
    return _stretch(x, axis, start, len(range(start, last, step)), step)


def _text(part: slice) -> str:
    start, stop = ("" if b is None else b for b in (part.start, part.stop))
    return f"{start}:{stop}" + ("" if part.step is None else f":{part.step}")


def _stretch(x: Tensor, axis: int, start: int, length: int, step: int) -> Tensor:
    if length < 1:
        raise error(Location.of_caller(), f"no elements of axis {axis} are left: {x.type}\n    expected: at least one")
    return x.trace.op("slice", [x], dim=axis, start=start, step=step, length=length)


def _part_between(x: Tensor, axis: int, part: slice, step: int) -> Tensor:
    """Bounds that are multiples of the axis's symbol."""
    factor, symbol = factor_and_symbol(dims_of(x.type)[axis])

    def multiple(bound, otherwise):
        return otherwise if bound is None else 0 if bound == 0 else bound.multiple_of(symbol) if isinstance(bound, SymbolicSize) else None

    start, stop = multiple(part.start, 0), multiple(part.stop, factor)
    parts = None if start is None or stop is None else stop - start
    if step != 1 or not parts or parts < 0 or stop > factor or factor % parts or start % parts:
        raise error(Location.of_caller(), f"cannot take {_text(part)} of an axis of {x.shape[axis]}\n    expected: one of its equal parts")
    return x.trace.op("part", [x], dim=axis, start=start // parts, count=factor // parts)


def _axis(x: Tensor, dim: int) -> int:
    axis = operator.index(dim)
    if not -x.ndim <= axis < x.ndim:
        raise error(Location.of_caller(), f"dim {axis} is out of range\n    expected: a dim in [{-x.ndim}, {x.ndim})\n    got:      {x.type}")
    return axis % x.ndim


def _parts(x: Tensor, count: int, dim: int) -> tuple[Tensor, ...]:
    axis = _axis(x, dim)
    factor, _ = factor_and_symbol(dims_of(x.type)[axis])
    size = x.shape[axis]
    if count > 0 and factor % count and isinstance(size, int) and size % count == 0:  # a ConstExpr's name has no half
        return tuple(_stretch(x, axis, i * (size // count), size // count, 1) for i in range(count))
    return tuple(x.trace.op("part", [x], dim=axis, start=i, count=count) for i in range(max(count, 1)))


def _number_of(x: Tensor, axis: int, operation: str) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise error(
            Location.of_caller(), f"{operation}: the size of axis {axis} is not known while tracing: {x.type}\n"
            "    hint:     chunk(count, dim) makes equal parts of 2*D; or declare the axis as a number, or as ConstExpr"
        )  # fmt: skip
    return int(size)


def _sizes_of(n: int, each: int) -> list[int]:
    return [min(each, n - at) for at in range(0, n, each)] if each > 0 else [0]
