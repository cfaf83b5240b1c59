"""Forge's functions in the place of another package's: what forge.fla and forge.integrations.transformers share."""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _c

#: What Forge says of a call that it does not take, before any of it ran. Failures of launches are no refusals.
_REFUSALS = (TypeError, ValueError, NotImplementedError, _c.CompileError, _c.RuntimeError)

log = logging.getLogger("forge")
#: Refusals that the log has.
said: set[tuple[str, str, str]] = set()


class Patch:
    """Functions of a package that others stand in for, in all of its modules, while the patch is active."""

    def __init__(self, label: str, package: str, owner: str) -> None:
        """`label`, `owner`: who speaks in the log, and whose the functions are. `package`: as it is imported."""
        self.label, self.package, self.owner = label, package, owner
        self.active = False
        self.lock = threading.RLock()
        #: Of every function that was ever put in another's place, by its id: (it, the other).
        self._made: dict[int, tuple[Any, Any]] = {}
        #: … and by the id of the other, which the entry above keeps alive.
        self._ours: dict[int, Any] = {}

    def stand_in(self, theirs: Callable[..., Any], ours: Callable[..., Any], name: str) -> Any:
        """What calls Forge's function, or theirs where Forge refuses or there is no patch any more. One for each of
        theirs, and of itself it is its own."""
        if id(theirs) not in self._made and id(theirs) not in self._ours:
            self.exchange_for(theirs, self._in_place_of(theirs, ours, name))
        return theirs if id(theirs) in self._made else self._ours[id(theirs)]

    def exchange_for(self, theirs: Any, other: Any) -> None:
        """`put` puts `other` in the place of theirs."""
        self._made[id(other)], self._ours[id(theirs)] = (other, theirs), other

    def put(self) -> int:
        """Puts all in the place of theirs; in how many modules."""
        self.active = True
        return self._exchange(self._ours)

    def take_back(self) -> None:
        with self.lock:
            self.active = False
            self._exchange({key: theirs for key, (_, theirs) in self._made.items()})

    @contextmanager
    def during(self, patch: Callable[[], tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
        """`patch`, and in the end what was before it: within another patch that one goes on."""
        before = self.active
        names = patch()
        try:
            yield names
        finally:
            if not before:
                self.take_back()

    def _exchange(self, others: dict[int, Any]) -> int:
        """Puts others[id(x)] in the place of x in all modules of the package; in how many of them there was one."""
        changed = 0
        for name, module in list(sys.modules.items()):
            if name != self.package and not name.startswith(self.package + "."):
                continue
            found = {n: others[id(x)] for n, x in list(getattr(module, "__dict__", {}).items()) if id(x) in others}
            for attribute, other in found.items():
                setattr(module, attribute, other)
            changed += bool(found)
        return changed

    def _in_place_of(self, theirs: Callable[..., Any], ours: Callable[..., Any], name: str) -> Callable[..., Any]:
        # Not the attributes: that torch.compile is to leave their function out is one of them.
        @functools.wraps(theirs, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.active:
                return theirs(*args, **kwargs)
            try:
                return ours(*args, **kwargs)
            except _REFUSALS as refusal:
                if getattr(refusal, "at_launch", False):
                    raise
                self._say(name, refusal)
                return theirs(*args, **kwargs)

        return call

    def _say(self, name: str, refusal: Exception) -> None:
        """Once for what differs in nothing but numbers."""
        text = f"{type(refusal).__name__}: {refusal}"
        key = self.label, name, re.sub(r"\d+", "0", text)
        if key not in said:
            said.add(key)
            log.warning("%s: a call of %s is left to %s, as Forge refuses it: %s", self.label, name, self.owner, text)
