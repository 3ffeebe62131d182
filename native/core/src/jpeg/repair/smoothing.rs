//! Estimates of coefficients that the scans of a damaged progressive file did not send, from the DC coefficients of the
//! 5 x 5 blocks around: those of libjpeg-turbo since version 2.1 (`decompress_smooth_data` in its `jdcoefct.c`).
//!
//! Where some AC coefficients of a component are known, five others are estimated by central differences (ITU-T T.81,
//! K.8, on a larger window). Where none is, nine are, and the DC coefficient is smoothed too.

use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::ZIGZAG;
use crate::jpeg::scans::coefficients::{CoefficientPlane, Coefficients};

/// Zigzag positions that may be estimated are below this.
pub(crate) const ESTIMATED: usize = 10;

/// Per zigzag position, the lowest bit that was sent of a component's coefficients. -1: none.
pub(crate) type SentBits = [i8; ESTIMATED];

/// A weight for each of the 25 DC coefficients.
type Kernel = [i64; 25];

/// Zigzag positions 1 to 5, where other AC coefficients are known.
const DIFFERENCES: [Kernel; 5] = [
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -7, 50, 0, -50, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
    [
        0, 0, -7, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, -50, 0, 0, 0, 0, 7, 0, 0,
    ],
    [
        0, 0, -1, 0, 0, 0, 0, 13, 0, 0, 0, 0, -24, 0, 0, 0, 0, 13, 0, 0, 0, 0, -1, 0, 0,
    ],
    [
        0, -1, 0, 1, 0, -1, 10, 0, -10, 1, 0, 0, 0, 0, 0, 1, -10, 0, 10, -1, 0, 1, 0, -1, 0,
    ],
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 13, -24, 13, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ],
];

/// Zigzag positions 0 to 9, where no AC coefficient is known.
const GAUSSIAN: [Kernel; ESTIMATED] = [
    [
        -2, -6, -8, -6, -2, -6, 6, 42, 6, -6, -8, 42, 152, 42, -8, -6, 6, 42, 6, -6, -2, -6, -8, -6, -2,
    ],
    [
        -1, -1, 0, 1, 1, -3, 13, 0, -13, 3, -3, 38, 0, -38, 3, -3, 13, 0, -13, 3, -1, -1, 0, 1, 1,
    ],
    [
        -1, -3, -3, -3, -1, -1, 13, 38, 13, -1, 0, 0, 0, 0, 0, 1, -13, -38, -13, 1, 1, 3, 3, 3, 1,
    ],
    [
        0, 0, 1, 0, 0, 0, 2, 7, 2, 0, 0, -5, -14, -5, 0, 0, 2, 7, 2, 0, 0, 0, 1, 0, 0,
    ],
    [
        -1, 0, 0, 0, 1, 0, 9, 0, -9, 0, 0, 0, 0, 0, 0, 0, -9, 0, 9, 0, 1, 0, 0, 0, -1,
    ],
    [
        0, 0, 0, 0, 0, 0, 2, -5, 2, 0, 1, 7, -14, 7, 1, 0, 2, -5, 2, 0, 0, 0, 0, 0, 0,
    ],
    [
        0, 0, 0, 0, 0, 0, 1, 0, -1, 0, 0, 2, 0, -2, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0,
    ],
    [
        0, 0, 0, 0, 0, 0, 1, -3, 1, 0, 0, 0, 0, 0, 0, 0, -1, 3, -1, 0, 0, 0, 0, 0, 0,
    ],
    [
        0, 0, 0, 0, 0, 0, 1, 0, -1, 0, 0, -3, 0, 3, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0,
    ],
    [
        0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0, -1, -2, -1, 0, 0, 0, 0, 0, 0,
    ],
];

/// How far a progressive file was read.
pub(crate) struct Progress {
    /// Per component: what was sent, and what was sent before its last scan.
    pub sent: [SentBits; 3],
    pub before: [SentBits; 3],
    /// The last row of MCUs that the last scan reached.
    pub last_row: usize,
}

impl Progress {
    /// Whether estimates are made at all: the DC coefficients of all components are known, some others are not.
    fn needs_estimates(&self, header: &Header<'_>) -> bool {
        let components = header.components();
        let quantizers = |component: &crate::jpeg::format::header::Component| {
            ZIGZAG[..ESTIMATED]
                .iter()
                .all(|&position| header.quant[component.quant][usize::from(position)] != 0)
        };
        let sent = &self.sent[..components.len()];
        components.iter().all(quantizers)
            && sent.iter().all(|bits| bits[0] >= 0)
            && sent.iter().any(|bits| bits[1..].iter().any(|&bit| bit != 0))
    }

    /// Adds the estimates to the coefficients.
    pub fn smooth(&self, header: &Header<'_>, coefficients: &mut Coefficients) {
        if !self.needs_estimates(header) {
            return;
        }
        for (position, component) in header.components().iter().enumerate() {
            let plane = &mut coefficients.planes[position];
            let window = DcWindow::new(plane, header.mcus_x * component.h, component.width.div_ceil(8));
            let rows = component.height.div_ceil(8);
            let last_rows = (rows % component.v) + if rows % component.v == 0 { component.v } else { 0 };
            let quant = &header.quant[component.quant];
            for mcu_row in 0..header.mcus_y {
                let is_last = mcu_row + 1 == header.mcus_y;
                let block_rows = if is_last { last_rows } else { component.v };
                let sent = if mcu_row > self.last_row {
                    &self.before
                } else {
                    &self.sent
                }[position];
                for block_row in 0..block_rows {
                    // libjpeg counts rows as if all rows of MCUs had as many as this one.
                    let place = (mcu_row * block_rows + block_row, block_rows * header.mcus_y);
                    let row = mcu_row * component.v + block_row;
                    smooth_row(plane, &window, row, place, &sent, quant);
                }
            }
        }
    }
}

/// The DC coefficients of a component, as they were before estimates.
struct DcWindow {
    values: Vec<i16>,
    stride: usize,
    /// Columns of blocks that show a part of the picture.
    columns: usize,
}

impl DcWindow {
    fn new(plane: &mut CoefficientPlane, stride: usize, columns: usize) -> Self {
        let mut values = Vec::with_capacity(stride * plane.rows());
        for row in 0..plane.rows() {
            values.extend(plane.row(row).0.iter().map(|block| block[0]));
        }
        DcWindow {
            values,
            stride,
            columns,
        }
    }

    /// The 25 values around a column of the given rows; those beyond the edge are repeated.
    fn around(&self, rows: [usize; 5], column: usize) -> Kernel {
        let last = self.columns - 1;
        let columns = [
            column.saturating_sub(2),
            column.saturating_sub(1),
            column,
            (column + 1).min(last),
            (column + 2).min(last),
        ];
        core::array::from_fn(|i| i64::from(self.values[rows[i / 5] * self.stride + columns[i % 5]]))
    }
}

fn smooth_row(
    plane: &mut CoefficientPlane,
    window: &DcWindow,
    row: usize,
    (place, places): (usize, usize),
    sent: &SentBits,
    quant: &[i16; 64],
) {
    let above = if place > 0 { row - 1 } else { row };
    let above2 = if place > 1 { row - 2 } else { above };
    let below = if place + 1 < places { row + 1 } else { row };
    let below2 = if place + 2 < places { row + 2 } else { below };
    let has_no_ac = sent[1..].iter().all(|&bit| bit == -1);
    let kernels = if has_no_ac { &GAUSSIAN[1..] } else { &DIFFERENCES[..] };
    let (blocks, _) = plane.run(row, 0..window.columns);
    for (column, block) in blocks.iter_mut().enumerate() {
        let around = window.around([above2, above, row, below, below2], column);
        let weighted = |kernel: &Kernel| {
            let sum: i64 = kernel.iter().zip(&around).map(|(weight, value)| weight * value).sum();
            // A 16-bit entry of a table has no sign.
            i64::from(quant[0] as u16) * sum
        };
        for (k, kernel) in (1..).zip(kernels) {
            let position = usize::from(ZIGZAG[k]);
            if sent[k] != 0 && block[position] == 0 {
                block[position] = estimate(weighted(kernel), quant[position], sent[k]);
            }
        }
        if has_no_ac {
            block[0] = estimate(weighted(&GAUSSIAN[0]), quant[0], 0);
        }
    }
}

/// A sum in units of the quantizer / 256, rounded; smaller than the bits that were sent.
fn estimate(sum: i64, quantizer: i16, sent: i8) -> i16 {
    let quantizer = i64::from(quantizer as u16);
    let mut size = ((quantizer << 7) + sum.abs()) / (quantizer << 8);
    if sent > 0 {
        size = size.min((1 << sent) - 1);
    }
    (if sum < 0 { -size } else { size }) as i16
}
