"""A hook of mkdocs: no page of the site may load anything from elsewhere.

The theme's offline plugin lets pages load one script from unpkg.com, which search needs when the site is opened from a folder;
docs/scripts/worker-from-file.js does its work instead. Any other script, style, picture or font from elsewhere stops the build.
"""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

SHIM = "https://unpkg.com/iframe-worker/shim"
OURS = "scripts/worker-from-file.js"
STYLE = r"""link(?=[^>]*rel="?(?:stylesheet|icon|preload|preconnect))"""
LOADED = re.compile(rf"""<(?:script|img|iframe|{STYLE})[^>]*?(?:src|href)="?(https?:[^"\s>]+)""")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    return checked(output.replace(SHIM, get_relative_url(OURS, page.url)), page.url)


def on_post_template(output_content: str, template_name: str, **_: Any) -> str:
    # 404.html, the one template beside the sitemap, is served from any depth: its addresses are absolute.
    return checked(output_content.replace(SHIM, "/" + OURS), template_name) if template_name.endswith(".html") else output_content


def checked(html: str, name: str) -> str:
    """The page, if it loads nothing from elsewhere."""
    if strangers := LOADED.findall(html):
        raise PluginError(f"{name} loads {', '.join(strangers)}; put a copy into docs/ instead, so that the site works offline.")
    return html
