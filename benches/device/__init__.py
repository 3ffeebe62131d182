"""A session on a machine with a device: ``benches/device_session.sh``.

::

    build    bundle.py ──> FOLDER: parts of a tar file, hashes, device_session.sh                 needs no device
    run      packages.py: packages that the machine lacks
             session.py: a process a stage, with a limit ──> OUT/session.json after each stage
                 versions, pixels, kernels, loaders, training, tests, sanitizer
             goals.py, report.py: what was reached, a table in Markdown
    rehearse the same stages; the kernels run on the processor (device.py)

A stage is a program, ``python -m benches.device.NAME``: after an error of CUDA its process can do no more, and the next
stage runs in another one. Stages do not import each other. ``program.py`` has what they share.
"""
