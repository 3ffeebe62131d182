"""serve_metrics(): a loader's counters by HTTP, in two formats, for as long as the loader lives."""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import pickle
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import ArgumentError
from penstock.loader import stats as stats_module
from penstock.loader.metrics import serving
from tests.loader.fakes import Samples

OPEN = "application/openmetrics-text; version=1.0.0; q=0.5, text/plain; version=0.0.4; q=0.3"
DASHBOARD = Path(__file__).parents[2] / "docs/howto/grafana-dashboard.json"
SUFFIXES = {"counter": "_total", "info": "_info", "gauge": ""}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert serving._servers == {}


def ask(url: str, accept: str = "*/*") -> tuple[str, str]:
    """The content type and the text of an answer."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def parse(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of each name; labels as they are written."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z_]+)\{((?:[a-z]+=\"[^\"]*\",?)*)\} (\S+)", line)
            assert match is not None, line
            found.setdefault(match[1], []).append((dict(re.findall(r'([a-z]+)="([^"]*)"', match[2])), float(match[3])))
    return found


def test_prometheus_gets_its_own_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered, waited for and worked, with the labels of the loader."""
    monkeypatch.setattr(stats_module, "_LEAST_S", 0.0)
    loader = ps.DataLoader(Samples(20), 5, num_workers=1, workers="threads")
    list(loader)

    with loader.serve_metrics(name="train") as served:
        kind, text = ask(served.url)

    found, labels = parse(text), {"loader": "train", "rank": "0"}
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    assert found["penstock_batches_total"] == [(labels, 4.0)]
    assert found["penstock_samples_total"] == [(labels, 20.0)]
    assert found["penstock_workers"] == [(labels, 1.0)]
    assert found["penstock_epoch_seconds_total"][0][1] >= found["penstock_wait_seconds_total"][0][1] > 0
    assert {"stage": "read", "worker": "0", **labels} in [each for each, _ in found["penstock_stage_seconds_total"]]
    assert found["penstock_build_info"][0][0].keys() == {*labels, "version", "python"}
    assert found["penstock_verdict_info"][0][0]["verdict"].startswith("in the last ")


def test_who_asks_for_open_metrics_gets_it() -> None:
    """Type, unit and help of a family before its samples, which carry its suffix; the end is marked."""
    loader = ps.DataLoader(Samples(20), 5, num_workers=1, workers="threads")
    list(loader)

    with loader.serve_metrics() as served:
        kind, text = ask(served.url, OPEN)
        _, plain = ask(served.url)

    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("\n# EOF\n")
    family = type_ = ""
    families: list[str] = []
    for line in text.splitlines()[:-1]:
        words = line.split(" ")
        if line.startswith("# TYPE "):
            family, type_ = words[2:]
            families.append(family)
        elif line.startswith("#"):
            assert words[1] in {"UNIT", "HELP"}
            assert words[2] == family
            assert words[1] == "HELP" or family.endswith(f"_{words[3]}")
        else:
            assert line.startswith(f"{family}{SUFFIXES[type_]}{{"), line
            assert math.isfinite(float(words[-1]))
    assert len(families) == len(set(families)) > 15
    assert "# UNIT penstock_wait_seconds seconds\n" in text
    assert parse(text).keys() == parse(plain).keys()


def test_loaders_of_a_process_share_a_port() -> None:
    """Each has its label; one that ends leaves the others; the last one frees the port."""
    train, valid = ps.DataLoader(Samples(20), 5), ps.DataLoader(Samples(4), 2)
    list(valid)
    first = train.serve_metrics(name="train")
    second = valid.serve_metrics(first.port, name="valid")

    assert second.url == first.url
    assert {labels["loader"]: n for labels, n in parse(ask(first.url)[1])["penstock_batches_total"]} == {
        "train": 0.0, "valid": 2.0,
    }  # fmt: skip

    first.close()
    first.close()
    assert [labels["loader"] for labels, _ in parse(ask(second.url)[1])["penstock_batches_total"]] == ["valid"]

    second.close()
    with pytest.raises(urllib.error.URLError):
        ask(second.url)
    again = train.serve_metrics(first.port)
    again.close()


def test_a_name_is_one_loaders() -> None:
    """Two series with the same labels would be no metrics."""
    train, valid = ps.DataLoader(Samples()), ps.DataLoader(Samples())

    with train.serve_metrics() as served:
        assert train.serve_metrics(served.port).url == served.url
        with pytest.raises(ArgumentError, match="name='loader' is another loader's"):
            valid.serve_metrics(served.port)


def test_a_port_that_is_taken_is_named() -> None:
    """The error says which, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ArgumentError, match=rf"port {port} of 127\.0\.0\.1 cannot be listened on: .* in use; give"):
            ps.DataLoader(Samples()).serve_metrics(port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    """Before anything is opened."""
    with pytest.raises(ArgumentError, match=r"port must be in \[0, 65535\]"):
        ps.DataLoader(Samples()).serve_metrics(port)


def test_the_server_ends_with_the_loader() -> None:
    """The handle does not hold it, and neither does the server."""
    loader = ps.DataLoader(Samples())
    served = loader.serve_metrics()

    del loader
    gc.collect()

    with pytest.raises(urllib.error.URLError):
        ask(served.url)
    served.close()


def test_only_this_machine_is_answered_by_default() -> None:
    """Another host is for whoever says so."""
    loader = ps.DataLoader(Samples())
    with loader.serve_metrics() as served:
        server = serving._servers["127.0.0.1", served.port]

        assert server.socket.getsockname()[0] == "127.0.0.1"
    with loader.serve_metrics(host="::1") as served:
        assert served.url == f"http://[::1]:{served.port}/metrics"
        assert "penstock_batches_total" in ask(served.url)[1]


def test_each_rank_has_a_port_and_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank on the machine is added to the port; the label is the rank of the job."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    for name, value in {"RANK": 9, "WORLD_SIZE": 16, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 8}.items():
        monkeypatch.setenv(name, str(value))

    loader, valid = ps.DataLoader(Samples()), ps.DataLoader(Samples())
    with loader.serve_metrics(port - 1) as served:
        assert served.port == port
        for again in (port - 1, port):
            with valid.serve_metrics(again, name="valid") as shared:
                assert shared.port == port
        assert parse(ask(served.url)[1])["penstock_batches_total"] == [({"loader": "loader", "rank": "9"}, 0.0)]


def test_there_is_nothing_else_at_the_server() -> None:
    """Another path, and another method, are errors, and nothing is printed or written."""
    loader = ps.DataLoader(Samples())
    with loader.serve_metrics() as served:
        assert ask(served.url.removesuffix("metrics"))[1] == ask(served.url)[1]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(f"{served.url}/other")
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(served.url, data=b"", timeout=10)


def test_a_client_that_goes_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails ends alone: the next one is answered."""
    failed = threading.Event()

    def fail(_server: Any, *, is_open: bool) -> str:
        failed.set()
        raise BrokenPipeError(f"gone {is_open}")

    loader = ps.DataLoader(Samples())
    with loader.serve_metrics() as served, caplog.at_level(logging.WARNING):
        with monkeypatch.context() as patch:
            patch.setattr(serving._Server, "format", fail)
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                ask(served.url)
        assert failed.wait(10)

        assert "penstock_batches_total" in ask(served.url)[1]
    assert "a request for metrics failed" in caplog.text


@pytest.mark.parametrize("kind", [{}, {"num_workers": 2, "workers": "processes"}], ids=["serial", "processes"])
def test_batches_are_the_same_whoever_asks(kind: dict[str, Any]) -> None:
    """Forked workers do not serve, and a scrape takes nothing."""
    expected = list(ps.DataLoader(Samples(20), 5, shuffle=True, seed=3, **kind))
    loader = ps.DataLoader(Samples(20), 5, shuffle=True, seed=3, **kind)

    with loader.serve_metrics() as served:
        found = [(batch, parse(ask(served.url)[1])["penstock_batches_total"][0][1]) for batch in loader]

    assert [str(batch) for batch, _ in found] == [str(batch) for batch in expected]
    assert [count for _, count in found] == [1, 2, 3, 4]


def test_a_forked_child_does_not_serve() -> None:
    """It lets go of the port, and what it closes is its own."""
    loader = ps.DataLoader(Samples())
    served = loader.serve_metrics()

    pid = os.fork()
    if not pid:
        is_free = serving._servers == {}
        served.close()
        os._exit(0 if is_free else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert code == 0
    assert "penstock_batches_total" in ask(served.url)[1]
    served.close()


def test_a_copy_is_not_served() -> None:
    """A loader that is served can be pickled."""
    loader = ps.DataLoader(Samples())

    with loader.serve_metrics() as served:
        copy = pickle.loads(pickle.dumps(loader))
        list(copy)

        assert [count for _, count in parse(ask(served.url)[1])["penstock_batches_total"]] == [0.0]


def test_the_dashboard_asks_for_names_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every metric of its queries is in the exposition, with every label that they name."""
    monkeypatch.setattr(stats_module, "_LEAST_S", 0.0)
    loader = ps.DataLoader(Samples(20), 5, num_workers=1, workers="threads")
    list(loader)
    with loader.serve_metrics() as served:
        found = parse(ask(served.url)[1])
    text = DASHBOARD.read_text()

    panels = json.loads(text)["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    names = set(re.findall(r"penstock_[a-z_]+", text)) - {"penstock_loader"}
    labels = {label for query in queries for each in re.findall(r"by \(([^)]*)\)", query) for label in each.split(", ")}

    assert len(queries) >= 8
    assert names <= found.keys()
    assert labels <= {label for samples in found.values() for each, _ in samples for label in each}
