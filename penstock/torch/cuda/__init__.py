"""Batches that a CUDA device decodes: ``DataLoader(dataset, ..., decode="cuda")``.

::

    workers   dataset.fill ──> packets: compressed bytes under the crops, seek points, drawn parameters     no decoding
    worker    page-locked slot ──one copy──> device ──kernels──> (n, 3, H, W) on the device
              an image whose bytes are damaged ──> the CPU's path, which raises its error or repairs it

``packets.py`` says where things are in memory, ``decoder.py`` in which order kernels run, ``compiler.py`` compiles
them once, ``build.py`` is what workers do. The kernels (``kernels/``) also compile as C++, which is how their results
are compared with the CPU's where there is no device.

Where to find what:

- which ops run on a device, and as which launches: ``augmenting.py``; each op's steps: ``augmenting_steps.py``; their
  kernels: ``kernels/augment.h``, ``kernels/neighbours.h``, ``kernels/mix.h``
- kernels without a device: the shim ``kernels/grid.h``; ``tests/torch/cuda/``
- order and memory: ``decoder.py``, ``packets.py``; streams and errors: ``runtime.py``; what is compiled:
  ``compiler.py``, ``cubin_cache.py``
- whether a device can decode for a loader: ``penstock/torch/loader/device_decoding.py``
- what a device is given: ``penstock/transforms/program/packet_program.py``; ``native/core/src/jpeg/packet/``;
  ``docs/decisions/0030-*``
- what is tested and measured on a machine with a device: ``benches/device/``; ``docs/gpu.md``, "On hardware"
"""
