"""Parses YAML of unknown origin: texts, lists and mappings only, with limits on size, depth and aliases."""

from __future__ import annotations

from typing import Final

from penstock.registry import require
from penstock.sample import Value

__all__ = ["parse_yaml"]

_MAX_LENGTH: Final = 1 << 21
_MAX_DEPTH: Final = 32
_MAX_ALIASES: Final = 100


def parse_yaml(text: str) -> Value:
    """The content of a document; every scalar is a text, as it stands in the file, and tags mean nothing.

    Raises
    ------
    ValueError
        If it is no YAML, or is above a limit.
    OptionalPackageError
        If PyYAML is not installed.
    """
    yaml = require("yaml", extra="yolo", purpose="to read YAML")
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"it must have at most {_MAX_LENGTH:,} characters, got {len(text):,}")
    try:
        # `BaseLoader` constructs no objects and no numbers: `no` is a class name, not a boolean.
        loader = yaml.BaseLoader(text)
        _bound(loader, yaml.AliasEvent)
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {error!s:.500}") from error


def _bound(loader: Value, alias_event: type) -> None:
    """Limit the aliases and the depth of what a loader composes."""
    compose = loader.compose_node
    aliases = depth = 0

    def compose_bounded(parent: object, index: object) -> Value:
        nonlocal aliases, depth
        aliases += loader.check_event(alias_event)
        depth += 1
        if aliases > _MAX_ALIASES or depth > _MAX_DEPTH:
            raise ValueError(f"it must have at most {_MAX_ALIASES} aliases, and be nested at most {_MAX_DEPTH} deep")
        try:
            return compose(parent, index)
        finally:
            depth -= 1

    loader.compose_node = compose_bounded
