"""The values that callables see while they are traced, with PyTorch's methods and operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, Union

from ._location import Location, error
from ._slices import axis_of, indexed, number_of, parts, sizes_of, stretch
from ._suggest import suggestion
from ._types import HALF, DType, DTypeLike, KnownSize, SymbolicSize, dims_of, dtype_name, factor_and_symbol

if TYPE_CHECKING:
    from ._trace import Trace

#: What stands for a traced value beside another: a number, or the size of an axis.
Operand = Union["Tensor", float, KnownSize, SymbolicSize]
Size = int | KnownSize | SymbolicSize


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return self.trace.op(name, [self])

    return _named(method, name, "elementwise.")


def _binary(name: str, swapped: bool = False) -> Callable[[Tensor, Operand], Tensor]:
    def method(self: Tensor, other: Operand) -> Tensor:
        return self._with(name, other, swapped)

    return _named(method, name, "elementwise with PyTorch's broadcasting.")


def _named(method: Any, name: str, text: str) -> Any:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", f"`{name}`, {text}"
    return method


class Tensor:
    """A value of a phase while it is traced: a type, no data. Its methods and operators are PyTorch's.

    In a phase the head axis is gone, and the token axis is the chunk's C tokens. forge's functions, torch's
    (`torch.exp(x)`) and NumPy's (`numpy.exp(x)`) take it as well.
    """

    __slots__ = ("name", "trace", "type")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, name: str, type_: str) -> None:
        self.trace, self.name, self.type = trace, name, type_

    def __repr__(self) -> str:
        return f"Tensor({self.type})"

    def __dir__(self) -> list[str]:
        return [n for n in object.__dir__(self) if not n.startswith("_")]

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"forge.Tensor has no {name!r}{suggestion(name, (n for n in dir(Tensor) if not n.startswith('_')))}"
        )

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return DType(self.type[: self.type.index("[")])

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the axes: numbers where a ConstExpr or the program fixed them, else symbolic."""
        return tuple(self._size(d) for d in dims_of(self.type))

    def _size(self, dim: str) -> Size:
        factor, symbol = factor_and_symbol(dim)
        if not symbol:
            return factor
        return KnownSize(factor * self.trace.sizes[symbol], dim) if symbol in self.trace.sizes else SymbolicSize(dim)

    def size(self, dim: int | None = None) -> Any:
        """The size of an axis: a number where a ConstExpr or the program fixed it, else symbolic."""
        return self.shape if dim is None else self.shape[dim]

    @property
    def ndim(self) -> int:
        return len(dims_of(self.type))

    def dim(self) -> int:
        return self.ndim

    def __len__(self) -> int:
        return operator.index(self.shape[0])

    def __bool__(self) -> NoReturn:
        raise error(Location.of_caller(), "a traced value has no truth value\n    hint:     use where(condition, a, b)")

    def __iter__(self) -> NoReturn:
        raise error(Location.of_caller(), f"a traced value cannot be iterated over: {self.type}")

    # -- conversions ------------------------------------------------------------------------------------------------

    def to(self, dtype: Tensor | DTypeLike, *_: object, **__: object) -> Tensor:
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

    # -- elementwise --------------------------------------------------------------------------------------------------

    def _operand(self, value: object) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, SymbolicSize):
            return self.trace.size(value.symbol)
        try:
            return self.trace.constant(value + 0)  # type: ignore[operator]  # no strings
        except (TypeError, ValueError):
            raise error(
                Location.of_caller(),
                f"expected a traced tensor or a number, got {value!r}\n    hint:     declare it in input_meta and "
                f"take it as an argument",
            ) from None

    def _with(self, operation: str, other: object, swapped: bool = False) -> Tensor:
        pair = [self, self._operand(other)]
        return self.trace.op(operation, pair[::-1] if swapped else pair)

    neg, reciprocal, sign, abs = _unary("neg"), _unary("reciprocal"), _unary("sign"), _unary("abs")
    exp, expm1, exp2, log, log1p = _unary("exp"), _unary("expm1"), _unary("exp2"), _unary("log"), _unary("log1p")
    sqrt, rsqrt, sin, cos, tanh = _unary("sqrt"), _unary("rsqrt"), _unary("sin"), _unary("cos"), _unary("tanh")
    sigmoid, logsigmoid, softplus, silu, relu = (
        _unary("sigmoid"),
        _unary("logsigmoid"),
        _unary("softplus"),
        _unary("silu"),
        _unary("relu"),
    )
    floor, ceil, round = _unary("floor"), _unary("ceil"), _unary("round")
    add, sub, mul, div, pow = _binary("add"), _binary("sub"), _binary("mul"), _binary("div"), _binary("pow")
    maximum, minimum = _binary("maximum"), _binary("minimum")
    lt, le, gt, ge, eq, ne = _binary("lt"), _binary("le"), _binary("gt"), _binary("ge"), _binary("eq"), _binary("ne")

    __neg__, __abs__, __floor__, __ceil__ = neg, abs, floor, ceil
    __add__, __sub__, __mul__, __truediv__, __pow__ = add, sub, mul, div, pow
    __radd__, __rsub__, __rmul__ = _binary("add", True), _binary("sub", True), _binary("mul", True)
    __rtruediv__, __rpow__ = _binary("div", True), _binary("pow", True)
    __lt__, __le__, __gt__, __ge__ = lt, le, gt, ge
    __eq__, __ne__ = eq, ne  # type: ignore[assignment]  # they give tensors, as PyTorch's
    __hash__ = object.__hash__

    def __matmul__(self, other: Tensor) -> Tensor:
        return product("matmul", self, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return product("matmul", other, self)

    def __floordiv__(self, other: Operand) -> Tensor:
        return (self / other).floor()

    def __mod__(self, other: Operand) -> Tensor:
        return self - (self // other) * other

    def clamp(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:  # noqa: A002  PyTorch's names
        x = self if min is None else self._with("maximum", min)
        return x if max is None else x._with("minimum", max)

    def masked_fill(self, mask: Tensor, value: Operand) -> Tensor:
        return where(mask, value, self)

    def square(self) -> Tensor:
        return self * self

    # -- parts --------------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        return indexed(self, index)

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise error(
            Location.of_caller(),
            "a traced value cannot be changed in place\n    hint:     compute a new one, with where(condition, a, b) "
            "for parts",
        )

    def select(self, dim: SupportsIndex, index: SupportsIndex) -> Tensor:
        return self.trace.op("select", [self], dim=operator.index(dim), start=operator.index(index))

    def narrow(self, dim: SupportsIndex, start: SupportsIndex, length: SupportsIndex) -> Tensor:
        """`length` elements of an axis from `start` on."""
        return stretch(self, operator.index(dim), operator.index(start), operator.index(length), 1)

    def chunk(self, chunks: SupportsIndex, dim: SupportsIndex = 0) -> tuple[Tensor, ...]:
        """Equal parts of an axis, which `chunks` must divide."""
        return parts(self, operator.index(chunks), operator.index(dim))

    def split(self, split_size: SupportsIndex | Sequence[SupportsIndex], dim: SupportsIndex = 0) -> tuple[Tensor, ...]:
        """Parts of so many elements, or of as many as a list says, of an axis whose size is a number."""
        axis = axis_of(self, dim)
        n = number_of(self, axis, "split")
        sizes = (
            [operator.index(s) for s in split_size]
            if isinstance(split_size, Sequence)
            else sizes_of(n, operator.index(split_size))
        )
        if sum(sizes) != n or min(sizes) < 1:
            raise error(Location.of_caller(), f"split: {sizes} do not add up to an axis of {n}: {self.type}")
        return tuple(stretch(self, axis, sum(sizes[:i]), size, 1) for i, size in enumerate(sizes))

    # -- axes ---------------------------------------------------------------------------------------------------------

    @property
    def T(self) -> Tensor:  # noqa: N802
        return self.permute(*reversed(range(self.ndim))) if self.ndim != 1 else self

    @property
    def mT(self) -> Tensor:  # noqa: N802
        return self.transpose(-1, -2)

    def t(self) -> Tensor:
        return self.T

    def permute(self, *axes: SupportsIndex | Sequence[SupportsIndex]) -> Tensor:
        return self.trace.op("permute", [self], perm=_axes_text(self, axes))

    def transpose(self, a: int, b: int) -> Tensor:
        axes = list(range(self.ndim))
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(axes)

    def unsqueeze(self, dim: SupportsIndex) -> Tensor:
        return self.trace.op("unsqueeze", [self], dim=operator.index(dim))

    def squeeze(self, dim: SupportsIndex) -> Tensor:
        return self.trace.op("squeeze", [self], dim=operator.index(dim))

    def repeat_interleave(self, repeats: SupportsIndex, dim: SupportsIndex) -> Tensor:
        return self.trace.op("repeat_interleave", [self], dim=operator.index(dim), count=operator.index(repeats))

    def expand(self, *shape: Size | Sequence[Size]) -> Tensor:
        """Broadcast to a shape; -1 keeps an axis."""
        sizes: Sequence[Any] = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        own = dims_of(self.type)
        missing = len(sizes) - len(own)
        dims = [own[i - missing] if isinstance(s, int) and s == -1 else size_text(s) for i, s in enumerate(sizes)]
        return self.trace.op("expand", [self], own=f"{self.dtype.name}[{', '.join(dims)}]")

    def expand_as(self, other: Tensor) -> Tensor:
        return self.expand(*other.shape)

    # -- along one axis ------------------------------------------------------------------------------------------------

    def sum(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        return _reduced(self, "sum", dim, keepdim)

    def amax(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        return _reduced(self, "amax", dim, keepdim)

    def mean(self, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
        """Not over tokens, of which the last chunk has fewer: there, divide a sum by token_mask.sum(0)."""
        dims = [axis_of(self, d) for d in _listed(self, dim)]
        result = _reduced(self, "sum", dim, keepdim)
        for d in dims:
            result = result / self.trace.size(dims_of(self.type)[d])
        return result

    def prod(self, dim: int, keepdim: bool = False) -> Tensor:
        result = self.cumprod(dim).select(dim, -1)
        return result.unsqueeze(axis_of(self, dim)) if keepdim else result

    def cumsum(self, dim: SupportsIndex, *, reverse: bool = False, exclusive: bool = False) -> Tensor:
        """Running sum; reverse: from the end; exclusive: without the element itself."""
        flags = {name: "true" for name, given in (("reverse", reverse), ("exclusive", exclusive)) if given}
        return self.trace.op("cumsum", [self], dim=operator.index(dim), **flags)

    def cumprod(self, dim: SupportsIndex) -> Tensor:
        """Running product. Rows past a sequence's end are 0, or what the input's `pad` says."""
        return self.trace.op("cumprod", [self], dim=operator.index(dim))

    def softmax(self, dim: SupportsIndex) -> Tensor:
        return self.trace.op("softmax", [self], dim=operator.index(dim))

    # -- matrices ------------------------------------------------------------------------------------------------------

    def tril(self, diagonal: SupportsIndex = 0) -> Tensor:
        return self.trace.op("tril", [self], diagonal=operator.index(diagonal))

    def triu(self, diagonal: SupportsIndex = 0) -> Tensor:
        return self.trace.op("triu", [self], diagonal=operator.index(diagonal))

    def inverse(self) -> Tensor:
        """Inverse of a unit lower-triangular matrix, identity plus tril(…, -1); computed in float32."""
        wide = self.to("f32") if self.dtype.name in HALF else self
        result = wide.trace.op("inverse", [wide])
        return result if wide is self else result.to(self.dtype)

    # -- called by PyTorch and NumPy -----------------------------------------------------------------------------------

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Tensor:
        from . import _functions

        return _functions.from_torch(func, args, kwargs or {})

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Tensor:
        from . import _functions

        return _functions.from_numpy(
            ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", inputs, kwargs
        )

    def __array_function__(self, func: Any, types: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        from . import _functions

        return _functions.from_numpy(func.__name__, args, kwargs)


#: Operations of one operand, and of two, that are a method and a function of their own name (the op table's: a test
#: compares).
UNARY = (
    "neg", "exp", "expm1", "exp2", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sigmoid", "logsigmoid", "softplus",
    "silu", "tanh", "relu", "abs", "sin", "cos", "floor", "ceil", "round", "sign",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne")


def _axes_text(x: Tensor, axes: Any) -> str:
    listed = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return "[" + ", ".join(str(operator.index(a) % x.ndim if x.ndim else a) for a in listed) + "]"


def _listed(x: Tensor, dim: int | Sequence[int] | None) -> Iterable[int]:
    return range(x.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else [dim]  # type: ignore[list-item]


def _reduced(x: Tensor, operation: str, dim: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    ordered = sorted((operator.index(d) % x.ndim if x.ndim else d for d in _listed(x, dim)), reverse=True)
    result = x
    for d in ordered:
        result = result.trace.op(operation, [result], dim=d)
    for d in reversed(ordered) if keepdim else ():
        result = result.unsqueeze(d)
    return result


def size_text(size: Any) -> str:
    """A size in the text form."""
    return size.symbol if isinstance(size, (KnownSize, SymbolicSize)) else str(operator.index(size))


def product(operation: str, a: object, b: object) -> Tensor:
    """Matrix product; vectors are a row on the left, a column on the right. Of two element types the wider one
    counts."""
    a, b = (_matrix(operation, x) for x in (a, b))
    if a.dtype != b.dtype:
        wider = "f64" if "f64" in (a.dtype.name, b.dtype.name) else "f32"
        a, b = (x if x.dtype.name == wider else x.to(wider) for x in (a, b))
    row, column = a.ndim == 1, b.ndim == 1
    result = a.trace.op(operation, [a.unsqueeze(0) if row else a, b.unsqueeze(1) if column else b])
    result = result.squeeze(-1) if column else result
    return result.squeeze(0) if row else result


def _matrix(operation: str, x: object) -> Tensor:
    if not isinstance(x, Tensor):
        raise error(Location.of_caller(), f"{operation}: expected a traced tensor, got {x!r}")
    return x


def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """a where the condition holds, b elsewhere."""
    return condition.trace.op("where", [condition, condition._operand(a), condition._operand(b)])
