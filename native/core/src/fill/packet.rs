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
    /// [`FillError`]: [`Error::Unsupported`] of what is no JPEG of one scan, of "lanczos" and of alpha;
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
        let mut words: Words = [0; jpeg_word::COUNT];
        write_geometry(geometry, options, &plan, region, &mut words)?;
        let start = packets.len();
        packets.append(4 * jpeg_word::COUNT)?;
        let report = self
            .decoder
            .write_packet(header, region, hints, &mut words, packets, start)?;
        packets.align(start, ALIGNMENT)?;
        words[word::NBYTES] = as_word(packets.len() - start)?;
        for (place, value) in packets.from(start).as_chunks_mut().0.iter_mut().zip(words) {
            *place = value.to_le_bytes();
        }
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
        words[at] = as_word(value)?;
    }
    for (slot, (axis, needed)) in words[word::AXES..]
        .chunks_exact_mut(10)
        .zip([(x, plan.needed.x), (y, plan.needed.y)])
    {
        write_axis(axis, needed, plan.filter, slot)?;
    }
    Ok(())
}

fn write_axis(
    AxisPlan { axis, shift, most }: AxisPlan,
    needed: usize,
    filter: Filter,
    slot: &mut [i32],
) -> Result<(), Error> {
    let values = [
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
    ];
    for (word, value) in slot.iter_mut().zip(values) {
        *word = as_word(value)?;
    }
    Ok(())
}

fn as_word(value: usize) -> Result<i32, Error> {
    i32::try_from(value).map_err(|_| Error::Unsupported("a picture of this size on a device"))
}
