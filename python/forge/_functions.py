"""The language as functions: forge.exp(x), forge.matmul_out_fp32(a, b), …, and the same under PyTorch's and NumPy's
names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from ._location import Location, error
from ._suggest import suggestion
from ._tensor import Operand, Tensor, product, size_text, where

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "abs", "add", "amax", "arange", "cache_result", "ceil", "chunk", "clamp", "concat", "cos", "cumprod", "cumsum",
    "div", "eq", "exp", "exp2", "expand", "expm1", "floor", "full_like", "ge", "gt", "identity", "interleave",
    "inverse", "l2norm", "le", "linear_scan", "log", "log1p", "logsigmoid", "lt", "matmul", "matmul_out_fp32",
    "maximum", "mean", "minimum", "mul", "narrow", "ne", "neg", "ones_like", "outer", "permute", "pow", "prev_token",
    "prod", "reciprocal", "relu", "repeat_interleave", "round", "rsqrt", "sigmoid", "sign", "silu", "sin", "softmax",
    "softplus", "split", "sqrt", "square", "squeeze", "stack", "sub", "sum", "tanh", "tril", "triu", "unsqueeze",
    "where", "zeros_like",
]  # fmt: skip


def cache_result(x: Tensor, name: str) -> Tensor:
    """Makes x an argument of later phases under `name`; returns x."""
    if name in x.trace.cached:
        raise error(
            Location.of_caller(),
            f"cache_result: {name!r} is cached twice\n    expected: a name of its own for each value",
        )
    x.trace.cached[name] = x.trace.op("cache_result", [x], hint=name, name=f'"{name}"')
    return x.trace.cached[name]


def identity(like: Tensor, n: Any) -> Tensor:
    """The [n, n] identity matrix in the element type of `like`."""
    size = size_text(n)
    return like.trace.op("identity", [], own=f"{like.dtype.name}[{size}, {size}]")


def arange(like: Tensor, n: Any) -> Tensor:
    """0, 1, …, n - 1 in the element type of `like`, along an axis that is not the tokens'."""
    return like.trace.op("arange", [], own=f"{like.dtype.name}[{size_text(n)}]")


def full_like(x: Tensor, fill_value: float, dtype: Any = None) -> Tensor:
    """A tensor of one number, in the shape and element type of x."""
    constant = x.trace.constant(fill_value).to(x.dtype if dtype is None else dtype)
    return constant.expand(*x.shape) if x.ndim else constant


def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    return full_like(x, 0.0, dtype)


def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    return full_like(x, 1.0, dtype)


def concat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """One after the other along an axis that is not the tokens': two of [C, D] make [C, 2*D]."""
    return _joined("concat", tensors, dim)


def interleave(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Elements by turns along an axis: x[0], y[0], x[1], y[1], …. Along the tokens: several rows per token, [2*C, V] of
    two [C, V]."""
    return _joined("interleave", tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """One after the other along a new axis."""
    return _joined("concat", [_traced(x, "stack").unsqueeze(dim) for x in tensors], dim)


def _joined(operation: str, tensors: Sequence[Tensor], dim: int) -> Tensor:
    parts = [_traced(x, operation) for x in tensors]
    if not parts:
        raise error(Location.of_caller(), f"{operation}: expected at least one tensor, got none")
    return parts[0].trace.op(operation, parts, dim=int(dim))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product, in the operands' element type."""
    return product("matmul", a, b)


def matmul_out_fp32(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of 16-bit operands with its result in float32."""
    return product("matmul_out_fp32", a, b)


def linear_scan(decay: Tensor, x: Tensor) -> Tensor:
    """h[i] = decay[i] * h[i-1] + x[i] along axis 0, from h[-1] = 0; equal shapes [C, …]."""
    return x.trace.op("linear_scan", [decay, x])


def prev_token(x: Tensor) -> Tensor:
    """The input one token earlier; the pad value before a sequence's first token. Only of inputs."""
    return x.trace.op("prev_token", [x])


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(sum(x^2, -1) + eps)."""
    return x.trace.op("l2norm", [x], dim=-1, value=repr(float(eps)))


def outer(a: Tensor, b: Tensor) -> Tensor:
    """[N] and [P] to [N, P]."""
    return a.unsqueeze(1) * b.unsqueeze(0)


def _traced(x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise error(Location.of_caller(), f"{name}: expected a traced tensor, got {x!r}")
    return x


def _method(method: Callable[Concatenate[Tensor, P], R]) -> Callable[Concatenate[Tensor, P], R]:
    name = method.__name__

    def function(x: Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(_traced(x, name), *args, **kwargs)

    return _described(function, name, f"As Tensor.{name}.")


def _binary(name: str) -> Callable[[Operand, Operand], Tensor]:
    def function(a: Operand, b: Operand) -> Tensor:
        if isinstance(a, Tensor):
            return a._with(name, b)
        return _traced(b, name)._with(name, a, swapped=True)

    return _described(
        function, name, f"{name}(a, b), elementwise with PyTorch's broadcasting; one of them may be a number."
    )


def _described(function: Any, name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


neg, exp, expm1, exp2 = _method(Tensor.neg), _method(Tensor.exp), _method(Tensor.expm1), _method(Tensor.exp2)
log, log1p, sqrt, rsqrt = _method(Tensor.log), _method(Tensor.log1p), _method(Tensor.sqrt), _method(Tensor.rsqrt)
reciprocal, sigmoid, logsigmoid, softplus = (
    _method(Tensor.reciprocal),
    _method(Tensor.sigmoid),
    _method(Tensor.logsigmoid),
    _method(Tensor.softplus),
)
silu, tanh, relu, abs = _method(Tensor.silu), _method(Tensor.tanh), _method(Tensor.relu), _method(Tensor.abs)
sin, cos, floor, ceil = _method(Tensor.sin), _method(Tensor.cos), _method(Tensor.floor), _method(Tensor.ceil)
round, sign = _method(Tensor.round), _method(Tensor.sign)
add, sub, mul, div, pow = _binary("add"), _binary("sub"), _binary("mul"), _binary("div"), _binary("pow")
maximum, minimum, lt, le, gt = _binary("maximum"), _binary("minimum"), _binary("lt"), _binary("le"), _binary("gt")
ge, eq, ne = _binary("ge"), _binary("eq"), _binary("ne")
amax, chunk, clamp, cumprod = (
    _method(Tensor.amax),
    _method(Tensor.chunk),
    _method(Tensor.clamp),
    _method(Tensor.cumprod),
)
cumsum, expand, inverse, mean = (
    _method(Tensor.cumsum),
    _method(Tensor.expand),
    _method(Tensor.inverse),
    _method(Tensor.mean),
)
narrow, permute, prod, repeat_interleave = (
    _method(Tensor.narrow),
    _method(Tensor.permute),
    _method(Tensor.prod),
    _method(Tensor.repeat_interleave),
)
softmax, split, square, squeeze = (
    _method(Tensor.softmax),
    _method(Tensor.split),
    _method(Tensor.square),
    _method(Tensor.squeeze),
)
sum, tril, triu, unsqueeze = _method(Tensor.sum), _method(Tensor.tril), _method(Tensor.triu), _method(Tensor.unsqueeze)

#: What PyTorch and NumPy call an operation that Forge calls otherwise.
_SYNONYMS = {
    "log_sigmoid": "logsigmoid", "true_divide": "div", "divide": "div", "subtract": "sub", "multiply": "mul",
    "negative": "neg", "power": "pow", "absolute": "abs", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "mm": "matmul", "linalg_inv": "inverse", "inv": "inverse",
    "clip": "clamp", "max": "amax", "expand_dims": "unsqueeze", "ger": "outer", "cat": "concat", "concatenate":
    "concat", "rint": "round", "around": "round",
}  # fmt: skip
_METHODS = ("transpose", "t", "select", "type_as", "masked_fill", "expand_as", "unsqueeze", "squeeze")


def _call(library: str, name: str, args: Any, kwargs: Any) -> Any:
    own = _SYNONYMS.get(name, name)
    if own in ("remainder", "floor_divide"):
        return args[0] % args[1] if own == "remainder" else args[0] // args[1]
    if own in __all__:
        return globals()[own](*args, **kwargs)
    if own in _METHODS:
        return getattr(_traced(args[0], own), own)(*args[1:], **kwargs)
    likely = suggestion(name, __all__)
    raise error(
        Location.of_caller(),
        f"{library}.{name} is no operation of the language{likely}\n    expected: one of {', '.join(sorted(__all__))}",
    )


def from_torch(func: Any, args: Any, kwargs: Any) -> Any:
    """What torch.<name>(…) means for traced tensors."""
    return _call("torch", getattr(func, "__name__", str(func)), args, kwargs)


def from_numpy(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """What numpy.<name>(…) means for traced tensors; `axis` is PyTorch's `dim`."""
    renamed = {
        {"axis": "dim", "keepdims": "keepdim", "k": "diagonal"}.get(key, key): value for key, value in kwargs.items()
    }
    if name == "transpose" and len(args) == 1 and not renamed:
        return args[0].T
    if name == "split":  # NumPy's number is one of parts, or a list of where they begin
        return _traced(args[0], name).chunk(*args[1:], **renamed)
    return _call("numpy", name, args, renamed)
