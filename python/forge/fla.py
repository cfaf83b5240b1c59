"""Forge under an installed flash-linear-attention: its layers and models train and run unchanged, on Forge's kernels.

    forge.fla.patch()                       # from now on; forge.fla.unpatch() takes it back
    with forge.fla.patched(): …             # or for a while

`patch` puts forge.ops' functions in the place of FLA's of the same name, in `fla.ops` and wherever a module of FLA has
imported them (fla.layers, fla.models), now or later. Shapes, types and conventions are FLA's. FLA's other operators
stay as they are: the logger "forge" lists them. A call that Forge refuses before anything of it ran goes to FLA's own
function, and the logger says why, once.

On a CPU, where FLA has no kernels, the operators are Forge's alone; FLA's layers need Triton for their norms and
convolutions there all the same. Importing this module loads neither PyTorch nor FLA.
"""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from typing import Any

from . import _c
from ._patch import Patch, log

__all__ = ["patch", "patched", "unpatch"]

#: Where FLA has functions that `fla.ops` itself does not list; not all versions have all.
_MORE_HOMES = ("fla.ops.hgrn", "fla.ops.gated_delta_product")

_patch = Patch("forge.fla", "fla", "FLA")


def patch() -> tuple[str, ...]:
    """Puts Forge under FLA and returns the names of the operators that are Forge's now. Again, it does the same for
    what was imported meanwhile in other ways. ImportError without FLA, PyTorch or Forge's library."""
    from . import ops

    _c.library()
    fla = _imported("fla")
    homes = [_imported("fla.ops"), *(_imported(name) for name in _MORE_HOMES if importlib.util.find_spec(name))]
    with _patch.lock:
        names = []
        for name in sorted(ops.__all__):
            for theirs in [vars(home)[name] for home in homes if callable(vars(home).get(name))]:
                names.append(name)
                _patch.stand_in(theirs, getattr(ops, name), name)
        before = _patch.active
        changed = _patch.put()
        if changed or not before:
            alone = sorted(set(getattr(homes[0], "__all__", ())) - set(names))
            log.info("forge.fla: %d operators of FLA %s are Forge's now (in %d modules); left alone: %s",
                     len(set(names)), getattr(fla, "__version__", ""), changed,
                     ", ".join(alone) or "none")  # fmt: skip
        return tuple(dict.fromkeys(names))


def unpatch() -> None:
    """Gives FLA's modules their own functions back; those that were imported meanwhile, too. Without a patch it does
    nothing. What others keep of the functions calls FLA's from now on."""
    _patch.take_back()


def patched() -> AbstractContextManager[tuple[str, ...]]:
    """`patch`, and in the end what was before it: within another patch that one goes on."""
    return _patch.during(patch)


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):  # something that FLA itself wants
            raise
        raise ImportError("forge.fla needs flash-linear-attention: pip install flash-linear-attention") from missing
