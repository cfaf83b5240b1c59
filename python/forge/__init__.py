"""Forge: linear attention from three short functions over one chunk of tokens, compiled into fast kernels.

    attn = forge.LinearAttention(input_meta=…, chunk_mode=…, decay_mode=…, merge_mode=…)
    o, final_state = attn(q=q, k=k, v=v, g=g, output_final_state=True)

Arrays are NumPy's or PyTorch's; neither is needed to import this package, and importing it compiles and loads nothing.
`forge.variants` are ready-made variants, `forge.ops` operators with flash-linear-attention's names and arguments,
`forge.nn` PyTorch modules of them; `forge.fla` puts them under an installed flash-linear-attention, and
`forge.integrations.transformers` under models of transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _functions
from ._c import CompileError, Error, InternalError, PerformanceWarning, RuntimeError  # noqa: A004
from ._compose import compose
from ._functions import *  # noqa: F403
from ._package import build
from ._tensor import Tensor
from ._types import ConstExpr, DType, SymbTensor, bfloat16, float16, float32, float64, int32, int64
from ._version import __version__ as __version__
from .attention import Attention
from .linear_attention import LinearAttention

if TYPE_CHECKING:
    from . import distributed, fla, integrations, nn, ops, variants
    from ._search import SearchReport, search

__all__ = [
    "Attention", "CompileError", "ConstExpr", "DType", "Error", "InternalError", "LinearAttention",
    "PerformanceWarning", "RuntimeError", "SearchReport", "SymbTensor", "Tensor", "bfloat16", "build", "compose",
    "distributed", "fla", "float16", "float32", "float64", "int32", "int64", "integrations", "nn", "ops", "search",
    "variants",
]  # fmt: skip
__all__ += _functions.__all__


def __getattr__(name: str) -> Any:
    if name in (
        "distributed",
        "fla",
        "integrations",
        "nn",
        "ops",
        "variants",
    ):  # forge.ops imports PyTorch where there is one
        import importlib

        return importlib.import_module(f".{name}", __name__)
    if name in ("SearchReport", "search"):  # they read command lines, too
        from . import _search

        return getattr(_search, name)
    from ._suggest import suggestion

    raise AttributeError(f"module 'forge' has no attribute {name!r}{suggestion(name, __all__)}")


def __dir__() -> list[str]:
    return [*sorted(__all__), "__version__"]
