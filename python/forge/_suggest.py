"""What users may have meant by a name that there is not."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'beta'?" for 'bata'; nothing where no known name is near."""
    import difflib  # when something went wrong: importing Forge should not take its time

    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""
