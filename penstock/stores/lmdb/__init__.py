"""LMDB files of other programs, one module a layout; and the pages that packs share with them."""
