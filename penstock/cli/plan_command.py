"""The command ``plan``: what each rank of a job would get, computed and not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.arguments import JsonOption, LayoutOption, StoreOptions, open_store
from penstock.cli.printing import print_json, print_line
from penstock.errors import ArgumentError
from penstock.paths import parse_size
from penstock.wording import counted, format_bytes

if TYPE_CHECKING:
    from penstock.simulation import Bounds, RankShares, Simulation

__all__ = ["plan"]


@app.command()
def plan(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="A store, which gives --samples and --record-size.")
    ] = None,
    *,
    ranks: Annotated[int, typer.Option(help="Number of processes that train together.")],
    batch_size: Annotated[int, typer.Option(help="Samples per batch of one rank.")],
    samples: Annotated[str | None, typer.Option(metavar="NUMBER", help="Samples of an epoch, such as `1e9`.")] = None,
    shuffle: Annotated[bool, typer.Option(help="Whether each epoch has a new order.")] = True,
    uneven: Annotated[
        str, typer.Option(help="For equal steps, repeat samples, `pad`, or leave some out, `drop`; `keep`: neither.")
    ] = "pad",
    drop_last: Annotated[bool, typer.Option("--drop-last", help="Leave out a last batch that is short.")] = False,
    workers: Annotated[int, typer.Option(help="Workers of each rank.")] = 0,
    prefetch_factor: Annotated[int, typer.Option(help="Batches per worker under way or ready.")] = 2,
    sample_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes of a sample in a batch, such as `602112` or `600KB`.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Samples that each rank trains on in a second.")] = None,
    resume_ranks: Annotated[
        list[int] | None,
        typer.Option(help="Stop in mid-epoch, and resume with so many ranks. May be given several times."),
    ] = None,
    record_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Mean bytes of a record in object storage, such as `110KB`.")
    ] = None,
    cache_size: Annotated[str, typer.Option(metavar="SIZE", help="Most bytes of the cache of a node.")] = "50GB",
    ranks_per_node: Annotated[int, typer.Option(help="Ranks that share a cache.")] = 8,
    request_ms: Annotated[float, typer.Option(help="Milliseconds from a request to its answer.")] = 50.0,
    bandwidth: Annotated[str, typer.Option(metavar="SIZE", help="Bytes a second that each rank receives.")] = "100MB",
    epochs: Annotated[int, typer.Option(help="Epochs whose requests are shown.")] = 3,
    as_json: JsonOption = False,
    layout: LayoutOption = None,
    option: StoreOptions = None,
) -> None:
    """Compute what each rank of a job gets: steps, repeats, memory, states, and requests to object storage."""
    from penstock.simulation import ObjectStorage, measure_records, simulate

    if (store is None) == (samples is None):
        raise ArgumentError("plan needs one of STORE and --samples")
    record_nbytes = None if record_size is None else parse_size(record_size, "--record-size")
    if store is None:
        count = _parse_count(samples)
    else:
        with open_store(store, None, layout, option) as opened:
            count, record_nbytes = len(opened), measure_records(opened) if record_nbytes is None else record_nbytes
    storage = None
    if record_nbytes is not None:
        cache_nbytes, rate_nbytes = parse_size(cache_size, "--cache-size"), parse_size(bandwidth, "--bandwidth")
        storage = ObjectStorage(record_nbytes, cache_nbytes, ranks_per_node, request_ms / 1000, rate_nbytes, epochs)
    found = simulate(
        count,
        ranks,
        batch_size,
        shuffle=shuffle,
        uneven=uneven,
        drop_last=drop_last,
        num_workers=workers,
        prefetch_factor=prefetch_factor,
        sample_nbytes=None if sample_size is None else parse_size(sample_size, "--sample-size"),
        samples_per_second=rate,
        resume_ranks=resume_ranks or (),
        storage=storage,
    )
    if as_json:
        print_json(found)
        return
    print_line(f"{counted(count, 'sample')}, {counted(ranks, 'rank')}, batch size {batch_size:,}")
    _print_plan(found)


def _print_plan(found: Simulation) -> None:
    """Print the report, and the table of requests to object storage."""
    for name, text in _list_report_rows(found):
        print_line(f"  {name:<10}{text}")
    if found.nodes is not None:
        print_line(f"object storage, {counted(found.nodes, 'node')} with a cache each")
        rows = list(_list_requests(found, found.nodes))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print_line("  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


def _list_report_rows(found: Simulation) -> Iterator[tuple[str, str]]:
    """The rows of the report but for object storage."""
    shares, drawn = found.shares, found.coverage
    yield "steps", f"{_range(shares.steps)} on each rank"
    yield "samples", f"{_range(shares.samples)} on each rank; {_odd(shares)}"
    which = "all draws" if drawn.is_exact else f"{counted(drawn.draws, 'draw')} at random positions"
    yield "order", f"{which} computed: {counted(drawn.distinct, 'sample')} in {counted(drawn.draws, 'draw')}"
    nbytes = "" if found.batches_nbytes is None else f": {format_bytes(found.batches_nbytes)}"
    ahead = "" if found.look_ahead_nbytes is None else f", and {format_bytes(found.look_ahead_nbytes)} of look-ahead"
    yield "memory", f"{counted(found.batches, 'batch')} on each rank{nbytes}{ahead}"
    yield "state", f"{counted(found.state_nbytes, 'byte')}, equal on all ranks"
    if found.hours is not None:
        yield "epoch", f"{found.hours:,.2f} hours of training"
    for each in found.resumes:
        at = f"after {counted(each.consumed, 'sample')} on {counted(each.num_replicas, 'rank')}"
        step = counted(each.num_replicas * found.batch_size, "sample")
        yield "resume", f"{at}: steps left {_range(each.steps)}, each of {step}; {_odd(each)}"


def _list_requests(found: Simulation, nodes: int) -> Iterator[list[str]]:
    """Yield the rows of the table of requests, of which the first has the names."""
    yield ["epoch", "cached", "requests", "a rank", "a node", "an hour", "bytes", "a node", "an hour", "hours", "limit"]
    for each in found.requests:
        counts = [each.requests // part for part in (1, found.shares.num_replicas, nodes)]
        sizes = [each.nbytes, each.nbytes / nodes, each.nbytes_per_hour]
        row = [str(each.epoch), f"{each.hit_rate:.1%}", *(f"{count:,}" for count in (*counts, each.requests_per_hour))]
        yield [*row, *map(format_bytes, sizes), f"{each.hours:,.2f}", each.limited_by]


def _range(bounds: Bounds) -> str:
    return f"{bounds.most:,}" if bounds.least == bounds.most else f"{bounds.least:,} to {bounds.most:,}"


def _odd(shares: RankShares) -> str:
    return f"{counted(shares.repeated, 'sample')} repeated, {shares.left_out:,} left out"


def _parse_count(text: str | None) -> int:
    """Return the number of ``1e9``, ``1_000_000`` or ``1,000``."""
    plain = (text or "").replace(",", "").replace("_", "")
    try:
        return int(plain) if plain.isdecimal() else int(float(plain))
    except (ValueError, OverflowError):
        raise ArgumentError(f"--samples must be a number, such as 1e9, got {text!r:.50}") from None
