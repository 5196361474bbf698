"""How Sphinx builds the site. `make docs` runs docs/site/build.py, which calls Sphinx."""

import sys
from pathlib import Path

from grd_offline import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "site"))

project = "grd-offline"
author = "The grd-offline developers"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
]
smartquotes = False  # two dashes begin an option
default_role = "code"  # docstrings write code between single backticks
suppress_warnings = ["myst.header", "config.cache", "toc.empty_glob"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = True
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

templates_path = [str(HERE / "templates")]
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = f"grd-offline {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_extra_path = [str(HERE / "_build" / "extra")]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072b2", "color-brand-content": "#0072b2"},
    "dark_css_variables": {"color-brand-primary": "#56b4e9", "color-brand-content": "#56b4e9"},
}

sphinx_gallery_conf = {
    "examples_dirs": "../tutorials",  # where build.py has put them, beside the sample
    "gallery_dirs": "tutorials",
    "filename_pattern": "plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "min_reported_time": 1,
    "parallel": 2,
}
