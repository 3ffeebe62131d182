//! Keeps JPEGs as records of coefficients, and prints what that gives: `coefficients [--compare] [--rounds N] FILE...`
//!
//! Bytes by part, files that do not come back, time of a full decode of each on one thread. `--compare`: pixels of random
//! regions at all scales too.

use std::time::Instant;

use penstock_core::jpeg::{Decoder, Header, Limits, Region, Scale, to_jpeg, to_record};
use penstock_core::rows::RgbPixels;

const LIMITS: Limits = Limits::pixels(1 << 28);

/// The shortest of several times, in seconds.
fn best(rounds: u32, mut run: impl FnMut()) -> f64 {
    let times = (0..rounds).map(|_| {
        let started = Instant::now();
        run();
        started.elapsed().as_secs_f64()
    });
    times.fold(f64::MAX, f64::min)
}

fn pixels(decoder: &mut Decoder, bytes: &[u8], choose: impl Fn(&Header<'_>) -> Region) -> Option<Vec<u8>> {
    let header = Header::parse(bytes, &LIMITS).ok()?;
    let region = choose(&header);
    let mut sink = RgbPixels::new(region.width, region.height);
    decoder.decode(&header, region, &mut sink).ok()?;
    Some(sink.bytes)
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let compare = arguments.first().is_some_and(|a| a == "--compare");
    if compare {
        arguments.remove(0);
    }
    let mut rounds = 3;
    if arguments.first().is_some_and(|a| a == "--rounds") {
        rounds = arguments[1].parse().expect("a number");
        arguments.drain(..2);
    }
    let mut decoder = Decoder::new();
    let (mut jpeg_nbytes, mut record_nbytes, mut kept, mut refused) = (0, 0, 0, 0);
    let (mut jpeg_time, mut record_time, mut write_time, mut back_time) = (0.0, 0.0, 0.0, 0.0);
    for name in &arguments {
        let jpeg = std::fs::read(name).expect("a file");
        let record = match to_record(&jpeg, &LIMITS) {
            Ok(record) => record,
            Err(error) => {
                refused += 1;
                println!("{name}: {error}");
                continue;
            }
        };
        assert!(
            to_jpeg(&record, &LIMITS).as_deref() == Ok(&jpeg[..]),
            "{name} does not come back"
        );
        kept += 1;
        jpeg_nbytes += jpeg.len();
        record_nbytes += record.len();
        if compare {
            let mut state = jpeg.len() as u64;
            let mut random = |below: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below.max(1)
            };
            for scale in [Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth] {
                for _ in 0..3 {
                    let numbers: [usize; 4] = std::array::from_fn(|_| random(1 << 20));
                    let choose = |header: &Header<'_>| {
                        let whole = Region::whole_at(header, scale);
                        let (x, y) = (numbers[0] % whole.width, numbers[1] % whole.height);
                        Region {
                            x,
                            y,
                            width: 1 + numbers[2] % (whole.width - x),
                            height: 1 + numbers[3] % (whole.height - y),
                            scale,
                        }
                    };
                    let first = pixels(&mut decoder, &jpeg, choose);
                    assert!(
                        first.is_some() && first == pixels(&mut decoder, &record, choose),
                        "{name}"
                    );
                }
            }
        }
        let whole = |header: &Header<'_>| Region::whole(header);
        let first = pixels(&mut decoder, &jpeg, whole);
        assert!(first == pixels(&mut decoder, &record, whole), "{name}: other pixels");
        jpeg_time += best(rounds, || drop(pixels(&mut decoder, &jpeg, whole)));
        record_time += best(rounds, || drop(pixels(&mut decoder, &record, whole)));
        write_time += best(rounds, || drop(to_record(&jpeg, &LIMITS)));
        back_time += best(rounds, || drop(to_jpeg(&record, &LIMITS)));
    }
    let each = |seconds: f64| 1e3 * seconds / f64::from(kept.max(1));
    println!("{kept} files come back byte for byte with equal pixels, {refused} are refused");
    println!(
        "bytes of records / of JPEGs: {:.3}",
        record_nbytes as f64 / jpeg_nbytes as f64
    );
    println!(
        "ms a file: JPEG {:.3}, record {:.3} ({:.2} x); to write {:.3}, to write back {:.3}",
        each(jpeg_time),
        each(record_time),
        jpeg_time / record_time,
        each(write_time),
        each(back_time)
    );
}
