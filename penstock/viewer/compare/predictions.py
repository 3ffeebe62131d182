"""The predictions of a viewer: what a file says of its records, drawn beside the annotations and compared with them.

::

    file ──> rows of the store's records ──> layers of each record
                │                              thread: annotations of all records, overlaps
                └──────────────────────────────────> evaluate(iou, score) ──> counts; sets of records
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError
from penstock.sample import Array, Value
from penstock.view.annotated import Annotated
from penstock.viewer.browse.collection import Collection
from penstock.viewer.browse.layers import make_layers
from penstock.viewer.browse.pictures import find_size
from penstock.viewer.compare.matching import (
    CORRECT,
    DUPLICATE,
    MISSED,
    SPURIOUS,
    WRONG_CLASS,
    Boxes,
    Events,
    Overlaps,
    find_overlaps,
    judge_boxes,
    judge_labels,
    match_boxes,
)
from penstock.viewer.compare.prediction_files import PredictionFile, ReadPrediction, read_predictions
from penstock.viewer.compare.prediction_names import find_classes, find_records
from penstock.viewer.compare.scoring import average_precisions, select_records
from penstock.viewer.compare.truth import find_class_names, make_boxes, read_labels, read_objects
from penstock.viewer.session import Layer

__all__ = ["SETS", "Evaluation", "Predictions"]

SETS: Final = {
    "false-positives": {WRONG_CLASS, DUPLICATE, SPURIOUS},
    "wrong-class": {WRONG_CLASS},
    "duplicates": {DUPLICATE},
    "nothing-there": {SPURIOUS},
    "missed": {MISSED},
    "correct": {CORRECT},
    "confused": {CORRECT, WRONG_CLASS, DUPLICATE, SPURIOUS, MISSED},
}
"""Names of sets of records, and the events that put a record into each."""
_LOGGER: Final = logging.getLogger(__name__)
_SHOWN_SCORE: Final = 0.3
_KEPT: Final = 8
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The predictions at one IoU and score: events, and the average precision of each class at this IoU."""

    events: Events
    precisions: dict[int, float]


class _Stopped(Exception):  # noqa: N818  # no error: the viewer is closed
    pass


class Predictions:
    """Predictions for the records of a viewer; a source of layers.

    Parameters
    ----------
    collection : Collection
        The records.
    path : Path
        The file.

    Raises
    ------
    ArgumentError
        If it cannot be read, is no file of predictions, or has none for these records.
    """

    def __init__(self, collection: Collection, path: Path) -> None:
        self._collection, self.path = collection, path
        file = read_predictions(path)
        self.has_boxes = file.has_boxes
        records = find_records(collection.store, file)
        classes = find_classes(file, find_class_names(collection.schema, of_objects=self.has_boxes))
        self.names = classes.names
        self.notes = [records.note, classes.note]
        self.shown_score = _SHOWN_SCORE
        """Predictions with a lower score are not drawn; the last one for which an evaluation was asked."""
        self.read = 0
        """Number of records whose annotations are read."""
        self.error = ""
        self._rows: list[ReadPrediction] = []
        self.boxes = self._arrange(file, records.numbers, classes.numbers)
        self.is_ready = threading.Event()
        self._objects: Boxes | None = None
        self._labels: Indices | None = None
        self._overlaps: Overlaps | None = None
        self._matched: dict[float, Indices] = {}
        self._evaluations: dict[tuple[float, float], Evaluation] = {}
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stops = False

    def _arrange(
        self, file: PredictionFile, records: Mapping[int | str, int], classes: Mapping[int | str, int]
    ) -> Boxes:
        """The predictions in the order of records, of each record by falling score."""
        known = [row for row in file.rows if row.image in records and row.label in classes]
        if lost := len(file.rows) - len(known):
            self.notes.append(
                f"{lost:,} of {len(file.rows):,} predictions are left out: their image or class is unknown"
            )
        numbers = np.array([records[row.image] for row in known], np.int64)
        scores = np.array([row.score for row in known])
        order = np.lexsort((-scores, numbers))
        known = [known[at] for at in order.tolist()]
        self._rows = known if self.has_boxes else []
        counts = np.bincount(numbers, minlength=self._collection.total)
        boxes = np.array([row.box or (np.nan,) * 4 for row in known], np.float64).reshape(-1, 4)
        labels = np.array([classes[row.label] for row in known], np.int64)
        return make_boxes(counts, boxes, labels, scores=scores[order])

    def start(self) -> None:
        """Begin to read the annotations, if it was not begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._prepare, name="penstock-view-predictions", daemon=True)
                self._thread.start()

    def _prepare(self) -> None:
        def report(count: int) -> None:
            self.read = count
            if self._stops:
                raise _Stopped

        try:
            if self.has_boxes:
                objects = read_objects(self._collection, report)
                self._overlaps = find_overlaps(self.boxes, objects)
                self._objects = objects
            else:
                self._labels = read_labels(self._collection.store)
            self.read = self._collection.total
        except _Stopped:
            pass
        except PenstockError as error:
            self.error = str(error)
        except Exception as error:
            _LOGGER.exception("annotations cannot be compared with %s", self.path)
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.is_ready.set()

    def evaluate(self, iou: float, score: float) -> Evaluation:
        """Compare with the annotations; waits until these are read. The last results are kept.

        Raises
        ------
        ArgumentError
            If there are no annotations to compare with.
        """
        self.start()
        self.is_ready.wait()
        if self.error:
            raise ArgumentError(self.error)
        iou, score = round(iou, 4), round(score, 4)
        with self._lock:
            found = self._evaluations.get((iou, score))
            if found is None:
                found = self._evaluate(iou, score)
                while len(self._evaluations) >= _KEPT:
                    self._evaluations.pop(next(iter(self._evaluations)))
                self._evaluations[iou, score] = found
        return found

    def _evaluate(self, iou: float, score: float) -> Evaluation:
        if self._labels is not None:
            return Evaluation(judge_labels(self.boxes, self._labels, score=score), {})
        assert self._objects is not None, "annotations are read"
        assert self._overlaps is not None, "annotations are read"
        matched = self._matched.get(iou)
        if matched is None:
            while len(self._matched) >= _KEPT:
                self._matched.pop(next(iter(self._matched)))
            matched = self._matched[iou] = match_boxes(self.boxes, self._objects, self._overlaps, iou)
        events = judge_boxes(self.boxes, self._objects, self._overlaps, matched, iou=iou, score=score)
        return Evaluation(events, average_precisions(self.boxes, self._objects, matched))

    def find_set(self, name: str) -> tuple[Evaluation, Indices, Indices]:
        """The records of a set, the most confident first, and the event of each.

        Parameters
        ----------
        name : str
            One of :data:`SETS`, then ``@iou,score``: ``missed@0.5,0.3``; ``confused`` has the classes, by number, of
            the object and of the prediction, -1 for none: ``confused:3>5@0.5,0.3``.

        Raises
        ------
        ArgumentError
            If it is none.
        """
        kind, _, at = name.partition("@")
        kind, _, classes = kind.partition(":")
        try:
            iou, score = map(float, at.split(","))
            cell = None
            if classes:
                truth, _, guess = classes.partition(">")
                cell = int(truth), int(guess)
            if kind not in SETS or not (0 <= iou <= 1 and 0 <= score <= 1) or (cell is None) == (kind == "confused"):
                raise ValueError(name)  # noqa: TRY301  # one handler
        except ValueError as error:
            raise ArgumentError(
                f"set must be one of {', '.join(SETS)} with @iou,score, such as missed@0.5,0.3, got {name!r:.100}"
            ) from error
        found = self.evaluate(max(iou, 0.1), score)
        return found, *select_records(found.events, SETS[kind], cell)

    def layers(self, index: int) -> list[Layer]:
        """The predicted objects of a record, of at least the shown score."""
        first, last = self.boxes.offsets[index : index + 2].tolist()
        chosen = [at for at in range(first, last) if self.boxes.scores[at] >= self.shown_score]
        if not chosen or not self.has_boxes or not self._collection.image_field:
            return []
        rows = [self._rows[at] for at in chosen]
        numbers, scores = self.boxes.classes[chosen], self.boxes.scores[chosen]

        def make(name: str, keep: Callable[[ReadPrediction], bool], **values: Value) -> list[Layer]:
            held = [place for place, row in enumerate(rows) if keep(row)]
            if not held:
                return []
            found = Annotated(numbers=numbers[held], object_classes=self.names)
            for field, value in values.items():
                setattr(found, field, [value(rows[place]) for place in held])
            made = make_layers(found, {"scores": scores[held]}, size)
            return [
                {**layer, "id": f"predicted-{name}", "name": f"predicted {name}", "source": "predictions"}
                for layer in made
            ]

        size = find_size(self._collection.image(index))
        return [
            *make("boxes", lambda row: row.box is not None, boxes=lambda row: row.box),
            *make("keypoints", lambda row: bool(row.keypoints), keypoints=lambda row: _points(row.keypoints)),
            *make("masks", lambda row: isinstance(row.instance, Mapping), instances=lambda row: row.instance),
        ]

    def close(self) -> None:
        """End the thread."""
        self._stops = True
        if self._thread is not None:
            self._thread.join()


def _points(given: list[float] | None) -> Array:
    return np.array(given, np.float64).reshape(-1, 3)
