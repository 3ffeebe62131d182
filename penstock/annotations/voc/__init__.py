"""PASCAL VOC's XML files."""
