"""Forge under libraries of models. forge.integrations.transformers: Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import transformers

__all__ = ["transformers"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        return importlib.import_module(f".{name}", __name__)
    from .._suggest import suggestion

    raise AttributeError(f"module 'forge.integrations' has no attribute {name!r}{suggestion(name, __all__)}")
