"""A local server that shows a store, and what a loader makes of it, in a browser: ``ps.view``, ``penstock view``.

::

    server/    the application and its guard, the thread that runs it        browse/   records, thumbnails, pictures
    find/      filters, facts of all records, histograms                     picks/    picked records, exports
    model/     a pipeline step by step, batches                              compare/  two stores; predictions
    live/      a running loader                                              page/     HTML, CSS, ES modules

Each folder with a module ``routes`` adds its requests by one line in :mod:`penstock.viewer.server.app`. Starlette and
uvicorn are imported when a viewer is started (extra ``view``). Nothing is written to a store.
"""
