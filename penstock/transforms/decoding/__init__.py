"""From encoded bytes to pixels, and back.

Where to find what:

- which formats are decoded, and by what: ``image_formats.py``, ``fallback.py``; JPEG, PNG, WebP natively:
  ``native_pixels.py``
- modes (BGR, gray, alpha, 16 bits): ``modes.py``; colour PNGs of 16 bits: ``fallback.py``; ICC profiles:
  ``color_profiles.py``
"""
