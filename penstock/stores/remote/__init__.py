"""Stores in object storage and behind web servers: their bytes are fetched when they are read, and kept in a cache.

::

    ps.open("s3://bucket/photos.lmdb")
       │ opening.py     which kind is it: its first bytes say so, as for a file of this machine
       v
    LmdbStore(Location: a file in the cache, and the URL that it is a copy of)
       │ reads bytes as of any file: common/mapped_files.py gives it the copy as its source
       v
    Mirror (mirror.py)  the copy: a sparse file, and a table of its pages with their hashes
       │ what is missing
       v
    Place (object_store.py)    ranges of objects by obstore (or fsspec_library.py), with retries
    Fetcher (request_queue.py) many requests at once, in the order in which they were asked for

    Upload (upload.py)         files ──parts──> WritablePlace (writable_place.py), read back and compared

Several URLs and patterns are opened by shards.py, folders of images by folder.py.
A process that opens no remote store imports nothing of this folder.

Where to find what:

- requests and retries: ``object_store.py``, ``request_queue.py``
- copies of objects: ``mirror.py``, ``sparse_file.py``; the cache: ``cache.py``; ``docs/decisions/0037-*``
- writing: objects ``writable_place.py``; files, read back and compared, ``upload.py``
"""
