//! Python bindings: they check arguments, release the GIL and map errors. They compute no pixels.

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
/// Work is done on the calling thread, unless more threads are requested. Images are HWC uint8 RGB; encoded images are
/// bytes, bytearray, memoryview or one-dimensional uint8 arrays. Every function may be called from any number of
/// threads at once. Arrays must not be written to while a call reads them, and a row of a batch must not be written by
/// two calls at once.
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

    /// Number of columns of `fill`'s geometry.
    #[pymodule_export]
    const GEOMETRY_COLUMNS: usize = Geometry::COLUMNS;

    /// Returns the width and height of JPEGs that the native decoder supports.
    ///
    /// Parameters
    /// ----------
    /// images : sequence of buffer
    ///     Encoded images.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (n, 2), int32
    ///     Width and height in pixels. (0, 0) for images that Pillow must decode (not a JPEG, CMYK, 12 bits, a damaged
    ///     header ...).
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

    /// Decodes a JPEG or a region of it.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    /// region : tuple of four int, optional
    ///     x0, y0, x1, y1 in pixels, inside the image. The pixels equal those of the whole image, cropped. Rows below
    ///     the region are not decoded. Of an image of several scans, everything above and beside the region is decoded.
    /// max_pixels : int
    ///     Largest width times height that the header may declare.
    /// max_nbytes : int
    ///     Largest number of bytes for the coefficients of the whole image, if it has several scans (as progressive
    ///     images have): 136 for each block of 8 x 8 samples, 6.4 per pixel in 4:4:4. The default is enough for the
    ///     default of `max_pixels`.
    /// scale : {1, 2, 4, 8}
    ///     Decode at 1/scale of the size with libjpeg's scaled inverse DCT. Sizes are rounded up, and the region is
    ///     rounded outward: ``x0 // scale`` to ``ceil(x1 / scale)``.
    /// index, learn, found, threads
    ///     As for `fill`, for this image only. Its number is 0.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (height, width, 3), uint8
    ///     RGB, a new array. A gray image has three equal channels. Bit-exact with libjpeg-turbo's slow integer IDCT
    ///     and fancy upsampling.
    ///
    /// Raises
    /// ------
    /// UnsupportedError
    ///     The decoder does not support this kind of file.
    /// CorruptError
    ///     The bytes are not a valid JPEG.
    /// TooLargeError
    ///     More than `max_pixels` or `max_nbytes`. Nothing was allocated.
    /// MemoryError
    ///     The system has no more memory.
    /// ValueError
    ///     The region does not lie inside the image, or another argument is invalid.
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

    /// Makes the index of a JPEG: where decoding may begin inside it. With it, a crop reads only what it needs.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image. It is not changed.
    /// kind : {"rows", "tiles"}
    ///     Places where decoding may begin: every row of MCUs (about 0.24 % of the file's size), or about every 64
    ///     pixels of each row (2 %).
    /// max_pixels : int
    ///     Largest width times height that the header may declare.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     The index, for `fill` and `decode` with this image. A check of 64 bits binds it to the image.
    ///
    /// Raises
    /// ------
    /// UnsupportedError, CorruptError, TooLargeError
    ///     As for `decode` of the whole image.
    /// ValueError
    ///     `kind` is neither of the two.
    #[pyfunction]
    #[pyo3(signature = (image, kind="rows", max_pixels=134_217_728))]
    fn build_index<'py>(py: Python<'py>, image: Encoded, kind: &str, max_pixels: u64) -> PyResult<Bound<'py, PyBytes>> {
        call::build_index(py, &image, kind, max_pixels)
    }

    /// Describes an index.
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
    ///     Its kind, the number of places that it holds, and the number of places in the image (an index that is still
    ///     being learned holds fewer). None: it is damaged or belongs to another image.
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
    ///     x0, y0, x1, y1 (the region of the image), width, height (its size after resizing), left, top (the position
    ///     of the output's H x W window in that; inside it, unless `beside` is given), flip (bit 0: left and right, bit
    ///     1: top and bottom; applied last).
    /// out : ndarray, shape (N, H, W, 3) or (N, 3, H, W), uint8, float16 or float32
    ///     The batch; C-contiguous. No other argument may overlap it.
    /// rows : ndarray, shape (n,), int64
    ///     Image ``i`` goes to ``out[rows[i]]``. Rows must be distinct.
    /// layout : {"HWC", "CHW"}
    ///     The order of the axes.
    /// filter : {"box", "bilinear", "bicubic", "lanczos"}
    ///     Antialiased, as Pillow's `Image.resize` of the cropped region: at most one different per value, for bicubic
    ///     and lanczos equal. A region that keeps its size keeps its pixels.
    /// scale, offset : sequence of three float, optional
    ///     For float batches: ``value * scale[c] + offset[c]`` in float32 (two roundings), then rounded to float16 if
    ///     that is the type. None for uint8 batches.
    /// max_pixels, max_nbytes : int
    ///     As for `decode`, for each image.
    /// beside : sequence of three int, optional
    ///     Colour, 0 to 255, of the window outside the resized region. The window must show a part of the region.
    /// quality : float, optional
    ///     Decode each image at the smallest scale (1/1, 1/2, 1/4, 1/8) at which its region still has ``quality``
    ///     samples for each pixel of the size, in both directions; at least 1. The result is that of the full-size
    ///     picture with every pixel replaced by the sample that covers it. None: always at full size.
    /// indices : sequence of (buffer or None), optional
    ///     The index of each image, from `build_index` or from `found`. Rows do not depend on it, even if it is wrong.
    /// learn : {"rows", "tiles"}, optional
    ///     Record the places that decoding passes, in the given index or in a new one of this kind.
    /// found : list, optional
    ///     A list that receives reports on indices. Required with `indices` and `learn`. ``(i, damaged, learned)`` is
    ///     appended for each image with something to report: whether the index was damaged or another image's (bool),
    ///     and the index that replaces it (bytes, or None if nothing was recorded).
    /// threads : int
    ///     Threads that work on one image together, the calling thread included, if a million pixels or more of it are
    ///     decoded: all of them with an index (or restart markers at every row), otherwise two. Fewer if the system
    ///     starts no more. Rows do not depend on it.
    ///
    /// Returns
    /// -------
    /// failures : list of (int, str, str)
    ///     ``i``, "unsupported" | "corrupt" | "too_large" | "out_of_memory", and a message. These rows are unchanged.
    /// decode_ns, resize_ns : int
    ///     Time for decoding, and for resizing and writing.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Invalid arguments. Nothing was written, except if a region does not lie inside its image (the message names
    ///     ``i``): then other rows may have been written.
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

    /// Fills a row of a batch from an image that is already decoded. See `fill`.
    ///
    /// Parameters
    /// ----------
    /// image : ndarray, shape (height, width, 3), uint8
    ///     RGB; C-contiguous.
    /// geometry : ndarray, shape (9,), int32
    ///     A row of the geometry of `fill`.
    /// out, layout, filter, scale, offset, beside
    ///     As for `fill`.
    /// row : int
    ///     The row of `out` to fill.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Invalid arguments. Nothing was written.
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

    /// Resizes an image, antialiased, as Pillow's `Image.resize` of the cropped region does.
    ///
    /// Parameters
    /// ----------
    /// image : ndarray, shape (height, width, channels), uint8
    ///     1 or 3 channels; C-contiguous.
    /// width, height : int
    ///     The new size in pixels.
    /// filter : {"box", "bilinear", "bicubic", "lanczos"}
    ///     At most one different from Pillow's result per value; bicubic and lanczos are equal.
    /// region : tuple of four int, optional
    ///     x0, y0, x1, y1: resize only this part of the image.
    ///
    /// Returns
    /// -------
    /// ndarray, shape (height, width, channels), uint8
    ///     A new array.
    ///
    /// Raises
    /// ------
    /// TypeError, ValueError
    ///     Invalid arguments.
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

    /// Rewrites a JPEG of several scans, progressive or not, as a baseline JPEG of one scan, without loss.
    ///
    /// Parameters
    /// ----------
    /// image : buffer
    ///     The encoded image.
    /// max_pixels, max_nbytes : int
    ///     As for `decode`.
    ///
    /// Returns
    /// -------
    /// bytes
    ///     A file with the same coefficients, therefore the same pixels, in one scan with optimised Huffman tables.
    ///     Quantisation tables, comments and application segments (Exif, ICC profile, JFIF, Adobe) are those of
    ///     `image`, and so is everything after its end marker. Restart markers are dropped.
    ///
    /// Raises
    /// ------
    /// UnsupportedError
    ///     The image has one scan already, or `decode` does not support its kind, or its coefficients are too large for
    ///     a baseline file, or it has segments that depend on their position (MPF; JFIF or Adobe between scans).
    /// CorruptError, TooLargeError, MemoryError
    ///     As for `decode`.
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

    /// Returns facts from the header of a JPEG.
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
    ///     ``restart_interval`` (MCUs; 0: none), ``native`` (bool: whether the native decoder supports it, judged by
    ///     its first header only), ``reason`` (str: why not; None if it does).
    ///
    /// Raises
    /// ------
    /// UnsupportedError, CorruptError
    ///     The markers up to the first scan are damaged or unknown.
    #[pyfunction]
    fn inspect(py: Python<'_>, image: Encoded) -> PyResult<Facts<'_>> {
        call::inspect(py, image.bytes())
    }
}
