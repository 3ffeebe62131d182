//! Entropy decoding of MCUs at two places of a scan at once: while the next symbol of one place is looked up, the
//! processor has the other place's to work on.
//!
//! Each place goes on at its own pace, block after block. Unlike [`super::sequential`], where all depends on one chain of
//! steps, what counts here is the number of instructions and of registers: a position in bits stands for the whole state
//! of reading.

use crate::jpeg::entropy::bit_reader::{ByteSource, LOAD};
use crate::jpeg::entropy::huffman::AcTable;
use crate::jpeg::entropy::lookup_entry::DC;
use crate::jpeg::entropy::sequential::{
    BlockTables, Cursor, McuLayout, NATURAL_BEFORE, PADDING, WINDOW, Window, ends_block, is_valid_end,
};
use crate::simd::{Available, compile_versions, dispatch};

/// A place of a scan.
pub(crate) struct Place<'a, 't> {
    pub window: &'a Window,
    pub layout: &'a McuLayout<'t>,
    pub cursor: &'a mut Cursor,
}

/// Where the blocks of a place go.
pub(crate) struct Blocks<'a> {
    /// 64 values for each block, in natural order.
    pub coefficients: &'a mut [i16],
    /// The number of zigzag positions in use of each block.
    pub used: &'a mut [u8],
}

impl<'a> Blocks<'a> {
    pub fn new(coefficients: &'a mut [i16], used: &'a mut [u8]) -> Self {
        Blocks { coefficients, used }
    }

    /// `count` blocks from `first` on. Coefficients after them may follow.
    pub fn part(self, first: usize, count: usize) -> Self {
        Blocks {
            coefficients: &mut self.coefficients[64 * first..],
            used: &mut self.used[first..first + count],
        }
    }

    /// The same blocks for a shorter time.
    pub fn reborrow(&mut self) -> Blocks<'_> {
        Blocks::new(self.coefficients, self.used)
    }
}

/// Decodes up to `used.len()` blocks (whole MCUs) at each place, as [`super::sequential::decode_blocks`] does. Returns
/// the numbers of blocks, or None if the data of either place are corrupt.
pub(crate) fn decode_two(level: Available, places: [Place<'_, '_>; 2], blocks: [Blocks<'_>; 2]) -> Option<[usize; 2]> {
    dispatch!(level, [Avx2], decode_two(places, blocks))
}

compile_versions! {
    fn decode_two(places: [Place<'_, '_>; 2], blocks: [Blocks<'_>; 2]) -> Option<[usize; 2]>
        = decode_two_portable;
}

/// The state of reading at a place. The compiler keeps it in registers, because all of it has fixed places: what is
/// indexed, the predictors, stays in the cursor.
struct Lane<'a, 't> {
    window: &'a [u8; WINDOW + PADDING],
    /// Offset of the next bit.
    at: usize,
    /// The bits from there on, left-aligned, as many as were loaded; then arbitrary ones.
    bits: u64,
    /// Zigzag position of the next symbol.
    k: usize,
    /// The blocks of an MCU, and which of them is being read.
    blocks: &'a [BlockTables<'t>],
    number: usize,
    /// Blocks that are complete, and that are wanted.
    done: usize,
    count: usize,
    /// The last offset of a bit at which another MCU may begin.
    last_start: usize,
    is_good: bool,
}

impl<'a, 't> Lane<'a, 't> {
    #[inline(always)]
    fn new(place: &Place<'a, 't>, count: usize) -> Self {
        Lane {
            window: &place.window.bytes,
            at: place.cursor.next_bit().max(0) as usize,
            bits: 0,
            k: 1,
            blocks: &place.layout.blocks,
            number: 0,
            done: 0,
            count,
            last_start: 8 * place.layout.last_start(place.window).saturating_sub(LOAD),
            is_good: true,
        }
    }

    /// Whether another MCU is wanted, and may begin here.
    #[inline(always)]
    fn goes_on(&self) -> bool {
        self.done < self.count && self.at <= self.last_start
    }

    /// Loads at least 56 bits: enough for a DC symbol, or for two lookups.
    #[inline(always)]
    fn refill(&mut self) {
        self.bits = self.window.load(self.at >> 3) << (self.at & 7);
    }

    /// Reads the DC symbol of the current block, and prepares for the others. Returns the coefficient.
    #[inline(always)]
    fn begin_block(&mut self, tables: &BlockTables<'t>, cursor: &mut Cursor) -> i16 {
        self.refill();
        let (total, entry) = tables.dc.look_up(self.bits);
        let predictor = &mut cursor.predictors[tables.component];
        *predictor = predictor.wrapping_add(entry.value(total, self.bits).into());
        let value = *predictor as i16;
        self.is_good &= entry.advance == DC;
        self.at += total as usize;
        self.refill();
        self.k = 1;
        value
    }

    /// Ends a block at position `k`. Returns whether another one is wanted.
    #[inline(always)]
    fn end_block(&mut self, k: usize) -> bool {
        self.is_good &= is_valid_end(k);
        self.done += 1;
        self.number += 1;
        if self.number == self.blocks.len() {
            self.number = 0;
            return self.goes_on();
        }
        true
    }

    /// Stores the position. Returns whether all symbols were valid.
    #[inline(always)]
    fn finish(&self, cursor: &mut Cursor) -> bool {
        *cursor = Cursor::at_bit(self.at, self.window, cursor.predictors);
        self.is_good
    }
}

/// Runs two lanes to their ends: `$step!(lane, label)` makes a step, and leaves the loop `label` after the last one.
macro_rules! run_two {
    ($a:ident, $b:ident, $step:ident) => {
        let has_a_ended = 'both: loop {
            $a.refill();
            $b.refill();
            $step!($a, 'both true);
            $step!($b, 'both false);
            $step!($a, 'both true);
            $step!($b, 'both false);
        };
        if has_a_ended {
            let _: bool = 'one: loop {
                $b.refill();
                $step!($b, 'one true);
                $step!($b, 'one true);
            };
        } else {
            let _: bool = 'one: loop {
                $a.refill();
                $step!($a, 'one true);
                $step!($a, 'one true);
            };
        }
    };
}

#[inline(always)]
fn decode_two_portable(
    [place_a, place_b]: [Place<'_, '_>; 2],
    [blocks_a, blocks_b]: [Blocks<'_>; 2],
) -> Option<[usize; 2]> {
    let mut a = Lane::new(&place_a, blocks_a.used.len());
    let mut b = Lane::new(&place_b, blocks_b.used.len());
    if !a.goes_on() || !b.goes_on() {
        return Some([0; 2]);
    }
    let (mut ac_a, mut ac_b): (&AcTable, &AcTable);
    let (mut block_a, mut block_b): (&mut [i16; 256], &mut [i16; 256]);
    macro_rules! begin {
        ($lane:ident, $place:ident, $blocks:ident, $ac:ident, $block:ident) => {
            let tables = &$lane.blocks[$lane.number];
            $ac = tables.ac;
            // Indices of 8 bits need no bounds check.
            $block = $blocks
                .coefficients
                .get_mut(64 * $lane.done..)?
                .first_chunk_mut::<256>()?;
            $block[..64].fill(0);
            $block[0] = $lane.begin_block(tables, $place.cursor);
        };
    }
    macro_rules! step {
        ($lane:ident, $place:ident, $blocks:ident, $ac:ident, $block:ident, $out:lifetime $value:literal) => {
            let (total, entry) = $ac.look_up($lane.bits);
            let first = $lane.k + usize::from(entry.advance);
            let second = first + usize::from(entry.advance2);
            $block[NATURAL_BEFORE[second] as usize] = i16::from(entry.base2);
            // Stored last: this overwrites the value above where there is no second symbol.
            $block[NATURAL_BEFORE[first] as usize] = entry.value(total, $lane.bits);
            if ends_block(total, second) {
                let k = if (64..128).contains(&first) {
                    // The first symbol fills the block: the second belongs to the next block.
                    $lane.at += $ac.first_total($lane.bits, entry) as usize & 63;
                    first
                } else {
                    $lane.at += entry.total as usize & 63;
                    second
                };
                $blocks.used[$lane.done] = if k >= 128 { k as u8 & 127 } else { 64 };
                if !$lane.end_block(k) {
                    break $out $value;
                }
                begin!($lane, $place, $blocks, $ac, $block);
            } else {
                $lane.k = second;
                $lane.at += total as usize;
                $lane.bits <<= total & 63;
            }
        };
        (a, $out:lifetime $value:literal) => { step!(a, place_a, blocks_a, ac_a, block_a, $out $value); };
        (b, $out:lifetime $value:literal) => { step!(b, place_b, blocks_b, ac_b, block_b, $out $value); };
    }
    begin!(a, place_a, blocks_a, ac_a, block_a);
    begin!(b, place_b, blocks_b, ac_b, block_b);
    run_two!(a, b, step);
    let good = a.finish(place_a.cursor) & b.finish(place_b.cursor);
    good.then_some([a.done, b.done])
}
