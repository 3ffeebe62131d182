"""The language of filters: text to a tree of conditions, without evaluating anything.

::

    label = dog and width > 2000 and not boxes
    key ~ "2019/*" or nbytes > 1MB or problem in (unreadable, repaired)

    query  := all {"or" all}                     value := word | "quoted text"
    all    := one {["and"] one}                  words next to each other: both
    one    := "not" one | "(" query ")" | term
    term   := name op value | name ["not"] "in" "(" value {"," value} ")" | name "is" ["not"] "missing" | value
    op     := "=" "==" "!=" "<" "<=" ">" ">=" "~" "!~"

Nothing of a query is run: there are no calls, no attributes and no regular expressions. Length and depth have limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from penstock.errors import ArgumentError

__all__ = [
    "MAX_QUERY",
    "AllOf",
    "AnyOf",
    "Condition",
    "FieldTest",
    "IsMissing",
    "Negation",
    "Operand",
    "QueryError",
    "parse_query",
    "quote",
]  # fmt: skip

MAX_QUERY: Final = 4000
"""Most characters of a query."""

_MAX_DEPTH: Final = 50
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<op>==|!=|<=|>=|!~|[=<>~])|(?P<mark>[(),])"""
    r"""|(?P<word>(?:[^\s"'()<>=~!,]|!(?![=~]))+)|(?P<wrong>\S))""",
    re.DOTALL,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "missing"})

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~"]


class QueryError(ArgumentError):
    """A filter or an order that cannot be read.

    Parameters
    ----------
    message : str
        What is wrong.
    at : int
        The character of the query at which it is wrong, from 0.
    """

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Operand:
    """A word or a quoted text of a query, and where it begins."""

    text: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class FieldTest:
    """A comparison; without an operator: the name alone, or a word to search for."""

    name: Operand
    operator: Operator | None = None
    values: tuple[Operand, ...] = ()
    """One; several: equal to any of them (``in``)."""
    is_quoted: bool = False
    """Of a name alone: whether it was quoted, and so is text to search for."""


@dataclass(frozen=True, slots=True)
class IsMissing:
    """Whether a record has no value."""

    name: Operand


@dataclass(frozen=True, slots=True)
class Negation:
    """The records for which ``node`` is false."""

    node: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """The records for which every one is true."""

    nodes: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The records for which at least one is true."""

    nodes: tuple[Condition, ...]


Condition = FieldTest | IsMissing | Negation | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class _QueryToken:
    kind: str
    text: str
    at: int


def parse_query(query: str) -> Condition | None:
    """The tree of a filter; None for an empty one.

    Raises
    ------
    QueryError
        If it is not of the language, longer than :data:`MAX_QUERY`, or nested too deeply.
    """
    if len(query) > MAX_QUERY:
        raise QueryError(f"a filter must have at most {MAX_QUERY} characters, got {len(query)}", MAX_QUERY)
    parser = _QueryParser(_split(query))
    return None if parser.next.kind == "end" else parser.parse()


def quote(text: str) -> str:
    """A text as it is written in a filter: as it is if it is one word, else in quotes."""
    found = _TOKEN.fullmatch(text)
    if found is not None and found["word"] == text and text.lower() not in _KEYWORDS:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _split(query: str) -> list[_QueryToken]:
    tokens = []
    at = 0
    while found := _TOKEN.match(query, at):
        kind = found.lastgroup or ""
        text, begin, at = found[kind], found.start(kind), found.end()
        if kind == "wrong":
            raise QueryError("this quote is not closed", begin)
        if kind == "quoted":
            text = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        elif kind == "word" and text.lower() in _KEYWORDS:
            kind, text = "keyword", text.lower()
        tokens.append(_QueryToken(kind, text, begin))
    return [*tokens, _QueryToken("end", "", len(query))]


class _QueryParser:
    """Reads tokens from the left; one method for each rule of the grammar."""

    def __init__(self, tokens: list[_QueryToken]) -> None:
        self._tokens, self._place, self._depth = tokens, 0, 0

    @property
    def next(self) -> _QueryToken:
        return self._tokens[self._place]

    def parse(self) -> Condition:
        node = self._any()
        if self.next.kind != "end":
            raise QueryError(f"{self.next.text!r:.100} is not expected here", self.next.at)
        return node

    def _take(self, *texts: str) -> bool:
        """Go past the next token, if it is one of these marks or keywords."""
        if self.next.kind in {"keyword", "mark"} and self.next.text in texts:
            self._place += 1
            return True
        return False

    def _any(self) -> Condition:
        nodes = [self._all()]
        while self._take("or"):
            nodes.append(self._all())
        return nodes[0] if len(nodes) == 1 else AnyOf(tuple(nodes))

    def _all(self) -> Condition:
        nodes = [self._one()]
        while self._take("and") or self.next.kind in {"word", "quoted"} or self._is_at("not", "("):
            nodes.append(self._one())
        return nodes[0] if len(nodes) == 1 else AllOf(tuple(nodes))

    def _is_at(self, *texts: str) -> bool:
        return self.next.kind in {"keyword", "mark"} and self.next.text in texts

    def _one(self) -> Condition:
        if not self._is_at("not", "("):
            return self._term()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise QueryError(f"a filter must be nested at most {_MAX_DEPTH} deep", self.next.at)
        if self._take("not"):
            node: Condition = Negation(self._one())
        else:
            opened = self.next.at
            self._take("(")
            node = self._any()
            if not self._take(")"):
                raise QueryError("this parenthesis is not closed", opened)
        self._depth -= 1
        return node

    def _term(self) -> Condition:
        is_quoted = self.next.kind == "quoted"
        name = self._value("a name or a word to search for")
        if self.next.kind == "op":
            operator = self.next.text
            self._place += 1
            given: Operator = "=" if operator == "==" else operator  # type: ignore[assignment]  # of the pattern
            return FieldTest(name, given, (self._value(f"a value after {operator}"),))
        if self._take("is"):
            is_negated = self._take("not")
            if not self._take("missing"):
                raise QueryError("'is' must be followed by missing, or not missing", self.next.at)
            return Negation(IsMissing(name)) if is_negated else IsMissing(name)
        if self._take("in"):
            return self._among(name)
        if self._is_at("not") and self._tokens[self._place + 1].text == "in":
            self._place += 2
            return Negation(self._among(name))
        return FieldTest(name, is_quoted=is_quoted)

    def _among(self, name: Operand) -> Condition:
        if not self._take("("):
            raise QueryError("'in' must be followed by values in parentheses: in (a, b)", self.next.at)
        values = [self._value("a value")]
        while self._take(","):
            values.append(self._value("a value"))
        if not self._take(")"):
            raise QueryError("values of 'in' must be separated by commas and end with )", self.next.at)
        return FieldTest(name, "=", tuple(values))

    def _value(self, what: str) -> Operand:
        token = self.next
        if token.kind not in {"word", "quoted"}:
            found = "the end" if token.kind == "end" else repr(token.text)
            hint = "; put it in quotes to use it as text" if token.kind == "keyword" else ""
            raise QueryError(f"{what} must be here, got {found}{hint}", token.at)
        self._place += 1
        return Operand(token.text, token.at)
