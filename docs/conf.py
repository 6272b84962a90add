"""How Sphinx makes a site of what tools/docs_site.py puts into build/docs/source."""

project = "topospread"
copyright = "the topospread authors"
html_title = "topospread"
html_theme = "furo"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Examples are cut short with an ellipsis, which no lexer of JSON or YAML takes.
suppress_warnings = ["misc.highlighting_failure"]
