"""Small PyTorch modules for the zoo: projections, short convolution, gates, one of forge.ops, output norm.

    layer = forge.nn.GatedDeltaNet(256, heads=4)          # x [B, T, 256] -> [B, T, 256]
    o = layer(x)
    o, state = layer(x, return_state=True)                # and layer(later, state) goes on from there

Each is its paper's layer in the few lines that tell it from the others; `Layer` is what they share, and a base for your
own: `LinearAttention`, `RetNet`, `GLA`, `HGRN2`, `RWKV6`, `Mamba2`, `DeltaNet`, `GatedDeltaNet`, `KDA`. They run and
train on the CPU and on a GPU, and need nothing but PyTorch. Importing this module does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._suggest import suggestion

if TYPE_CHECKING:
    from ._layers import (
        GLA,
        HGRN2,
        KDA,
        RWKV6,
        DeltaNet,
        GatedDeltaNet,
        Layer,
        LinearAttention,
        Mamba2,
        RetNet,
        State,
    )

__all__ = [
    "GLA", "HGRN2", "KDA", "RWKV6", "DeltaNet", "GatedDeltaNet", "Layer", "LinearAttention", "Mamba2", "RetNet",
    "State",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'forge.nn' has no attribute {name!r}{suggestion(name, __all__)}")
    try:
        from . import _layers
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ImportError("forge.nn needs PyTorch: pip install torch") from missing
    return getattr(_layers, name)


def __dir__() -> list[str]:
    return sorted(__all__)
