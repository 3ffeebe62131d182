"""Containers of columns: Arrow, Parquet, Lance, Hugging Face's datasets.

Where to find what:

- Parquet, Arrow, Lance, datasets in memory: ``columnar.py``; values of single rows: ``columns.py``
- pages of Parquet: ``parquet_pages.py``; how its writer is resumed: ``docs/decisions/0024-*``
- which column is the image, the label, the key: ``fields.py``
"""
