"""The samples of a step as lines and as JSON, for ``penstock rewind``; their sheet is :func:`penstock.show`'s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.loader.past import PastSample

__all__ = ["describe", "list_draws", "list_lines"]

_NAMES = ("row", "index", "key", "store", "record", "seed")
Draws = dict[str, list[float]] | str
"""What the ops of a sample drew; why that is not known."""


def list_draws(samples: Sequence[PastSample]) -> list[Draws]:
    """Build each sample for what was drawn for it."""
    return list(map(_find_draws, samples))


def _find_draws(sample: PastSample) -> Draws:
    try:
        return sample.draws()
    except Exception as error:  # noqa: BLE001  # whatever the dataset raises: the others are asked for, too
        return f"{type(error).__name__}: {error}"


def describe(samples: Sequence[PastSample], draws: Sequence[Draws]) -> dict[str, object]:
    """Say of a batch where it was and what it was made of."""
    first = samples[0]
    rows = [
        {name: getattr(sample, name) for name in _NAMES} | {"error" if isinstance(drawn, str) else "draws": drawn}
        for sample, drawn in zip(samples, draws, strict=True)
    ]
    return {"epoch": first.epoch, "batch": first.batch, "rank": first.rank, "samples": rows}


def list_lines(samples: Sequence[PastSample], draws: Sequence[Draws]) -> Iterator[str]:
    """Yield the same as lines of text."""
    yield f"epoch {samples[0].epoch}, batch {samples[0].batch}, rank {samples[0].rank}"
    for sample, drawn in zip(samples, draws, strict=True):
        shown = (
            [drawn]
            if isinstance(drawn, str)
            else [f"{name} {' '.join(f'{each:.6g}' for each in got)}" for name, got in drawn.items()]
        )
        yield "  ".join(filter(None, [f"{sample.row:>5} {sample.index!s:>12}", sample.key, *shown]))
