"""How the API reference reads the package: an extension of griffe, named in mkdocs.yml.

The comments with `#:` above attributes are their docstrings, roles such as `:class:` are links, and
examples with `>>>` are code wherever they stand.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = re.compile(r"^>>> .+?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r":(class|func|meth|mod):`~?([\w.]+)`")


def _link(role: re.Match[str]) -> str:
    kind, path = role.groups()
    # A module has no place of its own, and of other packages nobody here knows the address.
    if kind == "mod" or not path.startswith("paceline."):
        return f"`{path}`"
    return f"[`{path.rpartition('.')[2]}`][{path}]"


class Docstrings(griffe.Extension):
    """Completes docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Read the comment of an attribute, and link names."""
        if obj.is_attribute and obj.docstring is None and obj.lineno is not None:
            file: Path = obj.filepath  # type: ignore[assignment] # a list for namespaces only
            above = reversed(obj.lines_collection[file][: obj.lineno - 1])
            lines = itertools.takewhile(lambda line: line.lstrip().startswith("#:"), above)
            if text := "\n".join(line.strip()[2:].strip() for line in reversed(list(lines))):
                obj.docstring = griffe.Docstring(text, parent=obj)
        if obj.docstring is not None:
            text = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = ROLE.sub(_link, text)
