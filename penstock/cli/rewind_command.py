"""The command ``rewind``: what a step of a training saw, from a state of its loader in a file.

The file is JSON, or what ``torch.save`` wrote, of which only numbers, texts and tensors are read: no code in it is run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption, open_store
from penstock.cli.printing import print_json, print_line
from penstock.cli.user_files import make_object
from penstock.errors import ArgumentError, StateError
from penstock.sample import State, StateDict

if TYPE_CHECKING:
    from penstock.loader.past import PastSample

__all__ = ["rewind"]

_SCRIPT: Final = re.compile(r".+\.py:\w+", re.DOTALL)
_MAX_DEPTH: Final = 12


@app.command()
def rewind(
    state: Annotated[
        Path,
        typer.Argument(metavar="STATE", help="A file with a loader's state: JSON, or of torch.save, a checkpoint."),
    ],
    loader: Annotated[
        str,
        typer.Argument(
            metavar="LOADER",
            help="FILE.py:NAME, the loader or a function that returns it; or its store, for records without crops.",
        ),
    ],
    *,
    step: Annotated[int, typer.Option(help="Batches of one rank before it, from the start of epoch 0, or of --epoch.")],
    epoch: Annotated[int | None, typer.Option(help="Count steps from the start of this epoch.")] = None,
    rank: Annotated[int | None, typer.Option(help="The rank that saw it; by default 0, or that of the script.")] = None,
    entry: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which state, if the file has several, such as `loaders.0`.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Draw the samples into this file: .png, .jpg or .webp.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file, if it exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a step saw, from a saved state of a loader: records, random draws, and the crops again."""
    from penstock.sheets.canvas import check_output, refuse_existing
    from penstock.sheets.showing import show

    if output is not None:
        refuse_existing(check_output(output), overwrite=overwrite)  # before the script is run
    saved = _read_state(state, entry)
    is_script = _SCRIPT.fullmatch(loader) is not None
    made = _load_loader(loader, saved) if is_script else _make_loader(loader, saved)
    made.load_state_dict(saved)
    samples = made.samples_of(step, epoch=epoch, rank=rank)
    rows = [_describe(sample, draws=is_script) for sample in samples]
    if output is not None:
        show(samples, len(samples), output=output, overwrite=overwrite)
    if as_json:
        print_json({"epoch": samples[0].epoch, "batch": samples[0].batch, "rank": samples[0].rank, "samples": rows})
        return
    print_line(f"epoch {samples[0].epoch}, batch {samples[0].batch}, rank {samples[0].rank}")
    for row in rows:
        draws = "  ".join(
            f"{name} {' '.join(f'{value:.6g}' for value in drawn)}" for name, drawn in row["draws"].items()
        )
        print_line("  ".join(filter(None, [f"{row['row']:>5} {row['index']:>12}", row["key"], draws, row["error"]])))


def _describe(sample: PastSample, *, draws: bool) -> StateDict:
    names = ("row", "index", "key", "store", "record", "seed")
    row: StateDict = {**{name: getattr(sample, name) for name in names}, "draws": {}, "error": ""}
    try:
        row["draws"] = sample.draws() if draws else {}
    except Exception as error:  # noqa: BLE001  # whatever the dataset raises: the other samples are asked for, too
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def _read_state(path: Path, entry: str | None) -> StateDict:
    """Return the state of a loader that a file holds, at any depth."""
    found = dict(_find_states(_read(path), _MAX_DEPTH))
    if entry is None and len(found) == 1:
        [entry] = found
    if entry not in found:
        names = ", ".join(repr(name) for name in list(found)[:20]) or "none"
        raise ArgumentError(f"--entry must name a state of a loader in {path}, got {entry!r}; it has: {names}")
    return found[entry]


def _read(path: Path) -> State:
    try:
        with path.open("rb") as file:
            is_json = file.read(64).lstrip()[:1] in {b"{", b"["}
        if is_json:
            return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    from penstock.registry import require

    torch = require("torch", extra="torch", purpose="to read a state that is not JSON")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged or foreign file makes it raise
        raise StateError(
            f"{path} is neither JSON nor a file of torch.save that can be read without running code in it; save the "
            "loader's state by itself, such as json.dump(loader.state_dict(), file)"
        ) from error


def _find_states(value: State, depth: int, at: str = "") -> Iterator[tuple[str, StateDict]]:
    if depth and isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not depth or not isinstance(value, Mapping):
        return
    if "penstock" in value or "merged" in value or {"seed", "epoch", "batches", "order"} <= value.keys():
        yield at, dict(value)
        return
    for name, inner in value.items():
        yield from _find_states(inner, depth - 1, f"{at}.{name}" if at else str(name))


def _own_part(state: StateDict) -> tuple[StateDict, bool]:
    """The part of a state that both layouts share, with order, ranks and seeds; whether a torch loader wrote it."""
    merged = state.get("merged")
    first = merged[0] if isinstance(merged, list) and merged else state
    own = first.get("penstock", first) if isinstance(first, Mapping) else {}
    if not isinstance(own, Mapping) or not isinstance(own.get("order"), Mapping):
        raise StateError("the state has no field 'order': it is damaged, or of another loader")
    return dict(own), own is not first


def _count_ranks(own: StateDict) -> int:
    ranks = own.get("ranks") or {}
    count = ranks.get("num_replicas", 1) if isinstance(ranks, Mapping) else None
    if not isinstance(count, int) or not 1 <= count < 1 << 31:
        raise StateError(f"the state's ranks must have num_replicas, got {own.get('ranks')!r:.200}")
    return count


def _is_loader(value: object) -> bool:
    from penstock.loader.loader import DataLoader

    torch_data = sys.modules.get("torch.utils.data")
    return isinstance(value, DataLoader) or (torch_data is not None and isinstance(value, torch_data.DataLoader))


def _load_loader(value: str, state: StateDict) -> Any:
    """The loader of a script, which finds as many ranks as the state is of, and is the first of them."""
    from penstock.loader.loader import DataLoader
    from penstock.ranks import World, assume_world, find_world

    count = _count_ranks(_own_part(state)[0])
    with assume_world(World(count, 0, source="state")) if count > 1 and not find_world().source else nullcontext():
        loader = make_object(value, "LOADER", _is_loader, "a loader")
    if not isinstance(loader, DataLoader):
        from penstock.torch.loader.adopting import adopt
        from penstock.torch.loader.dataloader import DataLoader as TorchLoader

        loader = loader if isinstance(loader, TorchLoader) else adopt(loader)
    here = max(getattr(each, "num_replicas", 1) for each in (loader.sampler, loader.batch_sampler))
    if here != count:
        raise ArgumentError(
            f"{value} makes a loader of {here} rank(s), and the state is of {count}: set WORLD_SIZE={count} and "
            "RANK=0, or whatever the script takes them from"
        )
    return loader


def _make_loader(url: str, state: StateDict) -> Any:
    """A loader of all records of a store in the order of a state, if that is an order of all of it."""
    from penstock.datasets.store.dataset import StoreDataset
    from penstock.loader.loader import DataLoader
    from penstock.samplers import DistributedSampler

    own, is_torch = _own_part(state)
    cls: Any = DataLoader
    order, sampler = own["order"], own["order"].get("sampler") or {}
    dataset = StoreDataset(open_store(url))
    kind, seed = sampler.get("type"), order.get("seed") if is_torch else own.get("seed")
    if is_torch:
        from penstock.torch.loader.dataloader import DataLoader as TorchLoader

        cls = TorchLoader
    if kind == "DistributedSampler" and "shuffle" in sampler:
        ranked = DistributedSampler(
            dataset, _count_ranks(own), 0, sampler["shuffle"], own["sampler_seed"] or 0, sampler["drop_last"]
        )
        more: StateDict = {"sampler": ranked}
    elif kind in {"RandomSampler", "SequentialSampler"} and not sampler.get("replacement"):
        more = {"shuffle": kind == "RandomSampler"}
    else:
        raise ArgumentError(
            f"LOADER must be FILE.py:NAME for a state of {kind}: a store alone does not say what that draws from"
        )
    return cls(dataset, batch_size=order.get("batch_size"), drop_last=bool(order.get("drop_last")), seed=seed, **more)
