"""Parses XML of unknown origin: no entities of its own, nothing fetched, bounded depth and size; lines are kept."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

__all__ = ["XmlElement", "parse_xml"]

_MAX_DEPTH: Final = 64
_MAX_NBYTES: Final = 1 << 30
_MAX_ELEMENTS: Final = 5_000_000
"""Some 2 GiB."""
_DECLARED: Final = re.compile(rb"""\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([\w.:-]{1,40})["']""")
_WIDE: Final = {
    **dict.fromkeys(("gb2312", "gbk", "gb18030"), "gb18030"),
    **dict.fromkeys(("shift_jis", "cp932"), "cp932"),
    **dict.fromkeys(("euc_kr", "cp949"), "cp949"),
    **{name: name for name in ("big5", "big5hkscs", "cp950", "euc_jp", "iso2022_jp")},
}
"""Encodings of several bytes a character, which expat does not know, and the largest of each family."""


@dataclass(slots=True)
class XmlElement:
    """An element: its name, attributes, text, line (from 1) and children."""

    tag: str
    line: int
    attributes: dict[str, str]
    children: list[XmlElement] = field(default_factory=list)
    text: str = ""

    def find(self, path: str) -> XmlElement | None:
        """Return the first element below this one at a path of tags, such as "size/width"."""
        tag, _, rest = path.partition("/")
        for child in self.children:
            if child.tag == tag and (found := child.find(rest) if rest else child) is not None:
                return found
        return None

    def find_all(self, tag: str) -> Iterator[XmlElement]:
        """The children of a name."""
        return (child for child in self.children if child.tag == tag)

    def find_text(self, path: str) -> str | None:
        """Return the text at a path, without spaces around it; None if there is no such element, or it is empty."""
        found = self.find(path)
        return (found.text.strip() or None) if found is not None else None


class _Refused(Exception):  # noqa: N818  # never leaves this module
    pass


def parse_xml(content: bytes) -> XmlElement:
    """Return the root element of a document, in any encoding that it declares.

    Raises ValueError if it is no XML, declares entities or anything else, refers to declarations elsewhere, or is
    nested too deep. Says the line.
    """
    if len(content) > _MAX_NBYTES:
        raise ValueError(f"it must have at most {_MAX_NBYTES} bytes, got {len(content)}")
    content, encoding = _decode_wide(content)
    parser = expat.ParserCreate(encoding)
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.buffer_text = True
    tree = _TreeBuilder(parser)
    parser.StartElementHandler, parser.EndElementHandler = tree.start, tree.end
    parser.CharacterDataHandler = tree.add_text
    parser.StartDoctypeDeclHandler = _check_type
    parser.EntityDeclHandler = _refuse_declarations
    parser.ExternalEntityRefHandler = _refuse_external
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is no XML: {error}") from error
    except _Refused as error:
        raise ValueError(f"line {parser.CurrentLineNumber}: {error}") from None
    except (LookupError, UnicodeError, RecursionError) as error:  # an encoding that Python does not know
        raise ValueError(f"it is no XML: {error}") from error
    return tree.top.children[0]


class _TreeBuilder:
    """Makes the elements of a document, of which ``top`` holds the root."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        self.top = XmlElement("", 0, {})
        self._open = [self.top]
        self._texts: list[list[str]] = [[]]
        self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Begin an element."""
        self._count += 1
        if self._count > _MAX_ELEMENTS:
            raise _Refused(f"it must have at most {_MAX_ELEMENTS:,} elements")
        if len(self._open) > _MAX_DEPTH:
            raise _Refused(f"elements must be nested at most {_MAX_DEPTH} deep")
        element = XmlElement(tag, self._parser.CurrentLineNumber, attributes)
        self._open[-1].children.append(element)
        self._open.append(element)
        self._texts.append([])

    def end(self, _tag: str) -> None:
        """End the innermost element."""
        self._open.pop().text = "".join(self._texts.pop())

    def add_text(self, text: str) -> None:
        """Add to the text of the innermost element."""
        self._texts[-1].append(text)


def _refuse_declarations(*_what: object) -> None:
    raise _Refused("it must not declare entities, nor anything else of its own")


def _refuse_external(*_what: object) -> int:
    raise _Refused("it must not refer to other documents")


def _check_type(_name: str, system: str | None, public: str | None, has_declarations: bool) -> None:
    # what such documents declare would be left out without a word where the document uses it
    if system is not None or public is not None:
        _refuse_external()
    if has_declarations:
        _refuse_declarations()


def _decode_wide(content: bytes) -> tuple[bytes, str | None]:
    """Return the document in UTF-8, and this name, if it declares an encoding that expat does not know."""
    declared = _DECLARED.match(content)
    name = declared[1].decode() if declared else "utf-8"
    try:
        known = _WIDE.get(codecs.lookup(name).name)
    except LookupError:  # which expat says
        known = None
    if known is None:
        return content, None
    try:
        return content.decode(known).encode(), "utf-8"
    except UnicodeDecodeError as error:
        raise ValueError(f"it must be text in {name}, which it declares, got other bytes at {error.start}") from error
