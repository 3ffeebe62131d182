"""Containers of columns: Arrow, Parquet, Lance, Hugging Face's datasets."""
