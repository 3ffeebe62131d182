"""Sphinx's settings for the site (``make site``).

The source folder is the root of the repository: links between pages, and from pages to files, are those that GitHub
follows. Which pages there are, and in which order, is in ``_ext/structure.py``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
sys.path.insert(0, str(ROOT))

import penstock  # noqa: E402  # after the path is set
from docs._ext import benchmarks, reference, search, structure  # noqa: E402  # after the path is set

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "penstock"
author = "the penstock developers"
release = version = penstock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**", "benches/results/*.md", *(f"{page}.md" for page in structure.CHILDREN["docs/project"])]
include_patterns += ["ARCHITECTURE.md", "penstock/explain/pages/*.md"]
exclude_patterns = [
    *(".*", "target", "site", "native", "tests", "examples", "scripts", "requirements"),
    *(
        "dist",
        "shared",
        "benches/peers",
        "benches/planted",
        "docs/_*",
        "docs/problems",
        "docs/reference/examples",
        "**/__pycache__",
    ),
]
nitpicky = True
# Names of torch, NumPy and Python, to which nothing is linked offline, and descriptions of types in words.
nitpick_ignore_regex = [("py:.*", r"(?!penstock\b).*"), ("py:.*", r".* .*")]
suppress_warnings = ["autodoc.mocked_object"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
templates_path = ["_templates"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 60
python_display_short_literal_types = True
viewcode_line_numbers = True
add_module_names = False

html_theme = "pydata_sphinx_theme"
html_title = "penstock"
html_static_path = ["_static"]
html_css_files = ["penstock.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # from files, a page may not read another one
html_last_updated_fmt = None
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "collapse_navigation": True,
    "search_bar_text": "Search",
}
html_sidebars = {"docs/index": []}
html_additional_pages = {"index": "first.html"}


def write_generated_pages(app: Sphinx) -> None:
    """Write the pages of the reference and of benchmarks before Sphinx looks which pages there are."""
    del app
    reference.write_pages(ROOT / "docs" / "reference" / "api")
    benchmarks.write_pages(RESULTS, ROOT / "docs" / "benchmarks")


def read_source(app: Sphinx, page: str, text: list[str]) -> None:
    """Give a page what only the site has: charts, generated lists, its place in the navigation."""
    text[0] = structure.mend_links(page, text[0])
    if page == "docs/benchmarks":
        text[0] = text[0].replace(
            "## How it was measured", benchmarks.make_summary(RESULTS) + "\n## How it was measured"
        )
    if page == "docs/reference/index":
        text[0] += reference.list_packages()
    text[0] = structure.add_toctree(page, text[0], app.env.found_docs)


def resolve_internal_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Show as text a name of penstock that exists and is not public; it has no page to link to."""
    del app, env
    target = str(node.get("reftarget", ""))
    context = (str(node.get("py:module") or ""), str(node.get("py:class") or ""))
    return content if node.get("refdomain") == "py" and reference.is_known(target, context) else None


def add_search(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: nodes.document | None
) -> None:
    """Give the page of results the ranking of ``search.js``, and the pages that it ranks."""
    del template, context, doctree
    if page == "search":
        for script in ("pages.js", "search.js"):
            app.add_js_file(script, loading_method="defer")


def keep_public_bases(app: Sphinx, name: str, obj: object, options: object, bases: list[type]) -> None:
    """Leave out private base classes."""
    del app, name, obj, options
    bases[:] = [base for base in bases if not getattr(base, "__name__", "").startswith("_")] or [object]


def escape_initials(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep a name with an initial from being read as an item of a list: "E. Cubuk et al.: ..."."""
    del app, what, name, obj, options
    lines[:] = [re.sub(r"^([A-Z]\. [A-Z])", r"\\\1", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect what the site adds to Sphinx."""
    app.connect("builder-inited", write_generated_pages)
    app.connect("source-read", read_source)
    app.connect("missing-reference", resolve_internal_name)
    app.connect("html-page-context", add_search)
    app.connect("build-finished", search.write_pages)
    app.connect("viewcode-find-source", lambda _, module: reference.find_stub_source(module))
    app.connect("autodoc-process-bases", keep_public_bases)
    app.connect("autodoc-process-docstring", escape_initials)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
