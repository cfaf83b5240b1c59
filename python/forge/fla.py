"""Forge under an installed flash-linear-attention: its layers and models train and run unchanged, on Forge's kernels.

    forge.fla.patch()                       # from now on; forge.fla.unpatch() takes it back
    with forge.fla.patched(): …             # or for a while

`patch` puts forge.ops' functions in the place of FLA's of the same name, in `fla.ops` and wherever a module of FLA has
imported them (fla.layers, fla.models), now or later. Shapes, types and conventions are FLA's. FLA's other operators,
fused_recurrent_* among them (which its layers take for short sequences), stay as they are: the logger "forge" lists
them. A call that Forge refuses before anything of it ran goes to FLA's own function, and the logger says why, once.

On a CPU, where FLA has no kernels, the operators are Forge's alone; FLA's layers need Triton for their norms and
convolutions there all the same. Importing this module loads neither PyTorch nor FLA.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _c

__all__ = ["patch", "patched", "unpatch"]

#: Where FLA has functions that `fla.ops` itself does not list; not all versions have all.
_MORE_HOMES = ("fla.ops.hgrn", "fla.ops.gated_delta_product")
#: What Forge says of a call that it does not take, before any of it ran. Failures of launches are no refusals.
_REFUSALS = (TypeError, ValueError, NotImplementedError, _c.CompileError, _c.RuntimeError)

_log = logging.getLogger("forge")
_lock = threading.RLock()
_active = False
#: Of every function that was ever put in FLA's place, by its id: (it, FLA's own).
_made: dict[int, tuple[Any, Any]] = {}
#: … and by the id of FLA's own, which the entry above keeps alive.
_ours: dict[int, Any] = {}
_said: set[tuple[str, str]] = set()


def patch() -> tuple[str, ...]:
    """Puts Forge under FLA and returns the names of the operators that are Forge's now. Again, it does the same for
    what was imported meanwhile in other ways. ImportError without FLA, PyTorch or Forge's library."""
    global _active
    from . import ops

    _c.library()
    fla = _imported("fla")
    homes = [_imported("fla.ops"), *(_imported(name) for name in _MORE_HOMES if importlib.util.find_spec(name))]
    with _lock:
        names = []
        for name in sorted(ops.__all__):
            for theirs in [vars(home)[name] for home in homes if callable(vars(home).get(name))]:
                names.append(name)
                if id(theirs) not in _made and id(theirs) not in _ours:
                    ours = _in_place_of(theirs, getattr(ops, name), name)
                    _made[id(ours)], _ours[id(theirs)] = (ours, theirs), ours
        changed = _exchange(_ours)
        if changed or not _active:
            alone = sorted(set(getattr(homes[0], "__all__", ())) - set(names))
            _log.info("forge.fla: %d operators of FLA %s are Forge's now (in %d modules); left alone: %s",
                      len(set(names)), getattr(fla, "__version__", ""), changed,
                      ", ".join(alone) or "none")  # fmt: skip
        _active = True
        return tuple(dict.fromkeys(names))


def unpatch() -> None:
    """Gives FLA's modules their own functions back; those that were imported meanwhile, too. Without a patch it does
    nothing. What others keep of the functions calls FLA's from now on."""
    global _active
    with _lock:
        _active = False
        _exchange({key: theirs for key, (_, theirs) in _made.items()})


@contextmanager
def patched() -> Iterator[tuple[str, ...]]:
    """`patch`, and in the end what was before it: within another patch that one goes on."""
    before = _active
    names = patch()
    try:
        yield names
    finally:
        if not before:
            unpatch()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):  # something that FLA itself wants
            raise
        raise ImportError("forge.fla needs flash-linear-attention: pip install flash-linear-attention") from missing


def _exchange(others: dict[int, Any]) -> int:
    """Puts others[id(x)] in the place of x in all modules of FLA; in how many of them there was one."""
    changed = 0
    for name, module in list(sys.modules.items()):
        if name != "fla" and not name.startswith("fla."):
            continue
        found = {n: others[id(x)] for n, x in list(getattr(module, "__dict__", {}).items()) if id(x) in others}
        for attribute, other in found.items():
            setattr(module, attribute, other)
        changed += bool(found)
    return changed


def _in_place_of(theirs: Callable[..., Any], ours: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What calls Forge's function, or FLA's where Forge refuses or there is no patch any more."""

    # Not the attributes: that torch.compile is to leave FLA's function out is one of them.
    @functools.wraps(theirs, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _active:
            return theirs(*args, **kwargs)
        try:
            return ours(*args, **kwargs)
        except _REFUSALS as refusal:
            if getattr(refusal, "at_launch", False):
                raise
            _say(name, refusal)
            return theirs(*args, **kwargs)

    return call


def _say(name: str, refusal: Exception) -> None:
    """Once for what differs in nothing but numbers."""
    text = f"{type(refusal).__name__}: {refusal}"
    key = name, re.sub(r"\d+", "0", text)
    if key not in _said:
        _said.add(key)
        _log.warning("forge.fla: a call of %s is left to FLA, as Forge refuses it: %s", name, text)
