//! Penstock's pixels: JPEG decoding, resampling and the fused fill of a batch's rows. Knows no Python.
