"""How `make docs` builds the site."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "topk-studies"
author = "The topk-studies maintainers"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "loss_pictures",
    "native_mathml",
    "pages",
]
exclude_patterns = ["_build", "examples", "extensions"]

myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 3  # the depth to which headings can be linked to

html_theme = "furo"
html_title = "topk-studies"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "native_mathml"
html_show_copyright = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
maximum_signature_line_length = 80  # longer ones have a line for each parameter, as narrow screens need
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# Annotations name classes of torch, NumPy and our own inner modules, which have no page; functions and methods that
# docstrings refer to must have one.
nitpicky = True
nitpick_ignore_regex = [
    ("py:(class|exc|obj|data|mod|attr)", ".*"),
    ("py:func", r"smoke_arm|topk_platform\.running\..*"),
]
