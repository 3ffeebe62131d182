"""What stores of several kinds use: mapped files, keys, indices of records, compression, journals of writers.

Where to find what:

- bytes of files and of copies of remote objects, with bounds: ``mapped_files.py``, ``mirrors.py``;
  ``docs/decisions/0049-*``; what each process opens: ``per_process.py``
- random access to compressed files: ``decompressed.py``; the compressions: ``compression.py``
- how a killed writer is resumed: ``journal.py``; files: ``file_writer.py``; LMDB: ``lmdb/environment_writer.py``
- tables of CSV and JSON: ``table_files.py``
- what one scan found, kept beside a container: ``record_index.py``
- where decoding may begin inside a JPEG: ``seek_table_file.py``; ``docs/decisions/0009-*``
- who reads ahead: ``read_ahead.py``
"""
