"""The language as functions: forge.exp(x), forge.matmul_out_fp32(a, b), …, and the same under PyTorch's and NumPy's names."""

from __future__ import annotations

from ._location import Location, error
from ._trace import BINARY, UNARY, Tensor, product, size_text, where

__all__ = [
    *UNARY, *BINARY, "amax", "arange", "cache_result", "chunk", "clamp", "concat", "cumprod", "cumsum", "expand", "full_like", "identity",
    "interleave", "inverse", "l2norm", "linear_scan", "matmul", "matmul_out_fp32", "mean", "narrow", "ones_like", "outer", "permute", "prev_token",
    "prod", "repeat_interleave", "softmax", "split", "square", "squeeze", "stack", "sum", "tril", "triu", "unsqueeze", "where", "zeros_like",
]  # fmt: skip


def cache_result(x: Tensor, name: str) -> Tensor:
    """Makes x an argument of later phases under `name`; returns x."""
    if name in x.trace.cached:
        raise error(Location.of_caller(), f"cache_result: {name!r} is cached twice\n    expected: a name of its own for each value")
    x.trace.cached[name] = x.trace.op("cache_result", [x], hint=name, name=f'"{name}"')
    return x.trace.cached[name]


def identity(like: Tensor, n) -> Tensor:
    """The [n, n] identity matrix in the element type of `like`."""
    size = size_text(n)
    return like.trace.op("identity", [], own=f"{like.dtype.name}[{size}, {size}]")


def arange(like: Tensor, n) -> Tensor:
    """0, 1, …, n - 1 in the element type of `like`, along an axis that is not the tokens'."""
    return like.trace.op("arange", [], own=f"{like.dtype.name}[{size_text(n)}]")


def full_like(x: Tensor, fill_value: float, dtype=None) -> Tensor:
    """A tensor of one number, in the shape and element type of x."""
    constant = x.trace.constant(fill_value).to(x.dtype if dtype is None else dtype)
    return constant.expand(*x.shape) if x.ndim else constant


def zeros_like(x: Tensor, dtype=None) -> Tensor:
    return full_like(x, 0.0, dtype)


def ones_like(x: Tensor, dtype=None) -> Tensor:
    return full_like(x, 1.0, dtype)


def concat(tensors, dim: int = 0) -> Tensor:
    """One after the other along an axis that is not the tokens': two of [C, D] make [C, 2*D]."""
    return _joined("concat", tensors, dim)


def interleave(tensors, dim: int = 0) -> Tensor:
    """Elements by turns along an axis: x[0], y[0], x[1], y[1], …. Along the tokens: several rows per token, [2*C, V] of two [C, V]."""
    return _joined("interleave", tensors, dim)


def stack(tensors, dim: int = 0) -> Tensor:
    """One after the other along a new axis."""
    return _joined("concat", [_traced(x, "stack").unsqueeze(dim) for x in tensors], dim)


def _joined(operation: str, tensors, dim: int) -> Tensor:
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


def _traced(x, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise error(Location.of_caller(), f"{name}: expected a traced tensor, got {x!r}")
    return x


def _unary(name: str):
    def function(x: Tensor) -> Tensor:
        return getattr(_traced(x, name), name)()

    function.__name__, function.__doc__ = name, f"{name}(x), elementwise."
    return function


def _binary(name: str):
    def function(a, b) -> Tensor:
        if isinstance(a, Tensor):
            return a._with(name, b)
        return _traced(b, name)._with(name, a, swapped=True)

    function.__name__, function.__doc__ = name, f"{name}(a, b), elementwise with PyTorch's broadcasting; one of them may be a number."
    return function


def _method(name: str):
    def function(x: Tensor, *args, **kwargs) -> Tensor:
        return getattr(_traced(x, name), name)(*args, **kwargs)

    function.__name__, function.__doc__ = name, f"As Tensor.{name}."
    return function


for _name in UNARY:
    globals()[_name] = _unary(_name)
for _name in BINARY:
    globals()[_name] = _binary(_name)
for _name in (
    "amax",
    "chunk",
    "clamp",
    "cumprod",
    "cumsum",
    "expand",
    "inverse",
    "mean",
    "narrow",
    "permute",
    "prod",
    "repeat_interleave",
    "softmax",
    "split",
    "square",
    "squeeze",
    "sum",
    "tril",
    "triu",
    "unsqueeze",
):
    globals()[_name] = _method(_name)

#: What PyTorch and NumPy call an operation that Forge calls otherwise.
_SYNONYMS = {
    "log_sigmoid": "logsigmoid", "true_divide": "div", "divide": "div", "subtract": "sub", "multiply": "mul", "negative": "neg", "power": "pow",
    "absolute": "abs", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "mm": "matmul",
    "linalg_inv": "inverse", "inv": "inverse", "clip": "clamp", "max": "amax", "expand_dims": "unsqueeze", "ger": "outer",
    "cat": "concat", "concatenate": "concat", "rint": "round", "around": "round",
}  # fmt: skip
_METHODS = ("transpose", "t", "select", "type_as", "masked_fill", "expand_as", "unsqueeze", "squeeze")


def _call(library: str, name: str, args, kwargs) -> Tensor:
    own = _SYNONYMS.get(name, name)
    if own in ("remainder", "floor_divide"):
        return args[0] % args[1] if own == "remainder" else args[0] // args[1]
    if own in __all__:
        return globals()[own](*args, **kwargs)
    if own in _METHODS:
        return getattr(_traced(args[0], own), own)(*args[1:], **kwargs)
    raise error(Location.of_caller(), f"{library}.{name} is no operation of the language\n    expected: one of {', '.join(sorted(__all__))}")


def from_torch(func, args, kwargs) -> Tensor:
    """What torch.<name>(…) means for traced tensors."""
    return _call("torch", getattr(func, "__name__", str(func)), args, kwargs)


def from_numpy(name: str, args, kwargs) -> Tensor:
    """What numpy.<name>(…) means for traced tensors; `axis` is PyTorch's `dim`."""
    renamed = {{"axis": "dim", "keepdims": "keepdim", "k": "diagonal"}.get(key, key): value for key, value in kwargs.items()}
    if name == "transpose" and len(args) == 1 and not renamed:
        return args[0].T
    if name == "split":  # NumPy's number is one of parts, or a list of where they begin
        return _traced(args[0], name).chunk(*args[1:], **renamed)
    return _call("numpy", name, args, renamed)
