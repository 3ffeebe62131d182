//! Transcoding keeps every coefficient, and every segment that does not declare the coding.

use crate::error::Error;
use crate::jpeg::entropy::huffman::HuffmanTables;
use crate::jpeg::entropy::sequential::{McuLayout, SLACK, Window};
use crate::jpeg::format::header::{Header, Limits};
use crate::jpeg::scans::coefficients::Coefficients;
use crate::jpeg::scans::multi_scan::MultiScanDecoder;
use crate::jpeg::scans::scan_reader::ScanReader;
use crate::jpeg::scans::script::Script;
use crate::jpeg::transcode_baseline;
use crate::simd::Available;

const LIMITS: Limits = Limits::pixels(1 << 20);
const FILES: [&[u8]; 4] = [
    include_bytes!("../../../tests/data/progressive-420.jpg"),
    include_bytes!("../../../tests/data/progressive-gray.jpg"),
    include_bytes!("../../../tests/data/progressive-script.jpg"),
    include_bytes!("../../../tests/data/sequential-scans.jpg"),
];

/// The coefficients of a baseline file, MCU by MCU.
fn baseline_blocks(header: &Header<'_>) -> Vec<[i16; 64]> {
    let mut tables = HuffmanTables::new();
    for component in header.components() {
        assert!(tables.set_dc(component.dc, header.huffman[0][component.dc].unwrap()));
        assert!(tables.set_ac(component.ac, header.huffman[1][component.ac].unwrap()));
    }
    let mut window = Window::new();
    let mut scan = ScanReader::new(Available::best(), header, McuLayout::new(header, &tables), &mut window);
    let count = header.mcus_x * header.mcus_y * header.blocks_per_mcu;
    let (mut blocks, mut used) = (vec![0; 64 * count + SLACK], vec![0; count]);
    scan.decode(&mut blocks, &mut used).unwrap();
    scan.finish().unwrap();
    blocks.as_chunks().0[..count].to_vec()
}

/// The coefficients of a file of several scans in the same order. None: blocks that only pad an MCU.
fn blocks_of_scans(header: &Header<'_>, coefficients: &Coefficients) -> Vec<Option<[i16; 64]>> {
    let mut blocks = Vec::new();
    for (row, column) in (0..header.mcus_y).flat_map(|row| (0..header.mcus_x).map(move |column| (row, column))) {
        for (component, plane) in header.components().iter().zip(&coefficients.planes) {
            for y in row * component.v..(row + 1) * component.v {
                for x in column * component.h..(column + 1) * component.h {
                    let real = x < component.width.div_ceil(8) && y < component.height.div_ceil(8);
                    blocks.push(real.then(|| plane.row(y).0[x]));
                }
            }
        }
    }
    blocks
}

#[test]
fn transcoding_keeps_every_coefficient() {
    for file in FILES {
        let header = Header::parse(file, &LIMITS).unwrap();
        let (script, mut decoder) = (Script::read(&header).unwrap(), MultiScanDecoder::new());
        let coefficients = decoder
            .decode_coefficients(Available::best(), &mut HuffmanTables::new(), &header, &script)
            .unwrap();
        let expected = blocks_of_scans(&header, coefficients);

        let transcoded = transcode_baseline(file, &LIMITS).unwrap();

        let found = baseline_blocks(&Header::parse(&transcoded, &LIMITS).unwrap());
        assert_eq!(found.len(), expected.len());
        assert!(
            expected
                .iter()
                .flatten()
                .any(|block| block[1..].iter().any(|&c| c != 0))
        );
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(*found, expected.unwrap_or(*found));
        }
    }
}

#[test]
fn what_has_one_scan_is_refused() {
    let baseline = transcode_baseline(FILES[0], &LIMITS).unwrap();

    assert!(matches!(
        transcode_baseline(&baseline, &LIMITS),
        Err(Error::Unsupported(_))
    ));
    assert!(matches!(
        transcode_baseline(b"GIF89a", &LIMITS),
        Err(Error::Corrupt { .. })
    ));
}

#[test]
fn other_segments_are_kept_in_order_and_what_follows_too() {
    let (comment, profile) = (b"\xff\xfe\x00\x07hello", b"\xff\xe2\x00\x06ICC\x01");
    let mut file = FILES[1].to_vec();
    file.splice(2..2, comment.iter().chain(profile).copied());
    let scan = file.windows(2).rposition(|pair| pair == [0xff, 0xc4]).unwrap();
    file.splice(scan..scan, *b"\xff\xfe\x00\x04in");
    file.extend(b"behind");

    let transcoded = transcode_baseline(&file, &LIMITS).unwrap();

    let position = |part: &[u8]| {
        transcoded
            .windows(part.len())
            .position(|window| window == part)
            .unwrap()
    };
    assert_eq!(position(comment), 2);
    assert_eq!(position(profile), 2 + comment.len());
    assert!(position(b"\xff\xfe\x00\x04in") < position(b"\xff\xda"));
    assert!(transcoded.ends_with(b"\xff\xd9behind"));
}

#[test]
fn segments_that_depend_on_their_place_are_refused() {
    let further = b"\xff\xe2\x00\x06MPF\x00";
    let mut file = FILES[1].to_vec();
    file.splice(2..2, *further);
    let scan = FILES[1].windows(2).rposition(|pair| pair == [0xff, 0xc4]).unwrap();
    let mut between = FILES[1].to_vec();
    between.splice(scan..scan, *b"\xff\xee\x00\x0eAdobe\0\0\0\0\0\0\x01");

    for file in [file, between] {
        assert!(matches!(transcode_baseline(&file, &LIMITS), Err(Error::Unsupported(_))));
    }
}
