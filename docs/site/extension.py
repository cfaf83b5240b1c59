"""What the site has that Sphinx does not make by itself: the gallery, and links from the guides to files that are no
pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORGE = Path(os.environ.get("FORGE_COMMAND", ROOT / "build" / "forge"))

PAGE = """# {name}

`{recurrence}`

{source}. Called as `forge.variants.{name}(…)` in Python, `forge::variants::{name}()` in C++, `forge run {name}` as a command.

## Its definition

```{{literalinclude}} /{file}
:language: cpp
```

## What becomes of it

The passes' result, each operation marked by what it waits for ([how it is made](../../internals.md)), and the map of the states over
a chunk, as `forge explain {name}` prints them:

```text
{program}
```

On an H200 (`forge explain {name} --on h200`), for one sequence of 32768 tokens and 32 heads:

```text
{schedule}
```
"""

GALLERY = """# Gallery

The ready-made variants: each is a definition of some lines (`variants/`), of which the compiler knows nothing else. `forge list`
prints this table.

| variant | recurrence | source |
|---|---|---|
{rows}

```{{toctree}}
:hidden:

{names}
```
"""


def _run(*words: str) -> str:
    return subprocess.run([FORGE, *words], check=True, capture_output=True, text=True, encoding="utf-8").stdout


def _between(text: str, begin: str, end: str) -> str:
    """The lines of an explanation from one heading up to another."""
    start = text.index(begin)
    return text[start : text.index(end, start)].strip()


def _page(variant: dict) -> str:
    # A GPU's schedule does not depend on the machine that builds the site.
    explained = _run("explain", variant["name"], "--on", "h200", "--T", "32768", "--H", "32")
    file = next((ROOT / "variants").rglob(f"{variant['name']}.cpp")).relative_to(ROOT)
    return PAGE.format(
        **variant,
        file=file,
        program=_between(explained, "// Optimised, with its slices.", "\n// Upper bounds"),
        schedule=_between(explained, "// The engine:", "\n// Kernel"),
    )


def write_gallery(app) -> None:
    """docs/site/gallery/*.md, from the command; left alone where nothing changed, so that Sphinx reads only what
    did."""
    folder = ROOT / "docs" / "site" / "gallery"
    folder.mkdir(exist_ok=True)
    variants = json.loads(_run("list", "--json"))
    cell = lambda text: text.replace("|", "\\|")  # noqa: E731
    rows = "\n".join(
        f"| [{v['name']}]({v['name']}.md) | {cell(v['recurrence'])} | {cell(v['source'])} |" for v in variants
    )
    pages = {v["name"]: _page(v) for v in variants} | {
        "index": GALLERY.format(rows=rows, names="\n".join(v["name"] for v in variants))
    }
    for file in folder.glob("*.md"):
        if file.stem not in pages:
            file.unlink()
    for name, text in pages.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def lists_in_docstrings(app, what, name, thing, options, lines: list[str]) -> None:
    """Lines `name, name      text`, as our docstrings have them for parameters, are a list; what is indented below one goes
    on with it."""
    within = False
    for i, line in enumerate(lines):
        if found := re.fullmatch(r"(\w+(?:, \w+)*) {2,}(\S.*)", line):
            names = ", ".join(f"``{name}``" for name in found[1].split(", "))
            lines[i] = f"* {names}: {found[2]}"
            within = True
        elif within and line.startswith("  "):
            lines[i] = f"  {line.strip()}"
        else:
            within = False


def setup(app) -> dict:
    app.connect("autodoc-process-docstring", lists_in_docstrings)
    app.connect("builder-inited", write_gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
