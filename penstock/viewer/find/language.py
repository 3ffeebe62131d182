"""The language of filters: text to a tree of conditions, without evaluating anything.

::

    label = dog and width > 2000 and not boxes
    key ~ "2019/*" or nbytes > 1e6 or problem in (unreadable, repaired)

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
from typing import Final, Literal, NamedTuple

from penstock.errors import ArgumentError

__all__ = ["Combination", "Condition", "FieldTest", "Operator", "QueryError", "QueryToken", "parse_query", "quote"]

_MAX_QUERY: Final = 4000
_MAX_DEPTH: Final = 50
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<op>==|!=|<=|>=|!~|[=<>~])|(?P<mark>[(),])"""
    r"""|(?P<word>(?:[^\s"'()<>=~!,]|!(?![=~]))+)|(?P<wrong>\S))""",
    re.DOTALL,
)
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "missing"})

Operator = Literal["=", "<", "<=", ">", ">=", "~", "is missing", ""]
"""The last one: of a name alone, or of a word to search for."""


class QueryError(ArgumentError):
    """A filter or an order that cannot be read; ``at``: the character at which it is wrong, from 0."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class QueryToken(NamedTuple):
    """A word, a quoted text or a sign of a query, and where it begins."""

    text: str
    at: int = 0
    kind: str = "word"
    """"word", "quoted", "keyword", "op", "mark" or "end"."""


@dataclass(frozen=True)
class FieldTest:
    """A comparison with one of some values; a name alone that was quoted is a text to search for."""

    name: QueryToken
    operator: Operator = ""
    values: tuple[QueryToken, ...] = ()


@dataclass(frozen=True)
class Combination:
    """Conditions of which every one, or at least one, must be true; "not": one that must be false."""

    join: Literal["and", "or", "not"]
    nodes: tuple[Condition, ...]


Condition = FieldTest | Combination


def parse_query(query: str) -> Condition | None:
    """Return the tree of a filter.

    It is None for an empty one. QueryError if it is not of the language, too long or too deep.
    """
    if len(query) > _MAX_QUERY:
        raise QueryError(f"a filter must have at most {_MAX_QUERY} characters, got {len(query)}", _MAX_QUERY)
    return _QueryParser(_split(query)).parse() if query.strip() else None


def quote(text: str) -> str:
    """Return a text as it is written in a filter: as it is if it is one word, else in quotes."""
    found = _TOKEN.fullmatch(text)
    if found is not None and found["word"] == text and text.lower() not in _KEYWORDS:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _split(query: str) -> list[QueryToken]:
    tokens = []
    for found in _TOKEN.finditer(query):
        kind = found.lastgroup or ""
        text, at = found[kind], found.start(kind)
        if kind == "wrong":
            raise QueryError("this quote is not closed", at)
        if kind == "quoted":
            text = re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        elif kind == "word" and text.lower() in _KEYWORDS:
            kind, text = "keyword", text.lower()
        tokens.append(QueryToken(text, at, kind))
    return [*tokens, QueryToken("", len(query), "end")]


class _QueryParser:
    """Reads tokens from the left; one method for each rule of the grammar."""

    def __init__(self, tokens: list[QueryToken]) -> None:
        self._tokens, self._place, self._depth = tokens, 0, 0

    @property
    def next(self) -> QueryToken:
        return self._tokens[self._place]

    def parse(self) -> Condition:
        node = self._any()
        if self.next.kind != "end":
            raise QueryError(f"{self.next.text!r:.100} is not expected here", self.next.at)
        return node

    def _is_at(self, *texts: str) -> bool:
        return self.next.kind in {"keyword", "mark"} and self.next.text in texts

    def _take(self, text: str) -> bool:
        """Go past the next token, if it is this mark or keyword."""
        is_at = self._is_at(text)
        self._place += is_at
        return is_at

    def _require(self, text: str, error: str, at: int | None = None) -> None:
        if not self._take(text):
            raise QueryError(error, self.next.at if at is None else at)

    def _any(self) -> Condition:
        nodes = [self._all()]
        while self._take("or"):
            nodes.append(self._all())
        return nodes[0] if len(nodes) == 1 else Combination("or", tuple(nodes))

    def _all(self) -> Condition:
        nodes = [self._one()]
        while self._take("and") or self.next.kind in {"word", "quoted"} or self._is_at("not", "("):
            nodes.append(self._one())
        return nodes[0] if len(nodes) == 1 else Combination("and", tuple(nodes))

    def _one(self) -> Condition:
        if not self._is_at("not", "("):
            return self._term()
        opened = self.next.at
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise QueryError(f"a filter must be nested at most {_MAX_DEPTH} deep", opened)
        if self._take("not"):
            node: Condition = Combination("not", (self._one(),))
        else:
            self._take("(")
            node = self._any()
            self._require(")", "this parenthesis is not closed", opened)
        self._depth -= 1
        return node

    def _term(self) -> Condition:
        name = self._value("a name or a word to search for")
        if self.next.kind == "op":
            written = self.next.text
            self._place += 1
            is_negated = written.startswith("!")
            operator = {"==": "=", "!=": "=", "!~": "~"}.get(written, written)
            test = FieldTest(name, operator, (self._value(f"a value after {written}"),))  # type: ignore[arg-type]  # of the pattern
        elif self._take("is"):
            is_negated = self._take("not")
            self._require("missing", "'is' must be followed by missing, or not missing")
            test = FieldTest(name, "is missing")
        else:
            is_negated = self._is_at("not") and self._tokens[self._place + 1].text == "in"
            self._place += is_negated
            test = FieldTest(name, "=", self._list()) if self._take("in") else FieldTest(name)
        return Combination("not", (test,)) if is_negated else test

    def _list(self) -> tuple[QueryToken, ...]:
        self._require("(", "'in' must be followed by values in parentheses: in (a, b)")
        values = [self._value("a value")]
        while self._take(","):
            values.append(self._value("a value"))
        self._require(")", "values of 'in' must be separated by commas and end with )")
        return tuple(values)

    def _value(self, what: str) -> QueryToken:
        token = self.next
        if token.kind not in {"word", "quoted"}:
            found = "the end" if token.kind == "end" else repr(token.text)
            hint = "; put it in quotes to use it as text" if token.kind == "keyword" else ""
            raise QueryError(f"{what} must be here, got {found}{hint}", token.at)
        self._place += 1
        return token
