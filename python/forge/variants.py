"""The ready-made variants, from the library: forge.variants.gated_delta_net(q=…, k=…, v=…, g=…, beta=…, scale=…).

Each is a forge.Attention; `names()` lists them. Their definitions are the C++ ones of variants/: there is no second
copy.
"""

from __future__ import annotations

from functools import cache

from . import _c
from ._suggest import suggestion
from .attention import Attention


def names() -> list[str]:
    """The variants that there are."""
    return _c.variant_names()


@cache
def _made(name: str) -> Attention:
    return Attention(_c.variant_definition(name))


def __getattr__(name: str) -> Attention:
    if name.startswith("_") or name not in _c.variant_names():
        raise AttributeError(
            f"forge.variants has no {name!r}{suggestion(name, _c.variant_names())}; it has "
            f"{', '.join(_c.variant_names())}"
        )
    return _made(name)


def __dir__() -> list[str]:
    return [*_c.variant_names(), "names"]
