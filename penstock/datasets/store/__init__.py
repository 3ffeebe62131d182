"""The dataset of the records of a store, and what its batches hold.

Where to find what:

- why a dataset fills rows or not: ``sample_plan.py``
- how a record's boxes and labels become rows of a batch: ``moved_arrays.py``
- which forms of detection batches there are, and how a batch gets one: ``batch_forms.py``, ``batch_assembly.py``;
  ``docs/decisions/0027-*``
- seek tables made while images are decoded: ``seek_tables.py``
"""
