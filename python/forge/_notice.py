"""A notice on the terminal while a first compilation takes its time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 1.0  #: what comes sooner needs no notice


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Shows the text on the last line of the terminal once the block has taken a second, and removes it at the end.
    Only where somebody looks: standard error is a terminal, and neither CI nor FORGE_NOTICES=0 is set."""
    stream = sys.stderr
    if stream is None or not _is_wanted(stream):
        yield
        return
    shown = threading.Event()

    def show() -> None:
        stream.write(f"\r{_fitting(text)}")
        stream.flush()
        shown.set()

    timer = threading.Timer(SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it may be writing
        if shown.is_set():
            stream.write("\r\x1b[K")
            stream.flush()


def _is_wanted(stream: object) -> bool:
    if os.environ.get("FORGE_NOTICES", "1") == "0" or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def _fitting(text: str) -> str:
    """On one line, which is all that can be removed."""
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0: the terminal does not know
    except (AttributeError, OSError, ValueError):
        width = 80
    return text if len(text) < width else text[: max(0, width - 2)] + "…"
