"""Compiled pipelines: one native call for a chunk of rows.

Where to find what:

- which ops are fused: ``program.py``; how rows are filled: ``row_filling.py``
- what is drawn natively: ``native/core/src/fill/steps.rs``; gray of 16 bits: ``native/core/src/fill/deep.rs``
- stored pixels: ``pixel_program.py``; ``native/core/src/fill/stored.rs``
- packets for a device: ``packet_program.py``
- what of a picture is seen: ``seen_window.py``
"""
