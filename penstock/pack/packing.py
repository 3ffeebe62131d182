"""``pack``: makes a store from a source: a folder, a store, a dataset, an iterator, a table.

With ``keys``, only those records of the source are packed, in its order. An entry that cannot be packed, or has the
name of another, is listed by name: nothing is dropped silently. An interrupted pack stays and is resumed by packing
again; a refused one leaves no files. :mod:`.sources` reads, :mod:`.pipeline.pack_source` writes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import xxhash

from penstock.annotations import SourceLike
from penstock.errors import ArgumentError
from penstock.pack.on_ray.packs import pack_on_ray
from penstock.pack.on_ray.tasks import is_on_ray
from penstock.pack.pipeline.pack_source import PackReport, PackSettings, pack_source
from penstock.pack.pipeline.run import PackProgress
from penstock.pack.resize.resizing import Resizing
from penstock.pack.sources import Source, SourceOptions, open_source
from penstock.pack.sources.annotations import AnnotatedImages
from penstock.pack.sources.base import SourceItem
from penstock.pack.sources.store import StoreSource
from penstock.pack.staging import staged
from penstock.pack.upright_fields import state_upright
from penstock.paths import parse_size, refuse_remote
from penstock.sample import Field, Index, Schema, Value
from penstock.stores.common.key_files import KeysLike, read_keys, refuse_unknown_keys
from penstock.transforms.decoding.encode import ENCODED_FORMATS

__all__ = ["pack"]


def pack(
    src: object,
    dst: str | os.PathLike[str],
    *,
    on_error: str = "raise",
    workers: int | None = None,
    overwrite: bool = False,
    check: str = "header",
    transcode: str = "none",
    index: str = "auto",
    shard_size: int | str | None = None,
    classes: Sequence[str] | None = None,
    progress: bool | Callable[[PackProgress], None] | None = None,
    schema: Schema | Mapping[str, str | Field | None] | None = None,
    names: str | Sequence[str] | None = None,
    key: str | None = None,
    images: str | None = None,
    source_id: str | None = None,
    root: str | os.PathLike[str] | None = None,
    columns: Mapping[str, str] | None = None,
    jobs: int = 0,
    annotations: SourceLike | None = None,
    format: str | None = None,  # noqa: A002  # the name that everybody expects
    split: str | None = None,
    annotation_options: Mapping[str, object] | None = None,
    upright: bool | None = None,
    resize: int | str | None = None,
    quality: int | None = None,
    image_format: str | None = None,
    storage_options: Mapping[str, object] | None = None,
    on: str | None = None,
    keys: KeysLike | None = None,
) -> PackReport:
    """Pack a source into a store.

    Parameters
    ----------
    src : str, path, Store, dataset or iterable
        Anything that :func:`penstock.open` opens (a folder of images, another store); a table with paths of images and
        other columns (``.csv``, ``.tsv``, ``.json``, ``.jsonl``, ``.parquet``), also a dataframe of pandas or polars,
        or a list of dicts with such paths; a dataset with ``__getitem__`` and ``__len__``, a sequence of samples, an
        array, or a mapping of columns of one length; a dataset of Hugging Face; an iterator, a generator or an iterable
        dataset; a loader, of whose batches each row becomes a record. With ``annotations``, the folder of the images,
        or None where the annotations say where these are; with ``format`` alone, the annotations. Also what
        :func:`penstock.annotations.read` returns, and datasets of torchvision with annotations and without transforms
        (``VOCDetection``, ``CocoDetection``), whose files are packed as they are.
    dst : str or path
        The store to write; its ending chooses its kind (``.lmdb``). If a pack of the same source and options exists, an
        unfinished one is resumed, to the same bytes as without the interruption, and a finished one is used as it is.
    on_error : {"raise", "skip"}
        What to do with images that are empty, truncated, damaged or unreadable, that have the name of another, or a
        format that cannot be decoded. ``"raise"``: list all of them and write nothing; those that the listing shows are
        reported before an image is read. ``"skip"``: leave them out, and list them in the report and in the pack. Files
        that are no images by their names (a README, ``Thumbs.db``) are only listed.
    workers : int, optional
        Number of threads that read and check; by default one for each core, less one for the writer if only headers are
        checked.
    overwrite : bool
        Whether to replace an existing pack, finished or not, whatever its source.
    check : {"header", "decode"}
        How each image is checked; see :mod:`penstock.pack.pipeline.image_check`.
    transcode : {"none", "baseline", "coefficients"}
        ``"baseline"``: store JPEGs of several scans (progressive ones, and a few others) as baseline JPEGs of the same
        pixels and metadata, which are a few per cent larger and decode faster and in parts. ``"coefficients"``: store
        the coefficients of JPEGs without Huffman codes, which decodes faster, and needs no decode index; ``store.read``
        gives the JPEGs themselves, byte for byte. A JPEG for which that is not possible stays as it is.
    index : {"auto", "none", "rows", "tiles"}
        Make decode indices beside the finished pack. ``"auto"``: ``"tiles"``, if it has JPEGs. :func:`penstock.index`
        can make them later.
    shard_size : int or str, optional
        Write a sharded pack: a folder of packs, each of which ends with the record with which its records take so many
        bytes, such as ``"1GB"``, and ``manifest.json``, which names them. It is opened, and resumed, as any other pack.
    classes : sequence of str, optional
        Names of the classes in the order of their numbers. For a folder of images, see
        :class:`~penstock.stores.images.store.FilesStore`: by default its sub-folders in plain string order, as in
        torchvision. For other sources, those of the field ``label``, whose values may then be names.
    progress : bool or callable, optional
        True: a bar on the terminal. A callable gets a :class:`PackProgress` from time to time, in this thread.
    schema : Schema, or mapping of str to kind, optional
        Kinds of values of samples, or of columns of a table: text such as ``"int64[*]"``, or a :class:`Field`; None
        leaves the value out. Other values get the kind that holds those of the first 100 samples (of a dataset: of 100
        evenly spaced ones; of a table: of all rows), which is in the report. A :class:`Schema` is complete.
    names : str or sequence of str, optional
        Names of the values of samples that are tuples, or one value. By default ``("image", "label")`` for an image and
        an int, ``("image", "target")`` for an image and another value, the names of a dict behind an image; else
        ``"0"``, ``"1"``, ...; and ``"image"``, ``"text"`` or ``"value"`` for one value.
    key : str, optional
        The value that names a record; ``"index"`` for its number. By default ``__key__`` if a sample has it, a table's
        path of the image, else the number.
    images : {"png", "jpeg", "jpeg:QUALITY", "pixels"}, optional
        How pictures of Pillow are stored, by default as PNG, without loss. Encoded bytes and files stay as they are.
    source_id : str, optional
        A text by which you promise that the samples, and their order, are those of every run with the same text. An
        iterator is resumed only with it.
    root : str or path, optional
        The folder of relative paths in samples or dataframes (by default the current one), or in a table (by
        default that of the table).
    columns : mapping of str to str, optional
        For a table: names of fields, and the column of each, such as ``{"image": "file", "mask": "mask_file"}``.
    jobs : int
        Number of worker processes that build and check records, for datasets in Python; 0 for none (threads). One
        process writes.
    annotations : str, path or mapping, optional
        Boxes, classes, points, masks of the images, in a format of :data:`penstock.annotations.FORMATS`. What is wrong
        in them is treated as ``on_error`` says; nothing is left out or clipped without being listed.
    format, split, annotation_options : str, str and mapping, optional
        Of the annotations: see :func:`penstock.annotations.read`. Without ``format``, it is recognised. "jpeg", "png"
        and "webp" are taken for ``image_format``.
    upright : bool, optional
        Which picture boxes, keypoints, masks and instances are of, where an Exif orientation turns it: the upright one,
        as viewers and tools of annotation show it (True), or the one whose rows are stored (False). It is kept in the
        schema, and ``Decode`` does as it says. By default what the source says: a pack its schema; annotations, of
        which each is found by its size (:func:`penstock.annotations.read`); other sources nothing.
    resize : int or str, optional
        Make images smaller: the shorter side becomes at most this (the longer one, with ``"longest:512"``). By Pillow's
        bicubic filter with antialiasing; never enlarged. Images are turned upright first (Exif), and lose their
        metadata but an ICC profile. Boxes, keypoints, masks, instances, areas, and the fields ``width`` and ``height``
        are scaled with the image; a field that looks like one of these and cannot be scaled is refused, and so is a
        turned image if it is not known which picture its boxes are of (``upright``). An image that is small enough,
        upright and of the right format keeps its bytes.
    quality : int, optional
        With ``resize``: of JPEG and WebP, 1 to 100, by default 95.
    image_format : {"jpeg", "png", "webp"}, optional
        With ``resize``: the format of the images; by default "jpeg", which drops alpha and keeps 8 bits. "png" loses
        nothing.
    storage_options : mapping, optional
        Of ``dst``, where it is a URL such as ``s3://bucket/photos.lmdb``; see :func:`penstock.open`. The pack is then
        written to a folder of this machine (``~/.cache/penstock/uploads``) and sent from there; each file is read back
        and compared, and the folder is removed.
    on : {"ray"}, optional
        Where records are read and written. By default in this process. ``"ray"``: in tasks of a Ray cluster, which the
        program has initialized, ``RAY_ADDRESS`` names, or is started on this machine. The pack is sharded: each shard
        has a power of two of records, as many as fit into ``shard_size`` (by default "256MB") by the sizes of some. A
        task writes a shard, with ``workers`` threads (by default 1) for which it reserves as many CPUs. ``dst`` is a
        folder that all nodes have, or a URL; its ``storage_options`` are sent to the tasks. A source with
        ``storage_options`` needs them in the environment of the nodes.
    keys : str, path or sequence of str, optional
        Pack only the records with these keys, in the order of the source; a file of keys as for
        :func:`penstock.find_keys`. The source has its keys before it is read: a folder, a store, a table, annotations.

    Returns
    -------
    PackReport
        Counts, and the entries that were left out.

    Raises
    ------
    PackError
        With ``on_error="raise"``, if a file cannot be packed; each such file is named with the reason.
    ArgumentError
        If an argument is invalid, one of source and destination is inside the other, or ``dst`` is a finished pack of
        another or a changed source, or of other options; the message says which. With ``on="ray"``, also if the source
        is read in order, or cannot be pickled, or ``dst`` is not on all nodes.
    RecordKeyError
        If the source lacks one of ``keys``.
    WorkerError
        With ``on="ray"``, if a task is lost again and again; what is finished is kept.
    StoreError
        If the source cannot be opened, the destination cannot be written, or ``dst`` is an unfinished pack of another
        source or other options.

    Notes
    -----
    Records keep the order of the source: index ``i`` of the pack is index ``i`` of the source unless a record before it
    was skipped. The size of the image is added, as fields ``width`` and ``height``. The options that decide what a pack
    contains are ``check``, ``transcode``, ``shard_size``, ``classes``, ``on``, ``keys``, and ``resize`` with its
    ``quality`` and ``image_format``. A folder is unchanged if names, sizes and times of change of its images are the
    same; a table, if also its bytes are. Whether a dataset in Python is unchanged cannot be known: an unfinished pack
    of it is resumed if class, length and some samples are the same, a finished one is not used again.

    With ``on="ray"``, records and their order are those of ``on=None``. Bytes of the shards do not depend on the
    number of nodes and tasks, nor on what was lost or killed; shards end at other records than without it.
    """
    is_parallel = is_on_ray(on)
    if format in ENCODED_FORMATS and image_format is None:
        format, image_format = None, format  # noqa: A001  # as the argument
    settings = PackSettings(
        on_error=on_error,
        workers=workers,
        jobs=jobs,
        overwrite=overwrite,
        check=check,
        transcode=transcode,
        index=index,
        shard_nbytes=None if shard_size is None else parse_size(shard_size, "shard_size"),
        resizing=Resizing.parse(resize, image_format, quality),
        options={
            name: str(value) for name, value in {"images": images, "upright": upright}.items() if value is not None
        },
    )
    if annotations is not None or format is not None:
        src = _annotate(src, annotations, format, split, annotation_options, upright)
    elif split is not None or annotation_options is not None:
        raise ArgumentError("split and annotation_options must be given with annotations or format")
    refuse_remote(root)
    options = SourceOptions(
        schema=schema,
        classes=classes,
        names=names,
        key=key,
        images=images,
        source_id=source_id,
        root=root,
        columns=columns,
    )
    with staged(dst, storage_options, overwrite=overwrite) as target:
        run = pack_on_ray if is_parallel else pack_source
        return run(_open_source(src, options, keys, upright), target, settings, progress)


def _open_source(src: object, options: SourceOptions, keys: KeysLike | None, upright: bool | None) -> Source:
    source = open_source(src, options)
    try:
        if upright is not None and not isinstance(src, AnnotatedImages):
            turned = source.open_upright(src, upright=upright) if isinstance(source, StoreSource) else None
            source = turned or source
            if turned is None:
                source.schema = state_upright(source.schema, upright=upright)
        if keys is None:
            return source
        return SelectedSource(source, keys)
    except BaseException:
        source.close()
        raise


def _annotate(
    src: object,
    annotations: SourceLike | None,
    format: str | None,  # noqa: A002  # as the argument of `pack`
    split: str | None,
    options: Mapping[str, object] | None,
    upright: bool | None,
) -> AnnotatedImages:
    """Return the images ``src`` with their annotations; with ``format`` alone, ``src`` is the annotations."""
    if not isinstance(src, str | os.PathLike | Mapping | None):
        raise ArgumentError(f"images with annotations must be a folder, or None, got {type(src).__name__}")
    images, given = (None, src) if annotations is None else (src, annotations)
    if given is None or isinstance(images, Mapping):
        raise ArgumentError("annotations must be a path or a mapping, and images a folder or None")
    return AnnotatedImages(images, given, format or "auto", split, dict(options or {}), upright)


class SelectedSource(Source):
    """The records of a source that have some keys.

    Parameters
    ----------
    source : Source
        Its keys are known before it is read; it is closed with this one.
    keys : str, path or sequence of str
        The keys, or a file of them, as for :func:`penstock.find_keys`; each is used once.

    Raises
    ------
    ArgumentError
        If the keys of the source are known only when it is read, or there are none to select.
    RecordKeyError
        If the source lacks a key.
    """

    def __init__(self, source: Source, keys: KeysLike) -> None:
        if source.keys is None and not (source.numbers_records and source.total is not None):
            raise ArgumentError(
                f"keys needs a source whose keys are known before it is read, such as a folder, a store or a table; "
                f"{source.url} is none"
            )
        self._source = source
        self._wanted = frozenset(read_keys(keys))
        if not self._wanted:
            raise ArgumentError("keys must have at least one key")
        self.url, self.schema, self.location = source.url, source.schema, source.location
        self.is_exact, self.numbers_records = source.is_exact, source.numbers_records
        self.problems = tuple(each for each in source.problems if each.key in self._wanted)
        self.unreadable = tuple(each for each in source.unreadable if each.key in self._wanted)
        everything = map(str, range(source.total or 0)) if source.keys is None else source.keys
        self.keys = [key for key in everything if key in self._wanted]
        self.total = len(self.keys)
        known = {*self.keys, *(each.key for each in self.problems)}
        refuse_unknown_keys(sorted(self._wanted - known), self.url)

    def items(self, start: int) -> Iterator[SourceItem]:
        """Return the items with these keys, in the order of the source."""
        found = (item for item in self._source.items(0) if item.key in self._wanted)
        return itertools.islice(found, start, None)

    def load(self, token: Index) -> Mapping[str, Value]:
        """Load a record by the source."""
        return self._source.load(token)

    def describe_item(self, token: Index) -> str:
        """Describe where an item is, as the source does."""
        return self._source.describe_item(token)

    def load_records(self, tokens: Sequence[Value]) -> Sequence[Mapping[str, Value]] | None:
        """Load records by the source."""
        return self._source.load_records(tokens)

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value] | None:
        """Load a batch by the source."""
        return self._source.load_batch(tokens)

    def digest(self) -> str | None:
        """Return that of the source, and of the keys."""
        own = self._source.digest()
        if own is None:
            return None
        text = "\0".join(sorted(self._wanted))
        return f"{own} keys {xxhash.xxh3_128_hexdigest(text.encode(errors='surrogateescape'))}"

    def close(self) -> None:
        """Close the source."""
        self._source.close()
