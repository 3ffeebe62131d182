//! Bindings: check arguments, release the GIL, map errors. No pixel is touched here.

mod arrays;
mod bytes;
mod call;
mod errors;
mod level;
mod memory;
mod pixels;
mod random;
mod seek_tables;
mod stack;
mod target;

use pyo3::prelude::*;

/// Penstock's native core: JPEG decoding, resizing and filling batches, without the GIL.
///
/// Work is done on the calling thread, unless more are asked for. Images are HWC uint8 RGB; encoded images are bytes,
/// bytearray, memoryview or one-dimensional uint8 arrays. Every function may be called from any number of threads at
/// once; arrays must not be written to while a call reads them, and rows of a batch not by two calls at once.
#[pymodule]
mod _native {
    use penstock_core::fill::Geometry;
    use penstock_core::jpeg::{Header, Limits};
    use pyo3::prelude::*;
    use pyo3::types::PyBytes;

    use crate::arrays::{Array, Batch, NewArray};
    use crate::bytes::{Encoded, EncodedImages};
    use crate::call::{self, Facts, Failures};
    #[pymodule_export]
    use crate::errors::{CorruptError, TooLargeError, UnsupportedError};
    #[pymodule_export]
    use crate::level::{features, level_override};
    #[pymodule_export]
    use crate::pixels::{adjust, blur, blur_floats, mix, sharpen, warp};
    #[pymodule_export]
    use crate::random::uniforms;
    use crate::seek_tables::{FoundList, HintsPerImage, SeekTables};
    #[pymodule_export]
    use crate::stack::concat;
    use crate::target::Target;

    /// Columns of `fill`'s geometry.
    #[pymodule_export]
    const GEOMETRY_COLUMNS: usize = Geometry::COLUMNS;

    /// Width and height of JPEGs, as far as the native decoder reads them.
    ///
    /// Parameters
    /// ----------
    /// images : sequence of buffer
    ///     Encoded images.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (n, 2), int32
    ///     Width and height in pixels; (0, 0) where the image must be asked of Pillow (not a JPEG, CMYK, 12-bit, a
    ///     damaged header ...).
    #[pyfunction]
    fn sizes(py: Python<'_>, images: EncodedImages) -> PyResult<NewArray<'_, i32>> {
        let mut sizes = NewArray::empty(py, &[images.0.len(), 2])?;
        let rows = sizes.values_mut().as_chunks_mut::<2>().0;
        py.detach(|| {
            for (row, image) in rows.iter_mut().zip(&images.0) {
                *row = match Header::parse(image.bytes(), &Limits::NONE) {
                    Ok(header) => [header.width() as i32, header.height() as i32],
                    Err(_) => [0, 0],
                };
            }
        });
        Ok(sizes)
    }

    /// Decodes a JPEG, or a region of it.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    /// region : tuple of four int, optional
    ///     x0, y0, x1, y1 in pixels, inside the image; the pixels equal those of the whole image, cropped. Rows below it
    ///     are not decoded; of an image of several scans all are, above and beside it.
    /// max_pixels : int
    ///     Largest width times height that the header may declare.
    /// max_nbytes : int
    ///     Most bytes that the coefficients of the whole image may take, if it has several scans (progressive ones have):
    ///     136 for each block of 8 x 8 samples, 6.4 a pixel in 4:4:4. The default is enough for `max_pixels`' default.
    /// scale : {1, 2, 4, 8}
    ///     At 1/scale of the size, by libjpeg's scaled inverse DCT. Sizes are rounded up and the region is mapped outward:
    ///     ``x0 // scale`` to ``ceil(x1 / scale)``.
    /// index, learn, found, threads
    ///     As `fill`'s, for this one image, whose number is 0.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (height, width, 3), uint8
    ///     RGB, a new array; gray is three equal channels. Bit-exact with libjpeg-turbo's slow integer IDCT and fancy
    ///     upsampling.
    ///
    /// Raises
    /// ------
    /// UnsupportedError
    ///     Left to Pillow.
    /// CorruptError
    ///     The bytes break the format.
    /// TooLargeError
    ///     More than `max_pixels` or `max_nbytes`; nothing was allocated.
    /// MemoryError
    ///     The system has no more memory.
    /// ValueError
    ///     The region is not inside the image.
    #[pyfunction]
    #[pyo3(signature = (image, region=None, max_pixels=134_217_728, scale=1, *, max_nbytes=1_073_741_824, index=None, learn=None, found=None, threads=1))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn decode<'py>(
        py: Python<'py>,
        image: Encoded,
        region: Option<(i32, i32, i32, i32)>,
        max_pixels: u64,
        scale: usize,
        max_nbytes: u64,
        index: Option<Encoded>,
        learn: Option<&str>,
        found: Option<FoundList<'py>>,
        threads: usize,
    ) -> PyResult<NewArray<'py, u8>> {
        let indices = index.map(|index| SeekTables(vec![Some(index)]));
        let hints = HintsPerImage::new(1, indices, learn, found.is_some(), threads)?;
        let limits = Limits { max_pixels, max_nbytes };
        call::decode(py, &image, region, limits, scale, &hints, found)
    }

    /// Makes a JPEG's index: where decoding may begin inside it, so that what a crop does not need is not read.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image, which stays as it is.
    /// kind : {"rows", "tiles"}
    ///     Places to begin: every row of MCUs (about 0.24 % of the file's size), or about every 64 pixels of it (2 %).
    /// max_pixels : int
    ///     Largest width times height that the header may declare.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     For `fill` and `decode`, with this very image. Bound to it by a check of 64 bits.
    ///
    /// Raises
    /// ------
    /// UnsupportedError, CorruptError, TooLargeError
    ///     As `decode` of the whole image.
    /// ValueError
    ///     Not a kind.
    #[pyfunction]
    #[pyo3(signature = (image, kind="rows", max_pixels=134_217_728))]
    fn build_index<'py>(py: Python<'py>, image: Encoded, kind: &str, max_pixels: u64) -> PyResult<Bound<'py, PyBytes>> {
        call::build_index(py, &image, kind, max_pixels)
    }

    /// What an index says about itself.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    /// index : buffer
    ///     Its index.
    ///
    /// Returns
    /// -------
    /// tuple of (str, int, int), or None
    ///     Its kind, how many places to begin it knows, and how many there are (fewer are known of an index that is still
    ///     being learned). None: damaged, or not of this image.
    #[pyfunction]
    fn inspect_index(image: Encoded, index: Encoded) -> Option<(&'static str, usize, usize)> {
        call::inspect_index(&image, &index)
    }

    /// Fills rows of a batch from encoded images: decode, crop, resize, flip, normalise.
    ///
    /// Parameters
    /// ----------
    /// images : sequence of buffer
    ///     ``n`` encoded images.
    /// geometry : ndarray, shape (n, 9), int32
    ///     x0, y0, x1, y1 (the region of the image), width, height (what it is resized to), left, top (where the output's
    ///     H x W window lies in that; inside it, unless `beside` is given), flip (bit 0: left and right, bit 1: top and
    ///     bottom; applied last).
    /// out : ndarray, shape (N, H, W, 3) or (N, 3, H, W), uint8, float16 or float32
    ///     The batch; C-contiguous. No other argument lies in its memory.
    /// rows : ndarray, shape (n,), int64
    ///     Image ``i`` goes to ``out[rows[i]]``; no row twice.
    /// layout : {"HWC", "CHW"}
    ///     Which of the two shapes.
    /// filter : {"box", "bilinear", "bicubic", "lanczos"}
    ///     Antialiased, as Pillow's `Image.resize` of the cropped region, within one level (bicubic and lanczos:
    ///     the same). A region that keeps its size keeps its pixels.
    /// scale, offset : sequence of three float, optional
    ///     Float batches: ``level * scale[c] + offset[c]`` in float32 (two roundings), then rounded to float16 if that is
    ///     the type. uint8 batches: None.
    /// max_pixels, max_nbytes : int
    ///     As `decode`'s, for each image.
    /// beside : sequence of three int, optional
    ///     Colour, 0 to 255, of what a window shows beside the resized region; it must show some of that.
    /// quality : float, optional
    ///     Decode each image at the smallest scale (1/1, 1/2, 1/4, 1/8) at which its region still has ``quality`` samples
    ///     across and down for each pixel of the size; at least 1. The result is that of the full-size picture with every
    ///     pixel replaced by the sample that covers it. None: always in full.
    /// indices : sequence of (buffer or None), optional
    ///     Each image's index, as `build_index` makes it or a call found it. Rows are the same without, and where an index
    ///     is wrong.
    /// learn : {"rows", "tiles"}, optional
    ///     Note the places that decoding comes by: in the given index, or in a new one of this kind.
    /// found : list, optional
    ///     Where to tell of indices; needed with `indices` and `learn`. Appended: ``(i, damaged, learned)`` for each image
    ///     of which there is something to tell: its index was found to be damaged or another image's (bool), and what
    ///     takes its place from now on (bytes; None: nothing was learned).
    /// threads : int
    ///     Threads that work on one image together, the calling one included, where a million pixels or more of it are
    ///     decoded: all of them by an index (or restart markers at every row), else two. Fewer where the system starts no
    ///     more. Rows are the same.
    ///
    /// Returns
    /// -------
    /// failures : list of (int, str, str)
    ///     ``i``, "unsupported" | "corrupt" | "too_large" | "out_of_memory", and a message; these rows are untouched.
    /// decode_ns, resize_ns : int
    ///     Time spent decoding, and resizing and writing.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Arguments that do not fit together; nothing was written, except where a region turns out not to lie inside its
    ///     image (the message names ``i``): then other rows may have been.
    #[pyfunction]
    #[pyo3(signature = (images, geometry, out, rows, *, layout, filter, scale=None, offset=None, max_pixels=134_217_728, max_nbytes=1_073_741_824, beside=None, quality=None, indices=None, learn=None, found=None, threads=1))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn fill<'py>(
        py: Python<'py>,
        images: EncodedImages,
        geometry: Array<i32>,
        out: Batch,
        rows: Array<i64>,
        layout: &str,
        filter: &str,
        scale: Option<[f32; 3]>,
        offset: Option<[f32; 3]>,
        max_pixels: u64,
        max_nbytes: u64,
        beside: Option<[u8; 3]>,
        quality: Option<f64>,
        indices: Option<SeekTables>,
        learn: Option<&str>,
        found: Option<FoundList<'py>>,
        threads: usize,
    ) -> PyResult<(Failures, u64, u64)> {
        let limits = Limits { max_pixels, max_nbytes };
        let target = Target::new(&out, layout, filter, [scale, offset], limits, quality, beside)?;
        let hints = HintsPerImage::new(images.0.len(), indices, learn, found.is_some(), threads)?;
        call::fill(py, &images.0, &geometry, &target, &rows, &hints, found)
    }

    /// The same as `fill` for one image that is already decoded.
    ///
    /// Parameters
    /// ----------
    /// image : ndarray, shape (height, width, 3), uint8
    ///     RGB; C-contiguous.
    /// geometry : ndarray, shape (9,), int32
    ///     As a row of `fill`'s.
    /// out, layout, filter, scale, offset, beside
    ///     As `fill`'s.
    /// row : int
    ///     The row of `out` to be filled.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Arguments that do not fit together; nothing was written.
    #[pyfunction]
    #[pyo3(signature = (image, geometry, out, row, *, layout, filter, scale=None, offset=None, beside=None))]
    #[allow(clippy::too_many_arguments)] // Python's keyword arguments
    fn fill_pixels(
        py: Python<'_>,
        image: Array<u8>,
        geometry: Array<i32>,
        out: Batch,
        row: i64,
        layout: &str,
        filter: &str,
        scale: Option<[f32; 3]>,
        offset: Option<[f32; 3]>,
        beside: Option<[u8; 3]>,
    ) -> PyResult<()> {
        let target = Target::new(&out, layout, filter, [scale, offset], Limits::NONE, None, beside)?;
        call::fill_pixels(py, &image, &geometry, &target, row)
    }

    /// Resizes an image, antialiased, as Pillow's `Image.resize` of the cropped region.
    ///
    /// Parameters
    /// ----------
    /// image : ndarray, shape (height, width, channels), uint8
    ///     1 or 3 channels; C-contiguous.
    /// width, height : int
    ///     The new size in pixels.
    /// filter : {"box", "bilinear", "bicubic", "lanczos"}
    ///     Within one level of Pillow's result; bicubic and lanczos: the same.
    /// region : tuple of four int, optional
    ///     x0, y0, x1, y1: only this part of the image.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (height, width, channels), uint8
    ///     A new array.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Arguments that do not fit together.
    #[pyfunction]
    #[pyo3(signature = (image, width, height, filter, region=None))]
    fn resize<'py>(
        py: Python<'py>,
        image: Array<u8>,
        width: i32,
        height: i32,
        filter: &str,
        region: Option<(i32, i32, i32, i32)>,
    ) -> PyResult<NewArray<'py, u8>> {
        call::resize(py, &image, [width, height], filter, region)
    }

    /// Rewrites a JPEG of several scans, progressive or not, as a baseline one of one scan, without loss.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    /// max_pixels, max_nbytes : int
    ///     As `decode`'s.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     A file with the same coefficients, hence the same pixels, in one scan with optimised Huffman tables.
    ///     Quantisation tables, comments and application segments (Exif, ICC profile, JFIF, Adobe) are those of `image`,
    ///     and so is what follows its end marker; restart markers are dropped.
    ///
    /// Raises
    /// ------
    /// UnsupportedError
    ///     One scan already, or of a kind that `decode` leaves to Pillow; coefficients too large for a baseline file, or
    ///     segments that depend on their place (MPF; JFIF or Adobe between scans).
    /// CorruptError, TooLargeError, MemoryError
    ///     As `decode`.
    #[pyfunction]
    #[pyo3(signature = (image, max_pixels=134_217_728, max_nbytes=1_073_741_824))]
    fn transcode_baseline(
        py: Python<'_>,
        image: Encoded,
        max_pixels: u64,
        max_nbytes: u64,
    ) -> PyResult<Bound<'_, PyBytes>> {
        call::transcode_baseline(py, &image, Limits { max_pixels, max_nbytes })
    }

    /// What a JPEG says about itself.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    ///
    /// Returns
    /// -------
    /// dict
    ///     ``width``, ``height``, ``components``, ``precision`` (bits), ``sampling`` ("4:2:0" ...), ``color`` ("gray" |
    ///     "ycbcr" | "rgb" | "other"), ``process`` ("sequential" | "progressive" ...), ``progressive`` (bool),
    ///     ``restart_interval`` (MCUs; 0: none), ``native`` (bool: does the native decoder read it, by its header alone: of
    ///     several scans, what lies between them is not looked at), ``reason`` (str: why not; None if it does).
    ///
    /// Raises
    /// ------
    /// UnsupportedError, CorruptError
    ///     The markers cannot be followed to the first scan.
    #[pyfunction]
    fn inspect(py: Python<'_>, image: Encoded) -> PyResult<Facts<'_>> {
        call::inspect(py, image.bytes())
    }
}
