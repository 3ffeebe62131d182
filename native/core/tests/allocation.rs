//! If the allocator refuses memory whose size depends on an image, that image is an error. Each such allocation of a
//! decode is refused once, and the process continues.

use std::alloc::{GlobalAlloc, Layout as Request, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use penstock_core::error::Error;
use penstock_core::fill::{FillError, FillOptions, FillTimes, Filler, Geometry, Interleaved, Layout, Mode, Row};
use penstock_core::image;
use penstock_core::jpeg::{DecodeHints, Header, Limits, Region, SeekTableKind, transcode_baseline};
use penstock_core::resample::Filter;
use penstock_core::simd::Available;

#[path = "writer/mod.rs"]
mod writer;
use writer::{Make, jpeg};

/// Requests of at least this size depend on an image: tables are smaller, and so are lines of a batch of the width
/// below.
const LARGE: usize = 200 << 10;

/// The system's allocator, which refuses one large request.
struct Refusing;

/// Whether requests are counted, their number, and the request to refuse.
static COUNTED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

fn refuses(nbytes: usize) -> bool {
    nbytes >= LARGE && COUNTED.load(SeqCst) && COUNT.fetch_add(1, SeqCst) == REFUSED.load(SeqCst)
}

// SAFETY: the system's allocator, or a null pointer.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, request: Request) -> *mut u8 {
        if refuses(request.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller guarantees this.
        unsafe { System.alloc(request) }
    }

    unsafe fn alloc_zeroed(&self, request: Request) -> *mut u8 {
        if refuses(request.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller guarantees this.
        unsafe { System.alloc_zeroed(request) }
    }

    unsafe fn realloc(&self, memory: *mut u8, request: Request, nbytes: usize) -> *mut u8 {
        if refuses(nbytes) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller guarantees this.
        unsafe { System.realloc(memory, request, nbytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, request: Request) {
        // SAFETY: the caller guarantees this.
        unsafe { System.dealloc(memory, request) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Calls `make` without counting its requests.
fn uncounted<T>(make: impl FnOnce() -> T) -> T {
    let counted = COUNTED.swap(false, SeqCst);
    let made = make();
    COUNTED.store(counted, SeqCst);
    made
}

/// Calls `make` and refuses request number `refused`. Returns whether there was such a request.
fn refusing<T>(refused: usize, make: impl FnOnce() -> T) -> (T, bool) {
    COUNT.store(0, SeqCst);
    REFUSED.store(refused, SeqCst);
    COUNTED.store(true, SeqCst);
    let made = make();
    COUNTED.store(false, SeqCst);
    (made, COUNT.load(SeqCst) > refused)
}

/// Refuses one request of `make` after the other, from a fresh filler each time. Each refusal must cause an
/// `OutOfMemory` error, or the same result by another path. Returns the number of requests.
fn refuse_each<T: PartialEq>(
    case: &str,
    level: Available,
    make: impl Fn(&mut Filler) -> Result<T, FillError>,
) -> usize {
    let expected = make(&mut Filler::with_level(level));
    assert!(expected.is_ok(), "{case}: nothing is refused yet");
    for refused in 0.. {
        let mut filler = Filler::with_level(level);
        let (made, was) = refusing(refused, || make(&mut filler));
        if !was {
            assert!(made == expected, "{case}");
            return refused;
        }
        if made == expected {
            continue; // another path was used
        }
        match made {
            Err(FillError::Image(Error::OutOfMemory { nbytes })) => assert!(nbytes > 0, "{case}"),
            _ => panic!("{case}, request {refused}: another result"),
        }
        // The filler works after a failure.
        assert!(make(&mut filler) == expected, "{case}, after request {refused}");
    }
    unreachable!("the number of requests is finite")
}

/// Sides of nearly the largest JPEG size with few pixels, and a size that is large enough for several threads.
const SIZES: [[usize; 2]; 2] = [[65_000, 8], [8, 65_000]];
const SHARED_SIZE: [usize; 2] = [65_000, 17];

fn baseline([width, height]: [usize; 2]) -> Vec<u8> {
    jpeg(Make {
        width,
        height,
        sampling: Some((2, 2)),
        restart: 0,
        seed: 3,
    })
}

/// A flat gray progressive JPEG: one scan with one bit per block, and one with runs of 2^14 blocks.
fn progressive([width, height]: [usize; 2]) -> Vec<u8> {
    let blocks = width.div_ceil(8) * height.div_ceil(8);
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([8; 64]);
    bytes.extend([0xff, 0xc2, 0, 11, 8]);
    bytes.extend([height, width].into_iter().flat_map(|side| (side as u16).to_be_bytes()));
    bytes.extend([1, 1, 0x11, 0]);
    for (table, symbol) in [(0x00, 0x00), (0x10, 0xe0)] {
        bytes.extend([0xff, 0xc4, 0, 20, table, 1]);
        bytes.extend([0; 15]);
        bytes.push(symbol);
    }
    bytes.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + blocks.div_ceil(8), 0);
    bytes.extend([0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0]);
    bytes.resize(bytes.len() + (15 * blocks.div_ceil(1 << 14)).div_ceil(8), 0);
    bytes.extend([0xff, 0xd9]);
    bytes
}

fn recipe(filter: Filter, window: [usize; 2]) -> FillOptions {
    FillOptions {
        mode: Mode::Rgb,
        alpha: [1.0, 0.0],
        filter,
        layout: Layout::Hwc,
        window,
        background: [0; 4],
        quality: f64::INFINITY,
        late_color: false,
        limits: Limits::NONE,
    }
}

fn whole([width, height]: [usize; 2], window: [usize; 2]) -> Geometry {
    let [w, h] = window.map(|side| side as i32);
    let columns = [0, 0, width as i32, height as i32, w, h, 0, 0, 1];
    Geometry::new(columns, window, false).expect("inside")
}

// One test: refusals would affect tests that run at the same time.
#[test]
fn every_large_allocation_may_be_refused() {
    let file = baseline(SHARED_SIZE);
    let header = Header::parse(&file, &Limits::NONE).expect("ours");
    let index = Filler::with_level(Available::best())
        .build_seek_table(&header, SeekTableKind::Rows)
        .expect("good");
    let index = index.to_bytes(&header);
    for index in [None, Some(&*index)] {
        let hints = DecodeHints {
            seek_table: index,
            learn: None,
            threads: 2,
        };
        assert!(refuse_each_of_filling(&file, hints, SHARED_SIZE, Available::best()) > 0);
    }
    for (size, level) in SIZES
        .into_iter()
        .flat_map(|size| Available::all().iter().map(move |&level| (size, level)))
    {
        let (baseline, progressive) = (baseline(size), progressive(size));
        assert!(refuse_each_of_filling(&baseline, DecodeHints::default(), size, level) > 0);
        assert!(refuse_each_of_filling(&progressive, DecodeHints::default(), size, level) > 0);
        assert!(refuse_each_of_pixels(size, level) > 0);
        let transcode = |_: &mut Filler| Ok(transcode_baseline(&progressive, &Limits::NONE)?);
        assert!(refuse_each("transcoding", level, transcode) > 0);
    }
}

fn refuse_each_of_filling(file: &[u8], hints: DecodeHints<'_>, size: [usize; 2], level: Available) -> usize {
    let [width, height] = size;
    let case = format!("{size:?} at {level:?}, {} threads", hints.threads);
    let mut count = refuse_each(&format!("{case}, decoded"), level, |filler| {
        let mut pixels = uncounted(|| vec![0; 3 * width * height]);
        let header = Header::parse(file, &Limits::NONE)?;
        let region = Region::whole(&header);
        filler.decode(&image::Header::Jpeg(header), hints, region, Mode::Rgb, &mut pixels)?;
        Ok(pixels)
    });
    for (filter, window, late_color) in [
        (Filter::Bilinear, size, false),
        (Filter::Bilinear, [3, 2], false),
        (Filter::Bilinear, [3, 2], true),
        (Filter::Box, [width - 5, 3], false),
        (Filter::Bicubic, [width - 5, height], false),
        (Filter::Lanczos, [5, 2], false),
    ] {
        count += refuse_each(&format!("{case}, {filter:?} to {window:?}"), level, |filler| {
            let mut row = uncounted(|| vec![0; 3 * window[0] * window[1]]);
            let recipe = FillOptions {
                late_color,
                ..recipe(filter, window)
            };
            let geometry = whole(size, window);
            filler.fill(
                file,
                hints,
                &geometry,
                &recipe,
                Row::U8(&mut row),
                &mut FillTimes::default(),
            )?;
            Ok(row)
        });
    }
    count
}

fn refuse_each_of_pixels(size: [usize; 2], level: Available) -> usize {
    let [width, height] = size;
    let pixels = vec![7; 3 * width * height];
    refuse_each(&format!("pixels of {size:?} at {level:?}"), level, |filler| {
        let mut row = [0; 3 * 3 * 2];
        let image = Interleaved {
            bytes: &pixels,
            width,
            height,
            channels: 3,
        };
        let recipe = recipe(Filter::Lanczos, [3, 2]);
        filler.fill_pixels(image, &whole(size, [3, 2]), &recipe, Row::U8(&mut row))?;
        Ok(row)
    })
}
