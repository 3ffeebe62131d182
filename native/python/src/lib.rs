//! Python bindings: they check arguments, release the GIL and map errors. They compute no pixels.
//!
//! Each module has the functions of one purpose; `_native` registers them.

mod arrays;
mod bytes;
mod checksum;
mod errors;
mod images;
mod jpeg;
mod level;
mod memory;
mod pack;
mod packets;
mod page_cache;
mod parts;
mod pixels;
mod random;
mod resize;
mod rows;
mod samples;
mod seek_tables;
mod stack;
mod stored;
mod stored_call;
mod stored_tables;
mod target;
mod tf_example;

use pyo3::prelude::*;

/// Penstock's native core: decoding of JPEG, PNG and WebP, resizing and filling batches, without the GIL.
///
/// Work is done on the calling thread, unless more threads are requested. Images are HWC uint8 RGB; encoded images are
/// bytes, bytearray, memoryview or one-dimensional uint8 arrays. Every function may be called from any number of
/// threads at once. Arrays must not be written to while a call reads them, and a row of a batch must not be written by
/// two calls at once.
#[pymodule(gil_used = false)]
mod _native {
    use penstock_core::fill::{Geometry, Step};

    #[pymodule_export]
    use crate::checksum::crc32c;
    #[pymodule_export]
    use crate::errors::{CorruptError, TooLargeError, UnsupportedError};
    #[pymodule_export]
    use crate::images::{decode, decode_samples, decode_values, orientations, sizes};
    #[pymodule_export]
    use crate::jpeg::{
        build_index, coefficients_from_jpeg, decode_damaged, inspect, inspect_index, jpeg_from_coefficients,
        transcode_baseline,
    };
    #[pymodule_export]
    use crate::level::{features, level_override};
    #[pymodule_export]
    use crate::pack::{find_blobs, hash_pages};
    #[pymodule_export]
    use crate::packets::write_packets;
    #[pymodule_export]
    use crate::page_cache::{read_ahead, write_at};
    #[pymodule_export]
    use crate::parts::fill_parts;
    #[pymodule_export]
    use crate::pixels::{adjust, blur, blur_floats, mix, sharpen, shift_hsv, warp, warp_window};
    #[pymodule_export]
    use crate::random::{draw_geometry, resized_crop_windows, uniforms};
    #[pymodule_export]
    use crate::resize::resize;
    #[pymodule_export]
    use crate::rows::{fill, fill_pixels};
    #[pymodule_export]
    use crate::samples::{fill_samples, resize_samples};
    #[pymodule_export]
    use crate::stack::{concat, gather};
    #[pymodule_export]
    use crate::stored::{fill_arrays, fill_stored};
    #[pymodule_export]
    use crate::stored_tables::read_tables;
    #[pymodule_export]
    use crate::tf_example::example_features;

    /// Number of columns of `fill`'s geometry.
    #[pymodule_export]
    const GEOMETRY_COLUMNS: usize = Geometry::COLUMNS;
    /// Numbers of a step of `draw_geometry`.
    #[pymodule_export]
    const STEP_NUMBERS: usize = Step::NUMBERS;
}
