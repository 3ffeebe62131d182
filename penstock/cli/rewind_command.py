"""The command ``rewind``: what a step of a training saw, from a state of its loader in a file.

The file is JSON (``.json``), or what ``torch.save`` wrote, of which only numbers, texts and tensors are read: no code
in it is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption, open_store
from penstock.cli.printing import print_json, print_line
from penstock.cli.user_files import make_object
from penstock.errors import ArgumentError, StateError

if TYPE_CHECKING:
    from penstock.loader.loader import DataLoader
    from penstock.loader.state import SavedOrder
    from penstock.torch.loader.dataloader import DataLoader as TorchLoader

__all__ = ["rewind"]


@app.command()
def rewind(
    state: Annotated[
        Path,
        typer.Argument(metavar="STATE", help="A file with a loader's state: .json, or a checkpoint of torch.save."),
    ],
    loader: Annotated[
        str,
        typer.Argument(metavar="LOADER", help="FILE.py:NAME, a loader or what returns it; or its store, for records."),
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
    from penstock.loader.state import SavedOrder
    from penstock.sheets.canvas import check_output, refuse_existing
    from penstock.sheets.past import describe, list_draws, list_lines
    from penstock.sheets.showing import show

    if output is not None:
        refuse_existing(check_output(output), overwrite=overwrite)  # before the script is run
    found = _read_states(state)
    entry = next(iter(found)) if entry is None and len(found) == 1 else entry
    if entry not in found:
        names = ", ".join(map(repr, list(found)[:20])) or "none"
        raise ArgumentError(f"--entry must name a state of a loader in {state}, got {entry!r}; it has: {names}")
    is_script = loader.rpartition(":")[0].endswith(".py")
    made = (_load_loader if is_script else _make_loader)(loader, SavedOrder(found[entry]))
    made.load_state_dict(found[entry])
    samples = made.samples_of(step, epoch=epoch, rank=rank)
    if output is not None:
        show(samples, len(samples), output=output, overwrite=overwrite)
    draws = list_draws(samples) if is_script else [{}] * len(samples)
    if as_json:
        print_json(describe(samples, draws))
        return
    for line in list_lines(samples, draws):
        print_line(line)


def _read_states(path: Path) -> dict[str, Mapping[str, object]]:
    """The states of loaders in a file, by where they are in it."""
    from penstock.loader.state import find_states
    from penstock.registry import require

    torch = None
    if path.suffix != ".json":
        torch = require("torch", extra="torch", purpose="to read a state from a file that is not named .json")
    try:
        read = json.loads(path.read_text("utf-8")) if torch is None else torch.load(path, "cpu", weights_only=True)
        return dict(find_states(read))
    except Exception as error:  # whatever a damaged or foreign file makes a reader raise
        why = "as JSON" if torch is None else "as a file of torch.save, without running code in it"
        raise StateError(f"{path} cannot be read {why}; save the loader's state by itself, with json.dump") from error


def _load_loader(value: str, saved: SavedOrder) -> DataLoader[object]:
    """The loader of a script, which finds as many ranks as the state is of, and is the first of them."""
    from penstock.ranks import World, assume_world, find_world

    count = saved.num_replicas
    with assume_world(World(count, 0, source="state")) if count > 1 and not find_world().source else nullcontext():
        loader = make_object(value, "LOADER", lambda made: hasattr(made, "samples_of"), "a loader of penstock's")
    saved.check_ranks(loader.sampler, loader.batch_sampler)
    found: DataLoader[object] = loader
    return found


def _make_loader(url: str, saved: SavedOrder) -> DataLoader[object] | TorchLoader[object]:
    """A loader of all records of a store, in the order of a state."""
    from penstock.datasets.store.dataset import StoreDataset
    from penstock.loader.loader import DataLoader

    dataset = StoreDataset(open_store(url))
    arguments = saved.choose_arguments(dataset)
    if not saved.is_torch:
        return DataLoader(dataset, **arguments)
    from penstock.torch.loader.dataloader import DataLoader as TorchLoader

    return TorchLoader(dataset, **arguments)
