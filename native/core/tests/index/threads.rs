//! One image on several threads: the pixels and the errors are those of one thread.

use penstock_core::fill::{FillOptions, FillTimes, Filler, Geometry, Layout, Mode, Row};
use penstock_core::jpeg::{DecodeHints, Header, Region, SeekReport, SeekTableKind};
use penstock_core::resample::Filter;
use penstock_core::simd::Available;

use crate::writer::{Make, jpeg};
use crate::{LIMITS, NO_HINTS, built, decode};

#[test]
fn threads_change_no_pixel() {
    let recipe = |window, filter, quality, late_color| FillOptions {
        mode: Mode::Rgb,
        alpha: [1.0, 0.0],
        filter,
        layout: Layout::Hwc,
        window,
        background: [0; 4],
        quality,
        late_color,
        limits: LIMITS,
    };
    for (sampling, restart) in [(None, 0), (Some((2, 2)), 0), (Some((2, 2)), 25), (Some((1, 1)), 7)] {
        let file = jpeg(Make {
            width: 1600,
            height: 1100,
            sampling,
            restart,
            seed: 21,
        });
        let header = Header::parse(&file, &LIMITS).expect("ours");
        let index = built(&header, SeekTableKind::Rows);
        let mut filler = Filler::with_level(Available::best());
        for (region, window, filter, flip, quality, late_color) in [
            (
                [3, 5, 1590, 1090],
                [201, 151],
                Filter::Bilinear,
                2,
                f64::INFINITY,
                false,
            ),
            ([3, 5, 1590, 1090], [201, 151], Filter::Bilinear, 2, f64::INFINITY, true),
            ([3, 5, 1590, 1090], [201, 151], Filter::Bilinear, 0, 2.0, false),
            ([3, 5, 1590, 1090], [201, 151], Filter::Box, 1, 2.0, true),
            ([0, 0, 1600, 1100], [333, 64], Filter::Lanczos, 1, 1.0, false),
            (
                [10, 20, 1510, 1020],
                [1500, 1000],
                Filter::Bilinear,
                3,
                f64::INFINITY,
                false,
            ),
        ] {
            let [w, h] = window.map(|side| side as i32);
            let geometry = Geometry::new(
                [region[0], region[1], region[2], region[3], w, h, 0, 0, flip],
                window,
                false,
            );
            let geometry = geometry.expect("consistent");
            let mut filled = |hints| {
                let mut row = vec![0; 3 * window[0] * window[1]];
                let report = filler.fill(
                    &file,
                    hints,
                    &geometry,
                    &recipe(window, filter, quality, late_color),
                    Row::U8(&mut row),
                    &mut FillTimes::default(),
                );
                (row, report.expect("a good image"))
            };
            let (expected, _) = filled(NO_HINTS);
            for threads in [2, 3, 5] {
                for index in [None, Some(&*index)] {
                    let (found, report) = filled(DecodeHints {
                        seek_table: index,
                        learn: None,
                        threads,
                    });

                    assert_eq!(report, SeekReport::default());
                    assert!(
                        found == expected,
                        "{sampling:?} {restart} {region:?} {threads} {}",
                        index.is_some()
                    );
                }
                let (found, report) = filled(DecodeHints {
                    seek_table: Some(b"wrong"),
                    learn: Some(SeekTableKind::Rows),
                    threads,
                });

                assert!(report.damaged && report.learned.is_some());
                assert!(found == expected, "{sampling:?} {restart} {region:?} {threads}");
            }
        }
    }
}

#[test]
fn threads_find_the_damage_that_one_does() {
    let make = Make {
        width: 1200,
        height: 1000,
        sampling: Some((2, 2)),
        restart: 0,
        seed: 22,
    };
    let whole = jpeg(make);
    let index = built(&Header::parse(&whole, &LIMITS).expect("ours"), SeekTableKind::Rows);
    let mut cut = whole.clone();
    let middle = cut.len() / 2;
    cut[middle..middle + 3000].fill(0xff);
    let header = Header::parse(&cut, &LIMITS).expect("its header is whole");
    let region = Region::whole(&header);
    let plain = decode(&header, region, NO_HINTS);

    assert!(plain.is_err());
    for index in [None, Some(&*index)] {
        let shared = DecodeHints {
            seek_table: index,
            learn: None,
            threads: 3,
        };
        assert_eq!(decode(&header, region, shared), plain);
    }
}
