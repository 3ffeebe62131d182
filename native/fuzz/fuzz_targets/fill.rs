//! Any bytes and any geometry: a row of a batch is the same at every level, on one thread and on several, with an
//! index, while learning one and without, with a fresh filler and with a used one, and from pixels that were decoded
//! first. A refused image leaves the row unchanged. A packet for a device is whole, or nothing is appended.
#![no_main]

use std::mem::discriminant;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use penstock_core::error::Error;
use penstock_core::fill::{
    Affine, FillError, FillOptions, FillTimes, Filler, Geometry, Interleaved, Layout, Mode, Orientation, PacketBuffer,
    Row,
};
use penstock_core::image;
use penstock_core::jpeg::{DecodeHints, Header, Limits, Region, SeekTableKind};
use penstock_core::resample::Filter;
use penstock_core::simd::Available;

#[path = "../../core/tests/writer/mod.rs"]
mod writer;
use writer::{Make, jpeg};

const LIMITS: Limits = Limits {
    max_pixels: 1 << 16,
    max_nbytes: 1 << 19,
};
/// The bytes of a row before it is filled.
const BEFORE: u8 = 0xa5;
/// Bytes at the end of an input that choose the geometry and the options. Usually the JPEG ends before them.
const CHOICES: usize = 25;

/// Every sampling, with and without restart intervals, some of which begin at every row.
static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let samplings = [
        None,
        Some((1, 1)),
        Some((2, 1)),
        Some((2, 2)),
        Some((1, 2)),
        Some((4, 1)),
    ];
    let make = |i: usize| {
        let (sampling, width) = (samplings[i % 6], 100 + 9 * i);
        let across = width.div_ceil(8 * usize::from(sampling.map_or(1, |(h, _)| h))) as u16;
        Make {
            width,
            height: 150 - 5 * i,
            sampling,
            restart: [0, across, 7][i / 6],
            seed: i as u64 + 1,
        }
    };
    (0..18).map(|i| jpeg(make(i))).collect()
});

/// Numbers made from bytes; zeros when the bytes are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> usize {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first.into()
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.byte() << 8 | self.byte()) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.byte() % all.len()]
    }

    /// A range inside `0..size`, not empty.
    fn range(&mut self, size: usize) -> [usize; 2] {
        let (a, b) = (self.below(size), self.below(size));
        [a.min(b), a.max(b) + 1]
    }
}

#[derive(Clone, Copy, Debug)]
enum Dtype {
    U8,
    F16,
    Bf16,
    F32,
}

/// How an image is filled.
#[derive(Clone, Debug)]
struct Case {
    columns: [i32; Geometry::COLUMNS],
    geometry: Geometry,
    recipe: FillOptions,
    dtype: Dtype,
    learn: Option<SeekTableKind>,
    threads: usize,
}

/// A side of the target and of its window, which lies inside it or, if framed, anywhere.
fn window(choices: &mut Choices<'_>, framed: bool) -> [usize; 3] {
    let size = 1 + choices.byte() % 120;
    if framed {
        let window = 1 + choices.byte() % 120;
        return [size, window, choices.byte()];
    }
    let [start, end] = choices.range(size);
    [size, end - start, start]
}

impl Case {
    /// None: the geometry contradicts itself.
    fn of(choices: &mut Choices<'_>, [width, height]: [usize; 2]) -> Option<Self> {
        let framed = choices.byte() % 3 == 0;
        let ([x0, x1], [y0, y1]) = (choices.range(width), choices.range(height));
        let ([w, across, left], [h, down, top]) = (window(choices, framed), window(choices, framed));
        let flip = choices.byte();
        // Sometimes beyond the image, or a window outside the picture.
        let beyond = if flip == 255 { 1000 } else { 0 };
        let start = |at: usize| if framed { at as i32 - 128 } else { at as i32 };
        let region = [x0, y0, x1 + beyond, y1].map(|edge| edge as i32);
        let [x0, y0, x1, y1] = region;
        let columns = [
            x0,
            y0,
            x1,
            y1,
            w as i32,
            h as i32,
            start(left),
            start(top),
            flip as i32 % 4,
        ];
        Some(Case {
            columns,
            geometry: Geometry::new(columns, [across, down], framed)
                .ok()?
                .oriented(Orientation::from_exif(1 + flip as u8 / 4 % 8)?),
            recipe: FillOptions {
                mode: choices.one_of(&[Mode::Rgb, Mode::Bgr, Mode::Luma, Mode::Rgba]),
                alpha: [1.0, 0.0],
                filter: choices.one_of(&[
                    Filter::Box,
                    Filter::Bilinear,
                    Filter::Bicubic,
                    Filter::Lanczos,
                    Filter::Cv2Linear,
                    Filter::Cv2Area,
                    Filter::Cv2Nearest,
                ]),
                layout: choices.one_of(&[Layout::Hwc, Layout::Chw]),
                window: [across, down],
                background: [1, 128, 255, 0],
                quality: choices.one_of(&[f64::INFINITY, 1.0, 2.0]),
                late_color: choices.byte() % 2 == 1,
                limits: LIMITS,
            },
            dtype: choices.one_of(&[Dtype::U8, Dtype::F16, Dtype::F32, Dtype::Bf16]),
            learn: choices.one_of(&[None, Some(SeekTableKind::Rows), Some(SeekTableKind::Tiles)]),
            threads: 2 + choices.byte() % 3,
        })
    }

    /// The bits of a row that `fill` makes.
    fn row(&self, fill: impl FnOnce(Row<'_>) -> Result<(), FillError>) -> (Vec<u32>, Result<(), FillError>) {
        let len = self.recipe.mode.channels() * self.recipe.window[0] * self.recipe.window[1];
        let affine = Affine {
            scale: [1.0 / 58.395, 1.0 / 57.12, 1.0 / 57.375],
            offset: [-2.117_904, -2.035_714, -1.804_444],
        };
        match self.dtype {
            Dtype::U8 => {
                let mut row = vec![BEFORE; len];
                let filled = fill(Row::U8(&mut row));
                (row.into_iter().map(u32::from).collect(), filled)
            }
            Dtype::F16 => {
                let mut row = vec![BEFORE.into(); len];
                let filled = fill(Row::F16(&mut row, affine));
                (row.into_iter().map(u32::from).collect(), filled)
            }
            Dtype::Bf16 => {
                let mut row = vec![BEFORE.into(); len];
                let filled = fill(Row::Bf16(&mut row, affine));
                (row.into_iter().map(u32::from).collect(), filled)
            }
            Dtype::F32 => {
                let mut row = vec![f32::from(BEFORE); len];
                let filled = fill(Row::F32(&mut row, affine));
                (row.into_iter().map(f32::to_bits).collect(), filled)
            }
        }
    }

    /// The row of an encoded image, or its error.
    fn fill(&self, filler: &mut Filler, image: &[u8], hints: DecodeHints<'_>) -> Result<Vec<u32>, FillError> {
        let fill = |row: Row<'_>| {
            let mut spent = FillTimes::default();
            let report = filler.fill(image, hints, &self.geometry, &self.recipe, row, &mut spent)?;
            assert!(!report.damaged, "the index belongs to this image");
            Ok(())
        };
        self.checked(self.row(fill))
    }

    /// The row if it was filled. Otherwise it must be unchanged.
    fn checked(&self, (row, filled): (Vec<u32>, Result<(), FillError>)) -> Result<Vec<u32>, FillError> {
        if let Err(failure) = filled {
            let (untouched, _) = self.row(|_| Ok(()));
            assert_eq!(row, untouched, "{failure:?}");
            return Err(failure);
        }
        Ok(row)
    }

    /// The row of an image that is decoded first. None: other parts of the image are damaged.
    fn fill_decoded(&self, filler: &mut Filler, header: &Header<'_>) -> Option<Vec<u32>> {
        let (width, height) = (header.width(), header.height());
        let mut pixels = vec![0; 3 * width * height];
        let (header, region) = (image::Header::Jpeg(header.clone()), Region::whole(header));
        filler
            .decode(&header, DecodeHints::default(), region, Mode::Rgb, &mut pixels)
            .ok()?;
        let image = Interleaved {
            bytes: &pixels,
            width,
            height,
            channels: 3,
        };
        let fill = |row: Row<'_>| filler.fill_pixels(image, &self.geometry, &self.recipe, row);
        Some(self.checked(self.row(fill)).expect("a part of what decodes as a whole"))
    }
}

/// Writes the packet of an image twice, the second time to memory that ends `missing` bytes too early.
fn write_packet(case: &Case, image: &[u8], hints: DecodeHints<'_>, whole: bool, missing: usize) {
    let mut filler = Filler::with_level(Available::SCALAR);
    let mut memory = vec![BEFORE; image.len() + (1 << 20)];
    let mut packets = PacketBuffer::with_len(&mut memory, 16);
    let written = filler.write_packet(image, hints, &case.geometry, &case.recipe, &mut packets);
    let nbytes = packets.len() - 16;
    match written {
        Ok(_) => assert!(nbytes >= 448 && nbytes.is_multiple_of(16), "{nbytes} bytes"),
        Err(failure) => {
            assert_eq!(nbytes, 0, "{failure:?}");
            let refused = case.recipe.filter == Filter::Lanczos || case.recipe.mode == Mode::Rgba;
            let refused = refused || matches!(failure, FillError::Geometry(_));
            assert!(!whole || refused, "a good image: {failure:?}");
            return;
        }
    }
    let enough = memory[16..16 + nbytes].to_vec();
    memory.truncate(nbytes - 1 - missing % nbytes);
    let mut packets = PacketBuffer::with_len(&mut memory, 0);
    let written = filler.write_packet(image, hints, &case.geometry, &case.recipe, &mut packets);
    assert!(matches!(written, Err(FillError::Image(Error::OutOfMemory { .. }))) && packets.len() == 0);
    memory.resize(nbytes, 0);
    let mut packets = PacketBuffer::with_len(&mut memory, 0);
    let written = filler.write_packet(image, hints, &case.geometry, &case.recipe, &mut packets);
    assert!(written.is_ok() && memory == enough, "the same packet");
}

/// Whether two failures are of one kind: the place where damage is found may differ.
fn same_kind(one: &FillError, other: &FillError) -> bool {
    match (one, other) {
        (FillError::Image(one), FillError::Image(other)) => discriminant(one) == discriminant(other),
        (one, other) => one == other,
    }
}

fn run(image: &[u8], whole: bool, mut choices: Choices<'_>) {
    let header = Header::parse(image, &LIMITS);
    let size = header
        .as_ref()
        .map_or([64, 64], |header| [header.width(), header.height()]);
    let Some(case) = Case::of(&mut choices, size) else {
        return;
    };
    let index = header
        .as_ref()
        .ok()
        .filter(|_| whole && choices.byte() % 2 == 0)
        .map(|header| {
            let kind = choices.one_of(&[SeekTableKind::Rows, SeekTableKind::Tiles]);
            let index = Filler::with_level(Available::SCALAR)
                .build_seek_table(header, kind)
                .expect("a good image");
            index.to_bytes(header)
        });
    let expected = case.fill(
        &mut Filler::with_level(Available::SCALAR),
        image,
        DecodeHints::default(),
    );
    assert!(!whole || !matches!(expected, Err(FillError::Image(_))), "a good image");
    if let (Ok(expected), Ok(header)) = (&expected, &header)
        && case.recipe.quality.is_infinite()
        && !case.recipe.late_color
        && case.recipe.mode == Mode::Rgb
        && let Some(row) = case.fill_decoded(&mut Filler::with_level(Available::SCALAR), header)
    {
        assert_eq!(&row, expected, "decoded first: {:?}", case.columns);
    }
    let hints = DecodeHints {
        seek_table: index.as_deref(),
        learn: case.learn,
        threads: 1,
    };
    write_packet(&case, image, hints, whole, choices.below(1 << 16));
    for &level in Available::all() {
        let mut filler = Filler::with_level(level);
        for threads in [1, case.threads, 1] {
            let hints = DecodeHints {
                seek_table: index.as_deref(),
                learn: case.learn,
                threads,
            };
            let found = case.fill(&mut filler, image, hints);
            let same = match (&found, &expected) {
                (Err(found), Err(expected)) => same_kind(found, expected),
                (found, expected) => found == expected,
            };
            assert!(same, "{level:?} on {threads} threads: {case:?}");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(&[0xff, 0xd8]) {
        return run(bytes, false, Choices(&bytes[bytes.len().saturating_sub(CHOICES)..]));
    }
    let Some((&[choice, damages], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let mut image = IMAGES[usize::from(choice) % IMAGES.len()].clone();
    let (choices, rest) = rest.split_at(rest.len().min(CHOICES));
    let mut damage = Choices(rest);
    let damages = if rest.is_empty() { 0 } else { damages % 4 };
    for _ in 0..damages {
        let at = damage.below(image.len());
        image[at] ^= damage.byte() as u8;
    }
    run(&image, damages == 0, Choices(choices));
});
