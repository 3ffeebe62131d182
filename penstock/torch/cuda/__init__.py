"""Batches that a CUDA device decodes: ``DataLoader(dataset, ..., decode="cuda")``.

::

    workers   dataset.fill ──> packets: compressed bytes under the crops, seek points, drawn parameters     no decoding
    worker    page-locked slot ──one copy──> device ──kernels──> (n, 3, H, W) on the device
              an image whose bytes are damaged ──> the CPU's path, which raises its error or repairs it

``packets.py`` says where things are in memory, ``decoder.py`` in which order kernels run, ``compiler.py`` compiles
them once, ``build.py`` is what workers do. The kernels (``kernels/``) also compile as C++, which is how their results
are compared with the CPU's where there is no device.
"""
