"""LMDB environments of other programs, one module a layout."""
