//! Calls of libwebp.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libwebp_sys as libwebp;

use super::header::Header;
use crate::error::{Error, corrupt};
use crate::fill::lines;
use crate::jpeg::Region;
use crate::memory::grow;
use crate::rows::{ROWS_AT_ONCE, RowSink};
use crate::simd::Available;

/// Pixels around a region that the upsampling of its chroma may read; an even number.
const AROUND: usize = 2;
/// Bytes of the buffer that are kept between images.
const KEPT_BYTES: usize = 16 << 20;

/// Decodes one image after another and keeps its buffer.
#[derive(Default)]
pub struct Decoder {
    pixels: Vec<u8>,
}

impl Decoder {
    /// Decodes a region, at full size, into `sink`: each row once, from top to bottom.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: damaged data, down to the last row of the region. [`Error::OutOfMemory`]. The sink has
    /// received nothing.
    ///
    /// # Panics
    /// If `region` is not inside the picture.
    pub fn decode<S: RowSink>(
        &mut self,
        level: Available,
        header: &Header<'_>,
        region: Region,
        sink: &mut S,
    ) -> Result<(), Error> {
        assert!(
            region.x + region.width <= header.width && region.y + region.height <= header.height,
            "the region must lie inside the picture"
        );
        let [left, across] = with_neighbours(region.x, region.width, header.width);
        let [top, down] = with_neighbours(region.y, region.height, header.height);
        let stride = 3 * across;
        grow(&mut self.pixels, stride * down)?;
        read_rgb(header, [left, top, across, down], &mut self.pixels[..stride * down])?;
        for y in 0..region.height {
            let start = (region.y - top + y) * stride + 3 * (region.x - left);
            let line = &self.pixels[start..][..3 * region.width];
            let out = sink.row(y);
            if S::PLANAR {
                lines::deinterleave(level, line, out);
            } else {
                let [out, ..] = out;
                out[..line.len()].copy_from_slice(line);
            }
            if (y + 1).is_multiple_of(ROWS_AT_ONCE) || y + 1 == region.height {
                sink.done(y + 1);
            }
        }
        if self.pixels.len() > KEPT_BYTES {
            self.pixels = Vec::new();
        }
        Ok(())
    }
}

/// Start and length of a range with what its upsampling reads. The start is even, as libwebp requires.
fn with_neighbours(start: usize, len: usize, size: usize) -> [usize; 2] {
    let first = start.saturating_sub(AROUND) & !1;
    [first, (start + len + AROUND).min(size) - first]
}

/// Decodes a part of the picture (left, top, width, height) as interleaved RGB.
fn read_rgb(header: &Header<'_>, part: [usize; 4], out: &mut [u8]) -> Result<(), Error> {
    let [left, top, width, height] = part.map(|number| number as c_int); // at most 16,383
    assert_eq!(out.len(), part[2] * part[3] * 3, "three bytes for each pixel");
    let mut config = MaybeUninit::uninit();
    // SAFETY: the function initialises the whole struct, or says that its version is another one.
    if !unsafe { libwebp::WebPInitDecoderConfig(config.as_mut_ptr()) } {
        return Err(Error::Unsupported("a WebP, because libwebp has another version"));
    }
    // SAFETY: initialised just before.
    let mut config: libwebp::WebPDecoderConfig = unsafe { config.assume_init() };
    config.options.use_cropping = 1;
    (config.options.crop_left, config.options.crop_top) = (left, top);
    (config.options.crop_width, config.options.crop_height) = (width, height);
    config.output.colorspace = libwebp::WEBP_CSP_MODE::MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = libwebp::WebPRGBABuffer {
        rgba: out.as_mut_ptr(),
        stride: 3 * width,
        size: out.len(),
    };
    // SAFETY: the bytes and the buffer outlive the call, with the lengths given; libwebp compares the buffer's with what
    // it writes.
    let status = unsafe { libwebp::WebPDecode(header.bytes.as_ptr(), header.bytes.len(), &mut config) };
    match status {
        libwebp::VP8StatusCode::VP8_STATUS_OK => Ok(()),
        libwebp::VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => Err(Error::OutOfMemory { nbytes: out.len() }),
        libwebp::VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => Err(Error::Unsupported("a WebP with rare features")),
        _ => corrupt("libwebp refuses the image", 0),
    }
}
