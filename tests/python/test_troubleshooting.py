"""What docs/troubleshooting.md quotes is what Forge says."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_quoted_messages_exist():
    sources = [
        p
        for folder in ("src", "tools", "python/forge")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".cpp", ".h", ".def", ".py")
    ]
    said = re.sub(
        r'"\s*\n\s*f?"', "", "\n".join(p.read_text(encoding="utf-8") for p in sources)
    )  # literals that follow each other are one
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^### .*?`([^`]+)`", page, re.M) + re.findall(r"`([^`\n]*…[^`\n]*)`", page)
    assert len(quoted) > 15
    parts = [
        part.strip(" '") for message in quoted if not message.startswith(("attn.", "[")) for part in message.split("…")
    ]
    missing = [part for part in parts if len(part) > 7 and part not in said]
    assert not missing
