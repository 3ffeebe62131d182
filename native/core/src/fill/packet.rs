//! Packets: everything that a device needs to make a row of a batch from a JPEG, in one piece of memory.
//!
//! ```text
//!  encoded ── Header ── SeekTable ──> packet: geometry, tables, segments, bytes of the scan ──copy──> device
//! ```
//!
//! Nothing is decoded here, unless the seek table is missing. The device's kernels compute the same integers as
//! [`Filler::fill`]. What they do not support is refused here, and goes through [`Filler::fill`].

use super::{FillError, FillOptions, Filler, Geometry, Mode};
use crate::error::Error;
use crate::image;
use crate::jpeg::packet::{PacketBuffer, Words, word as jpeg_word};
use crate::jpeg::{DecodeHints, Header, Region, SeekReport};
use crate::resample::{AxisOrder, AxisPlan, Filter, Passes, ResizePlan};

/// Positions of the words that are not the JPEG's.
mod word {
    pub const KIND: usize = 0;
    pub const NBYTES: usize = 1;
    pub const RGB: usize = 4;
    pub const TAPS: usize = 5;
    pub const LINES: usize = 6;
    pub const PICTURE: usize = 7;
    pub const PLANES: usize = 9;
    pub const REGION: usize = 10;
    pub const AXES: usize = 14;
    pub const PASSES: usize = 34;
    pub const FRACTION: usize = 35;
    pub const ORIENTATION: usize = 36;
    pub const FLIP: usize = 37;
    pub const VISIBLE: usize = 38;
    pub const MARGIN: usize = 40;
}

/// The kind of packets of compressed bytes.
const SEGMENTS: i32 = 1;
/// Packets are padded to a multiple of this number of bytes.
const ALIGNMENT: usize = 16;

impl Filler {
    /// Appends the packet of an image to `packets`: a number of bytes that is a multiple of 16. Times do not count.
    ///
    /// # Errors
    /// [`FillError`]: [`Error::Unsupported`] of what is neither a JPEG of one scan nor a record of coefficients, of "lanczos" and of alpha;
    /// [`Error::OutOfMemory`] where the buffer is too small. Nothing is appended.
    pub fn write_packet(
        &mut self,
        encoded: &[u8],
        hints: DecodeHints<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        packets: &mut PacketBuffer<'_>,
    ) -> Result<SeekReport, FillError> {
        let header = match image::Header::parse(encoded, &options.limits)? {
            image::Header::Jpeg(header) => header,
            _ => return Err(FillError::Image(Error::Unsupported("PNG or WebP on a device"))),
        };
        geometry
            .check_inside(header.width(), header.height())
            .map_err(FillError::Geometry)?;
        let start = packets.len();
        let written = self.write_jpeg_packet(&header, hints, geometry, options, packets);
        if written.is_err() {
            packets.truncate(start);
        }
        Ok(written?)
    }

    fn write_jpeg_packet(
        &mut self,
        header: &Header<'_>,
        hints: DecodeHints<'_>,
        geometry: &Geometry,
        options: &FillOptions,
        packets: &mut PacketBuffer<'_>,
    ) -> Result<SeekReport, Error> {
        let scale = geometry.scale(options.quality);
        let order = if geometry.orientation().transposes {
            AxisOrder::Transposed
        } else {
            AxisOrder::Stored
        };
        let plan = ResizePlan::new(options.filter, geometry.axes(scale), order);
        let around = geometry.scaled_region(scale);
        let region = Region {
            x: around.x + plan.needed.x,
            y: around.y + plan.needed.y,
            width: plan.needed.width,
            height: plan.needed.height,
            scale,
        };
        let mut words = Words::new();
        write_geometry(geometry, options, &plan, region, &mut words)?;
        let start = packets.len();
        packets.append(4 * jpeg_word::COUNT)?;
        let report = self
            .decoder
            .write_packet(header, region, hints, &mut words, packets, start)?;
        packets.align(start, ALIGNMENT)?;
        words.set(word::NBYTES, &[packets.len() - start])?;
        let words = words.to_bytes();
        packets.from(start)[..4 * words.len()].copy_from_slice(words.as_flattened());
        Ok(report)
    }
}

fn write_geometry(
    geometry: &Geometry,
    options: &FillOptions,
    plan: &ResizePlan,
    region: Region,
    words: &mut Words,
) -> Result<(), Error> {
    if plan.filter == Filter::Lanczos || options.mode == Mode::Rgba {
        return Err(Error::Unsupported("\"lanczos\" or alpha on a device"));
    }
    let planes = options.mode.channels();
    let [x, y] = plan.axes;
    let between = match plan.passes {
        Passes::None => 0,
        Passes::ConvexDownFirst | Passes::LobedDownFirst => y.axis.len * region.width,
        Passes::ConvexAcrossFirst | Passes::LobedAcrossFirst => region.height * x.axis.len,
    };
    let orientation = geometry.orientation();
    let (visible, margin) = (geometry.visible(), geometry.margin());
    let flags = |flags: &[bool]| flags.iter().rev().fold(0, |bits, flag| bits << 1 | usize::from(*flag));
    let values = [
        (word::KIND, SEGMENTS as usize),
        (word::RGB, planes * region.width * region.height),
        (word::TAPS, x.axis.len * (x.most + 2) + y.axis.len * (y.most + 2)),
        (word::LINES, 2 * planes * between),
        (word::PICTURE, planes * x.axis.len * y.axis.len),
        (word::PLANES, planes),
        (word::REGION, region.x),
        (word::REGION + 1, region.y),
        (word::REGION + 2, region.width),
        (word::REGION + 3, region.height),
        (word::PASSES, plan.passes as usize),
        (word::FRACTION, plan.fraction as usize),
        (
            word::ORIENTATION,
            flags(&[orientation.mirrors_x, orientation.mirrors_y, orientation.transposes]),
        ),
        (word::FLIP, flags(&[geometry.flip_x, geometry.flip_y])),
        (word::VISIBLE, visible[0]),
        (word::VISIBLE + 1, visible[1]),
        (word::MARGIN, margin[0]),
        (word::MARGIN + 1, margin[1]),
    ];
    for (at, value) in values {
        words.set(at, &[value])?;
    }
    for (at, (axis, needed)) in [word::AXES, word::AXES + 10]
        .into_iter()
        .zip([(x, plan.needed.x), (y, plan.needed.y)])
    {
        words.set(at, &axis_values(axis, needed, plan.filter))?;
    }
    Ok(())
}

fn axis_values(AxisPlan { axis, shift, most }: AxisPlan, needed: usize, filter: Filter) -> [usize; 10] {
    [
        axis.source,
        axis.target,
        axis.start,
        axis.len,
        axis.step << 8 | axis.phase,
        usize::from(axis.is_mirrored),
        shift as usize,
        most,
        filter as usize,
        needed,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::Layout;
    use crate::jpeg::Limits;
    use crate::simd::Available;

    /// A JPEG of this size in 4:4:4 or 4:2:0, whose scan has no data.
    fn empty_jpeg(width: u16, height: u16, luma: u8) -> Vec<u8> {
        let mut bytes = [b"\xff\xd8\xff\xdb\0\x43\0".as_slice(), &[1; 64]].concat();
        bytes.extend(b"\xff\xc0\0\x11\x08");
        bytes.extend([height.to_be_bytes(), width.to_be_bytes()].as_flattened());
        bytes.extend([3, 1, luma, 0, 2, 0x11, 0, 3, 0x11, 0]);
        for class in [0, 0x10] {
            bytes.extend([b"\xff\xc4\0\x14".as_slice(), &[class, 1], &[0; 16]].concat());
        }
        bytes.extend(b"\xff\xda\0\x0c\x03\x01\0\x02\0\x03\0\0\x3f\0\xff\xd9");
        bytes
    }

    fn write_whole(jpeg: &[u8], size: [usize; 2], mode: Mode, target: [usize; 2]) -> FillError {
        let options = FillOptions {
            filter: Filter::Bilinear,
            mode,
            layout: Layout::Chw,
            window: target,
            background: [0; 4],
            alpha: [1.0, 0.0],
            quality: f64::INFINITY,
            late_color: false,
            limits: Limits::NONE,
        };
        let geometry = Geometry::resize([0, 0, size[0], size[1]], target[0], target[1]);
        let (mut memory, level) = (vec![0; 1 << 12], Available::SCALAR);
        let mut packets = PacketBuffer::with_len(&mut memory, 0);
        let hints = DecodeHints::default();
        let written = Filler::with_level(level).write_packet(jpeg, hints, &geometry, &options, &mut packets);
        assert_eq!(packets.len(), 0);
        written.expect_err("the scan is empty")
    }

    #[test]
    fn numbers_beyond_31_bits_are_refused_before_the_scan_is_read() {
        let too_large = FillError::Image(Error::Unsupported("a picture of this size on a device"));
        for (luma, size, mode, target, is_refused) in [
            (0x11, [40_000, 36_000], Mode::Luma, [224, 224], true), // 4.32e9 samples
            (0x22, [40_000, 36_000], Mode::Rgb, [224, 224], true),  // 4.32e9 pixels of three planes
            (0x11, [20_000, 36_000], Mode::Luma, [20_000, 65_000], true), // 2.6e9 values between the passes
            (0x11, [26_700, 26_800], Mode::Luma, [224, 224], false), // 2.147e9 samples, a little below 2^31
        ] {
            let jpeg = empty_jpeg(size[0] as u16, size[1] as u16, luma);

            let error = write_whole(&jpeg, size, mode, target);

            assert_eq!(error == too_large, is_refused, "{size:?}: {error:?}");
        }
    }
}
