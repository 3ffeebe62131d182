"""A loader's numbers for programs that collect and draw them; none of these is imported, or needed.

::

    loader.report_to(ScalarWriter(writer.add_scalar))             TensorBoard
    loader.report_to(ScalarWriter(log=wandb.log))                 Weights & Biases
    loader.serve_metrics(9400)                                    Prometheus asks for them
    Path("loader.prom").write_text(format_prometheus(loader.stats()))
    observe(meter, loader)                                        OpenTelemetry

Where to find what:

- scalars of a span of time: ``scalars.py``
- names, text formats, OpenTelemetry: ``exposition.py``
- the HTTP server: ``serving.py``
- the sentence about the last five minutes: ``penstock/loader/stats.py``
"""

from __future__ import annotations

from penstock.loader.metrics.exposition import format_prometheus, observe
from penstock.loader.metrics.scalars import ScalarWriter, list_scalars

__all__ = ["ScalarWriter", "format_prometheus", "list_scalars", "observe"]
