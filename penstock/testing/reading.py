"""What a store gives: records, images, columns, keys and names of classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from penstock import stores
from penstock.errors import ArgumentError, RecordIndexError, RecordKeyError
from penstock.stores.base import Store
from penstock.testing.fixtures import StoreFixtures
from penstock.testing.made_stores import KEYS, LABELS, MadeStore, StoreMaker

__all__ = ["ReadingTests"]

MANY: Final = 10_000
"""How many small records :attr:`.StoreMaker.many` writes."""


class ReadingTests(StoreFixtures):
    """The tests of what a store gives; none of them changes the store."""

    def test_length_is_the_number_of_records(self, store: Store) -> None:
        """len() counts the records."""
        assert len(store) == len(KEYS)

    def test_records_come_as_asked(self, store: Store, kept: MadeStore) -> None:
        """read() gives the records at the indices, in their order, some repeatedly, with key, image and label."""
        wanted = [3, 0, 4, 3, 1, 2]

        records = store.read(wanted)

        assert [record.index for record in records] == wanted
        assert [record.key for record in records] == [kept.keys[index] for index in wanted]
        assert all(kept.is_picture(r.fields["image"], i) for r, i in zip(records, wanted, strict=True))
        assert [record.fields["label"] for record in records] == [LABELS[index] for index in wanted]

    def test_indices_may_be_an_array(self, store: Store) -> None:
        """read() takes NumPy's integers, as samplers give them."""
        records = store.read(np.array([2, 0], np.int64))

        assert [record.index for record in records] == [2, 0]

    def test_a_mask_is_no_list_of_indices(self, store: Store) -> None:
        """A mask is refused: it would be the records 0 and 1, again and again."""
        mask = [True, False, True]
        for given in (mask, np.array(mask)):
            with pytest.raises(ArgumentError, match=r"got bools; of a mask, give numpy\.flatnonzero\(mask\)"):
                store.read(given)
            with pytest.raises(ArgumentError, match="got bools"):
                store.blobs("image", given)

    def test_a_store_is_indexed_and_iterated(self, store: Store, kept: MadeStore) -> None:
        """Ints from either end and slices give what reading gives; iterating, all of it in order."""
        assert store[1].key == store[-4].key == kept.keys[1]
        assert kept.is_picture(store[np.int64(3)].fields["image"], 3)
        assert [record.key for record in store[::-2]] == kept.keys[::-2]
        assert [(record.index, record.key) for record in store] == list(enumerate(kept.keys))
        for outside in (5, -6):
            with pytest.raises(RecordIndexError, match=f"index {outside} is outside"):
                store[outside]
        assert store[kept.keys[2]].index == 2
        with pytest.raises(RecordKeyError, match="no record has the key 'absent'"):
            store["absent"]

    def test_blobs_are_those_of_the_records(self, store: Store) -> None:
        """blobs() gives one large field of the records at the indices, as read_stored(), and refuses other fields."""
        blobs = store.blobs("image", np.array([3, 0, 3]))

        stored = [record.fields["image"] for record in store.read_stored([3, 0, 3])]
        assert [memoryview(blob) == memoryview(value) for blob, value in zip(blobs, stored, strict=True)] == [True] * 3
        with pytest.raises(RecordIndexError):
            store.blobs("image", [len(KEYS)])
        with pytest.raises(ArgumentError):
            store.blobs("label", [0])

    def test_no_indices_give_no_records(self, store: Store) -> None:
        """Reading nothing gives nothing."""
        assert store.read([]) == []

    def test_records_have_the_schema_s_fields(self, store: Store) -> None:
        """Every record has the fields of the schema, encoded ones as bytes-like, pixels as arrays of their kind."""
        record = store.read([0])[0]

        assert set(record.fields) == set(store.schema.fields)
        for name in store.schema.blobs:
            pixels = store.schema[name].pixels
            value = record.fields[name]
            if pixels is None:
                assert memoryview(value).format == "B"
            else:
                assert isinstance(value, np.ndarray)
                assert value.dtype == pixels.dtype
                assert pixels.allows(value.shape)

    def test_blobs_cannot_be_written_to(self, store: Store) -> None:
        """A blob is read-only: nobody can damage a store through what it reads."""
        blob = memoryview(store.read([0])[0].fields["image"])

        assert blob.readonly, "an image must be bytes, a read-only view, or an array after setflags(write=False)"

    @pytest.mark.parametrize("index", [-1, len(KEYS), 2**40, -(2**70)])
    def test_index_outside_is_refused(self, store: Store, index: int) -> None:
        """An index outside the store is an IndexError that names the store and what it holds."""
        with pytest.raises(RecordIndexError, match="5 records") as caught:
            store.read([0, index])

        assert caught.value.where["store"] == store.url

    def test_labels_are_a_column(self, store: Store) -> None:
        """column("label") gives every label in order, int64 and read-only."""
        column = store.column("label")

        assert column.dtype == np.int64
        assert column.tolist() == list(LABELS)
        assert not column.flags.writeable

    def test_columns_agree_with_records(self, store: Store) -> None:
        """A small field's column holds what the records hold; one whose size varies has none, and says so."""
        records = store.read(range(len(store)))

        for name in store.schema.small:
            array = store.schema[name].array
            if store.schema[name].kind == "json" or (array is not None and array.shape is None):
                with pytest.raises(ArgumentError, match=name):
                    store.column(name)
            else:
                assert store.column(name).tolist() == [np.asarray(record.fields[name]).tolist() for record in records]

    @pytest.mark.parametrize("field", ["image", "nothing"])
    def test_column_of_no_column_is_refused(self, store: Store, field: str) -> None:
        """Images, and fields that are not there, have no column; the message says so."""
        with pytest.raises(ArgumentError, match=field):
            store.column(field)

    def test_keys_are_in_order_of_index(self, store: Store, kept: MadeStore) -> None:
        """keys() is a sequence of the records' names: by index, by negative index, by slice, iterated, searched."""
        keys = store.keys()

        assert len(keys) == len(KEYS)
        assert [keys[index] for index in range(len(KEYS))] == kept.keys
        assert keys[-1] == kept.keys[-1]
        assert list(keys[1:3]) == kept.keys[1:3]
        assert list(keys) == kept.keys
        assert keys.index(kept.keys[2]) == 2
        assert "no/such.jpg" not in keys

    def test_classes_are_named(self, store: Store, kept: MadeStore) -> None:
        """The label field names its classes, where the kind stores them."""
        assert store.schema["label"].classes == kept.maker.classes

    def test_many_records_are_read_in_any_order(self, store_maker: StoreMaker, tmp_path: Path) -> None:
        """Opening and random reads of many records work, and give each index its own record."""
        if store_maker.many is None:
            pytest.skip("this kind is not made in numbers here")
        url = store_maker.many(tmp_path, MANY)
        order = np.random.default_rng(1).permutation(MANY)

        with stores.open(url, **store_maker.options) as store:
            assert len(store) == MANY
            labels = store.column("label")
            assert np.bincount(labels).tolist() == [MANY // 1000] * 1000
            for first in range(0, 2048, 64):
                chosen = order[first : first + 64]
                records = store.read(chosen)
                assert [record.fields["label"] for record in records] == labels[chosen].tolist()
                if store_maker.decoded is None:
                    numbers = [int(re.sub(rb"\D", b"", bytes(record.fields["image"]))) for record in records]
                    assert [number % 1000 for number in numbers] == labels[chosen].tolist()
            assert store.read([MANY - 1])[0].index == MANY - 1
