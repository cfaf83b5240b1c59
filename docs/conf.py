"""The documentation as a site: Sphinx with MyST (Markdown, notebooks), autodoc (docstrings) and breathe (doxygen, for
the headers).

The source folder is the repository, so that README.md, docs/*.md and their links are the same here as everywhere.
scripts/docs builds it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs" / "site")]

from extension import setup as setup  # noqa: E402

import forge  # noqa: E402

project, author, copyright = "Forge", "the authors of Forge", "the authors of Forge"  # noqa: A001
version = release = forge.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "breathe"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/notebooks/*.ipynb",
    "docs/site/gallery/*.md",
]
exclude_patterns = ["build*", "**/.*", "tests"]
nitpicky = False

html_theme = "furo"
html_title = f"Forge {release}"
html_extra_path = ["site/start"]
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
default_role = "code"

# Every header has a part of the namespace, which is then declared several times.
suppress_warnings = ["duplicate_declaration.cpp"]

breathe_projects = {"forge": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "forge"
breathe_domain_by_file_pattern = {
    "*forge_c.h": "c",
    "*forge_call.h": "c",
    "*forge_rt.h": "c",
    "*.h": "cpp",
    "*.def": "cpp",
}
