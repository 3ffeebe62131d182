//! Facts about a JPEG from its header, whether this decoder supports the file or not.

use crate::error::Error;
use crate::jpeg::coefficients::record::header_bytes;
use crate::jpeg::format::markers::{Color, Markers, Process};

/// Facts from a JPEG's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels. 0 where it is given after the scan (DNL).
    pub height: usize,
    /// Number of components.
    pub components: usize,
    /// Bits per sample.
    pub precision: u8,
    /// Chroma sampling: `"4:2:0"` and the like, `"gray"`, or the factors, `"1x1,2x1,1x1"`.
    pub sampling: String,
    /// Colour space of the stored components.
    pub color: Color,
    /// How the file is coded.
    pub process: Process,
    /// MCUs between restart markers. 0: there are none.
    pub restart_interval: usize,
}

/// Reads a JPEG's header.
///
/// # Errors
/// [`Error::Corrupt`] or [`Error::Unsupported`] where the markers cannot be followed to the first scan.
pub fn inspect(bytes: &[u8]) -> Result<Summary, Error> {
    let markers = Markers::read(header_bytes(bytes)?)?;
    let frame = &markers.frame;
    let factors: Vec<(u8, u8)> = frame.components().iter().map(|c| (c.h, c.v)).collect();
    Ok(Summary {
        width: frame.width,
        height: frame.height,
        components: frame.count,
        precision: frame.precision,
        sampling: name_sampling(&factors),
        color: markers.color(),
        process: frame.process,
        restart_interval: markers.restart_interval,
    })
}

fn name_sampling(factors: &[(u8, u8)]) -> String {
    if factors.len() == 1 {
        return "gray".to_owned();
    }
    let ratios = match *factors {
        [(h, v), first, second] if first == second && h % first.0 == 0 && v % first.1 == 0 => {
            (h / first.0, v / first.1)
        }
        _ => (0, 0),
    };
    let name = match ratios {
        (1, 1) => "4:4:4",
        (2, 1) => "4:2:2",
        (2, 2) => "4:2:0",
        (1, 2) => "4:4:0",
        (4, 1) => "4:1:1",
        (4, 2) => "4:1:0",
        _ => "",
    };
    if !name.is_empty() {
        return name.to_owned();
    }
    factors
        .iter()
        .map(|(h, v)| format!("{h}x{v}"))
        .collect::<Vec<_>>()
        .join(",")
}
