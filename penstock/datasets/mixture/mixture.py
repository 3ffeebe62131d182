"""Several datasets with weights as one: the public class, which is one of maps or one of streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from penstock.datasets.base import Dataset, IterableDataset, is_iterable
from penstock.datasets.mixture.interleaving import Interleaving
from penstock.datasets.mixture.shares import ScheduleUnit, Stage, Temperature, Until, Weights, check_until, make_stages
from penstock.datasets.streams.division import StatefulObject
from penstock.errors import ArgumentError
from penstock.sample import DatasetLike, Sample

__all__ = ["Mixture", "SourceStats"]


@dataclass(frozen=True, slots=True)
class SourceStats:
    """What was delivered of one source of a mixture.

    Parameters
    ----------
    samples : int
        Samples delivered.
    share : float
        Their part of the samples of all sources; 0 before the first.
    epochs : int
        How often the source was used up.
    """

    samples: int
    share: float
    epochs: int


class Mixture(Dataset[Sample]):
    """Several datasets, from which samples are drawn with weights.

    Each source has its own order and its own epochs. A source that is used up begins again, in another order. Pass the
    mixture to either loader as its dataset.

    Parameters
    ----------
    sources : mapping of str to dataset
        Datasets by name: map-style with a length, or streams. If one is a stream, the mixture is one too.
    weights : mapping, sequence or schedule, optional
        A number above 0 for each source, by name or in order; any sum. Or a schedule: pairs of a start and such
        numbers, as ``[(0, {"a": 1, "b": 0}), (10_000, {"a": 1, "b": 3})]``, where a source may have 0 in some entries.
    temperature : float or schedule, optional
        Instead of weights: the share of a source is in proportion to ``size ** (1 / temperature)``. 1, the default:
        shares in proportion to sizes; above 1: small sources occur more often; ``math.inf``: equal shares.
    until : {"first", "all"} or int
        When an epoch of the mixture ends: when the first source is used up; when each source was used up at least once;
        or after so many samples of all ranks together. A schedule needs a number.
    schedule_unit : {"samples", "epochs"}
        What the starts of a schedule count, from the beginning of the job: samples of all ranks, or epochs.

    Raises
    ------
    ArgumentError
        If an argument is wrong, or a source is empty.

    Notes
    -----
    In each stage of a schedule, the number of samples of each source differs from its share by less than 2 at the end
    of each block of 64 samples and of each epoch; within a block the order of the sources is random. The order of
    map-style datasets depends on the seed and the position alone, and not on workers and ranks.

    Examples
    --------
    >>> import penstock as ps
    >>> sources = {"a": ps.ArrayDataset([0] * 100), "b": ps.ArrayDataset([1] * 10)}
    >>> mixture = ps.Mixture(sources, weights={"a": 3, "b": 1}, until=200)
    >>> loader = ps.DataLoader(mixture, batch_size=20, shuffle=True, seed=0)
    >>> sum(int(labels.sum()) for (labels,) in loader)
    50
    >>> mixture.stats(loader)["b"]
    SourceStats(samples=50, share=0.25, epochs=5)
    """

    _kinds: ClassVar[dict[bool, type[Mixture]]] = {}
    """The class of mixtures of maps, and of streams."""

    def __init_subclass__(cls) -> None:
        Mixture._kinds.setdefault(issubclass(cls, IterableDataset), cls)

    def __new__(cls, sources: object = None, *_: object, **__: object) -> Self:
        """Return a mixture of streams if a source is one, else of map-style datasets."""
        if cls is Mixture and isinstance(sources, Mapping):
            return object.__new__(Mixture._kinds[any(map(is_iterable, sources.values()))])  # type: ignore[return-value]  # a subclass
        return object.__new__(cls)

    def __init__(
        self,
        sources: Mapping[str, DatasetLike],
        weights: Weights | None = None,
        *,
        temperature: Temperature | None = None,
        until: Until = "first",
        schedule_unit: ScheduleUnit = "samples",
    ) -> None:
        given: object = sources
        if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
            raise ArgumentError(
                f"sources must be a mapping of names to datasets, such as {{'a': dataset}}, got {sources!r:.80}"
            )
        if schedule_unit not in ("samples", "epochs"):
            raise ArgumentError(f"schedule_unit must be samples or epochs, got {schedule_unit!r:.80}")
        self.sources = dict(sources)
        self.weights, self.temperature = weights, temperature
        sizes = {name: _count_samples(name, source) for name, source in self.sources.items()}
        stages = make_stages(sizes, weights, temperature)
        for name, source in self.sources.items():
            if sizes[name] is None and not is_iterable(source):
                raise ArgumentError(f"the sources of a mixture must be streams or have a length, got none for {name!r}")
        self.until: Until = check_until(until, has_schedule=len(stages) > 1)
        if schedule_unit == "epochs" and isinstance(self.until, int):
            stages = tuple(Stage(stage.start * self.until, stage.shares) for stage in stages)
        self.interleaving = Interleaving(stages)
        self._set_up()

    def _set_up(self) -> None:
        """Called at the end of construction."""
        raise NotImplementedError(f"{type(self).__name__} must define _set_up")

    def stats(self, loader: StatefulObject) -> dict[str, SourceStats]:
        """Return what a loader of this mixture has delivered of each source; only its state is read.

        Parameters
        ----------
        loader : DataLoader
            Of penstock or penstock.torch. Of map-style datasets, what all ranks have consumed since the job began is
            counted, also what could not be built, and not what fills up the last step of an epoch. Of streams, what
            this rank has consumed in the epoch under way is counted.

        Raises
        ------
        ArgumentError
            If the loader has a sampler that is not of this mixture.
        """
        raise NotImplementedError(f"{type(self).__name__} must define stats")

    def __repr__(self) -> str:
        chosen = {"weights": self.weights, "temperature": self.temperature}
        given = [f"{name}={value!r:.80}" for name, value in chosen.items() if value is not None]
        return f"Mixture({', '.join([', '.join(self.sources), *given, f'until={self.until!r}'])})"


def _count_samples(name: str, source: DatasetLike) -> int | None:
    """Return the length of a source; None if it is unknown."""
    try:
        count = len(source)
    except (TypeError, NotImplementedError):
        return None
    if count < 1:
        raise ArgumentError(f"the sources of a mixture must have samples, got none in {name!r}: leave it out")
    return count
