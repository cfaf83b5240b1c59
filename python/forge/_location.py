"""Places in the user's program, and mistakes reported at them."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable

from . import _c

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FOREIGN = (f"{os.sep}torch{os.sep}", f"{os.sep}numpy{os.sep}")


class Location:
    """A place in the user's program."""

    __slots__ = ("column", "file", "line")

    def __init__(self, file: str, line: int, column: int = 1) -> None:
        self.file, self.line, self.column = file, line, column

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        file = re.sub(r'[\x00-\x1f\x7f"\\]', lambda c: f"\\x{ord(c[0]):02x}", self.file)
        return f' loc("{file}":{self.line}:{self.column})'

    @classmethod
    def of_function(cls, fn: Callable[..., object]) -> Location:
        code = getattr(fn, "__code__", None)
        return cls(code.co_filename, code.co_firstlineno) if code else cls("<unknown>", 1)

    @classmethod
    def of_caller(cls) -> Location:
        """The innermost frame outside of Forge, PyTorch and NumPy."""
        frame = sys._getframe(1)
        while frame.f_back and (
            frame.f_code.co_filename.startswith(_HERE) or any(part in frame.f_code.co_filename for part in _FOREIGN)
        ):
            frame = frame.f_back
        column = None
        if sys.version_info >= (3, 11):
            for at, (_, _, start, _) in enumerate(frame.f_code.co_positions()):
                if at == frame.f_lasti // 2:
                    column = start
                    break
        return cls(frame.f_code.co_filename, frame.f_lineno, (column or 0) + 1)


def error(where: Location, message: str) -> _c.CompileError:
    """A mistake of the user's at a place."""
    message = message.removeprefix("error: ")
    return _c.CompileError(f"{where}: error: {message}")


def number_text(value: float) -> str:
    """A number in the text form."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
