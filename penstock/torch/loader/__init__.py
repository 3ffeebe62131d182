"""The DataLoader with torch's arguments, order, random draws and errors.

Where to find what:

- what torch does, and what differs on purpose: ``dataloader.py``
- when random numbers are drawn, and how an epoch is begun again: ``epoch_draws.py``, ``randomness.py``
- states in torchdata's layout: ``state.py``, ``saving.py``
"""
