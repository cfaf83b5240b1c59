"""Links of the built site: what is inside must be there, down to the heading; what is outside must look like an
address. It asks nobody.

python3 docs/site/check_links.py build/docs/html
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, file: Path):
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {"", "top"}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = dict(attrs)
        self.anchors |= {given[a] for a in ("id", "name") if given.get(a)}
        self.links |= {given[a] for a in ("href", "src") if given.get(a)}


def fault(link: str, file: Path, pages: dict[Path, Page]) -> str:
    """Why a link of a page is wrong, or nothing."""
    parts = urlsplit(link)
    if parts.scheme in ("data", "mailto") or link == "#":
        return ""
    if parts.scheme or parts.netloc:
        right = (
            parts.scheme in ("", "http", "https")
            and re.fullmatch(r"[\w-]+(\.[\w-]+)+(:\d+)?", parts.netloc)
            and " " not in link
        )
        return "" if right else "is no address"
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.is_file():
        return "is not there"
    known = pages.get(target)
    return "" if known is None or unquote(parts.fragment) in known.anchors else "has no such heading"


def main(root: Path) -> int:
    pages = {file.resolve(): Page(file) for file in sorted(root.rglob("*.html")) if "_static" not in file.parts}
    generated = ("_modules", "genindex", "search")
    count, faults = 0, []
    for file, page in pages.items():
        for link in sorted(page.links):
            count += 1
            if (why := fault(link, file, pages)) and not file.name.startswith(generated):
                faults.append(f"{file.relative_to(root.resolve())}: {link} {why}")
    print("\n".join([*faults, f"{len(pages)} pages, {count} links, {len(faults)} wrong"]))
    return int(bool(faults) or len(pages) < 10)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
