//! Entropy decoding of sequential scans: a number of whole MCUs, from a bit position and DC predictors. Decodes them
//! into coefficients, or skips them.

use crate::jpeg::entropy::bit_reader::{BitPosition, BitReader, ByteSource, LOAD};
use crate::jpeg::entropy::huffman::{AcTable, DcTable, HuffmanTables};
use crate::jpeg::entropy::lookup_entry::{DC, END_OF_BLOCK, ENDS_BLOCK, LookupEntry};
use crate::jpeg::entropy::skip_table::{self, SkipTable};
use crate::jpeg::format::header::Header;
use crate::jpeg::format::markers::ZIGZAG;
use crate::simd::{Available, compile_versions, dispatch};

/// Size of a window of unstuffed bytes. It is a power of two, so that a mask replaces the bounds check of every load.
/// Valid data never reach the end of the window; corrupt data are detected by their position.
pub(crate) const WINDOW: usize = 8 * 1024;
/// Bytes after the data of a window. They are zero at the end of an interval.
pub(crate) const PADDING: usize = 32;
/// Number of i16 after the last block of a coefficient buffer: blocks are written through slices of 256, so that an
/// 8-bit index needs no bounds check.
pub(crate) const SLACK: usize = 192;

/// The most bytes that a block takes, and those loaded ahead: a DC symbol of 27 bits and 63 AC symbols of 26 bits.
const MAX_BLOCK_BYTES: usize = (27 + 63 * 26usize).div_ceil(8) + LOAD;

/// Natural position by zigzag position plus one: the position after a coefficient is known when it is stored. Above 64
/// (end of block, invalid codes) it is 63, where only a 0 is stored that a valid block has there anyway.
pub(super) static NATURAL_BEFORE: [u8; 1024] = {
    let mut table = [63u8; 1024];
    let mut k = 0;
    while k < 64 {
        table[k + 1] = ZIGZAG[k];
        k += 1;
    }
    table
};

impl ByteSource for &[u8; WINDOW + PADDING] {
    /// A mask of the offset replaces the bounds check.
    #[inline(always)]
    fn load(self, at: usize) -> u64 {
        let bytes = self[at & (WINDOW - 1)..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// The bytes that entropy decoding reads.
pub(crate) struct Window {
    pub bytes: Box<[u8; WINDOW + PADDING]>,
    /// Bytes of image data, from the start.
    pub filled: usize,
    /// The restart interval ends with these bytes.
    pub ended: bool,
}

impl Window {
    /// Without bytes.
    pub fn new() -> Self {
        Window {
            bytes: Box::new([0; WINDOW + PADDING]),
            filled: 0,
            ended: false,
        }
    }
}

/// Tables and component of each block of an MCU.
pub(crate) struct McuLayout<'t> {
    pub(super) blocks: Vec<BlockTables<'t>>,
}

#[derive(Clone, Copy)]
pub(super) struct BlockTables<'t> {
    pub dc: &'t DcTable,
    pub ac: &'t AcTable,
    pub skip: Option<&'t SkipTable>,
    pub component: usize,
}

impl<'t> McuLayout<'t> {
    pub fn new(header: &Header<'_>, tables: &'t HuffmanTables) -> Self {
        let mut blocks = Vec::with_capacity(header.blocks_per_mcu);
        for (component, c) in header.components().iter().enumerate() {
            let tables = BlockTables {
                dc: tables.dc(c.dc),
                ac: tables.ac(c.ac),
                skip: tables.skip(c.ac),
                component,
            };
            blocks.extend(core::iter::repeat_n(tables, c.h * c.v));
        }
        McuLayout { blocks }
    }

    /// Whether tables for passing over blocks were prepared.
    pub fn can_skip(&self) -> bool {
        self.blocks.iter().all(|block| block.skip.is_some())
    }

    pub fn blocks_per_mcu(&self) -> usize {
        self.blocks.len()
    }

    /// The last byte position from which another MCU is certainly in the window. Where the interval ends in the window:
    /// the last position before its end, so that blocks that are declared but missing cost nothing.
    pub(super) fn last_start(&self, window: &Window) -> usize {
        if window.ended {
            window.filled + LOAD
        } else {
            window.filled.saturating_sub(MAX_BLOCK_BYTES * self.blocks.len())
        }
    }
}

/// The state of entropy decoding: a position in the window, and the DC predictors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    position: BitPosition,
    /// DC predictor of each component.
    pub predictors: [i32; 3],
}

impl Cursor {
    /// At a bit of the window.
    pub fn at_bit(bit: usize, window: &[u8; WINDOW + PADDING], predictors: [i32; 3]) -> Self {
        Cursor {
            position: BitPosition::of_bit(bit, window),
            predictors,
        }
    }

    /// Offset of the next bit in the window.
    pub fn next_bit(&self) -> isize {
        self.position.next_bit()
    }

    /// Number of bytes at the front of the window that are no longer needed.
    pub fn consumed_bytes(&self) -> usize {
        self.position.next_byte()
    }

    /// Adapts the position after `bytes` bytes were removed from the front of the window.
    pub fn move_back(&mut self, bytes: usize) {
        self.position = self.position.moved_back(bytes);
    }

    /// Skips up to 7 bits of the first byte.
    pub fn skip_bits(&mut self, window: &Window, bits: u8) {
        let mut reader = BitReader::new(&*window.bytes, self.position);
        reader.refill();
        reader.take(bits.into());
        self.position = reader.position();
    }
}

impl BitReader<&[u8; WINDOW + PADDING]> {
    /// Reads a block's DC symbol and adds it to the predictor. Returns false if the code is invalid.
    #[inline(always)]
    fn read_dc(&mut self, tables: &BlockTables<'_>, predictor: &mut i32) -> bool {
        let (total, entry) = tables.dc.look_up(self.bits());
        *predictor = predictor.wrapping_add(i32::from(self.value(total, entry)));
        self.take(total);
        entry.advance == DC
    }

    /// Consumes the last AC symbols of a block, whose positions are `first` and `second`. Returns the position after
    /// the block.
    #[inline(always)]
    fn end_block(&mut self, table: &AcTable, entry: &LookupEntry, first: usize, second: usize) -> usize {
        if !(64..128).contains(&first) {
            self.take(entry.total.into());
            return second;
        }
        // The first symbol fills the block: the second belongs to the next block.
        self.take(table.first_total(self.bits(), entry));
        first
    }
}

/// Decodes up to `used.len()` blocks (whole MCUs), as long as the window certainly holds another MCU. Returns the
/// number of blocks, or None if the data are corrupt. Where the interval ends in the window, decoding stops after the
/// MCU in which it ends; the cursor is past the end then.
///
/// `coefficients` receives 64 values for each block, in natural order, and is [`SLACK`] longer. `used` receives the
/// number of zigzag positions in use of each block.
pub(crate) fn decode_blocks(
    level: Available,
    window: &Window,
    layout: &McuLayout<'_>,
    cursor: &mut Cursor,
    coefficients: &mut [i16],
    used: &mut [u8],
) -> Option<usize> {
    dispatch!(level, [Avx2], decode_blocks(window, layout, cursor, coefficients, used))
}

/// Skips up to `count` blocks (whole MCUs) in the same way. Only the cursor changes.
pub(crate) fn skip_blocks(
    level: Available,
    window: &Window,
    layout: &McuLayout<'_>,
    cursor: &mut Cursor,
    count: usize,
) -> Option<usize> {
    dispatch!(level, [Avx2], skip_blocks(window, layout, cursor, count))
}

compile_versions! {
    fn decode_blocks(
        window: &Window,
        layout: &McuLayout<'_>,
        cursor: &mut Cursor,
        coefficients: &mut [i16],
        used: &mut [u8],
    ) -> Option<usize> = decode_blocks_portable;
    fn skip_blocks(window: &Window, layout: &McuLayout<'_>, cursor: &mut Cursor, count: usize) -> Option<usize>
        = skip_blocks_portable;
}

/// Whether a block ends with the symbols that lead to position `second`. In most cases the lookup's total tells.
#[inline(always)]
pub(super) fn ends_block(total: u64, second: usize) -> bool {
    total & u64::from(ENDS_BLOCK) != 0 || second >= 64
}

/// Whether `k` is a valid zigzag position after a block: 64 (full), or 129 to 191 (ended by a symbol).
#[inline(always)]
pub(super) fn is_valid_end(k: usize) -> bool {
    k == 64 || (129..192).contains(&k)
}

/// Calls `$block!(tables, mcu, number)` for each block of each MCU that `$next` returns. It is unrolled for the usual
/// samplings: separate branches let the processor predict how the blocks of each component end.
macro_rules! for_blocks {
    (@ $next:expr, $block:ident, $($tables:ident $number:literal),+) => {
        while let Some(mcu) = $next {
            $($block!($tables, mcu, $number);)+
        }
    };
    ($blocks:expr, $next:expr, $block:ident) => {
        match $blocks {
            [a] => for_blocks!(@ $next, $block, a 0),
            [a, b, c] => for_blocks!(@ $next, $block, a 0, b 1, c 2),
            [a, b, c, d] => for_blocks!(@ $next, $block, a 0, b 1, c 2, d 3),
            [a, b, c, d, e, f] => for_blocks!(@ $next, $block, a 0, b 1, c 2, d 3, e 4, f 5),
            blocks => {
                while let Some(mcu) = $next {
                    for (number, tables) in blocks.iter().enumerate() {
                        $block!(tables, mcu, number);
                    }
                }
            }
        }
    };
}

#[inline(always)]
fn decode_blocks_portable(
    window: &Window,
    layout: &McuLayout<'_>,
    cursor: &mut Cursor,
    coefficients: &mut [i16],
    used: &mut [u8],
) -> Option<usize> {
    let limit = layout.last_start(window);
    let (mut at, mut predictors) = (BitReader::new(&*window.bytes, cursor.position), cursor.predictors);
    let mut good = true;
    let mut done = 0;
    let mut mcus = used.chunks_exact_mut(layout.blocks.len());
    macro_rules! block {
        ($tables:ident, $used:ident, $number:expr) => {
            let block = coefficients.get_mut(64 * done..)?.first_chunk_mut::<256>()?;
            done += 1;
            block[..64].fill(0);
            at.refill();
            let predictor = &mut predictors[$tables.component];
            good &= at.read_dc($tables, predictor);
            block[0] = *predictor as i16;
            let k = decode_ac::<true>($tables.ac, block, &mut at);
            good &= is_valid_end(k);
            $used[$number] = if k >= 128 { k as u8 & 127 } else { 64 };
        };
    }
    for_blocks!(
        &layout.blocks[..],
        if at.position().next_byte() <= limit {
            mcus.next()
        } else {
            None
        },
        block
    );
    *cursor = Cursor {
        position: at.position(),
        predictors,
    };
    good.then_some(done)
}

/// Decodes a block's AC symbols, into `block` if `KEPT`. Returns the position after the block.
#[inline(always)]
fn decode_ac<const KEPT: bool>(
    table: &AcTable,
    block: &mut [i16; 256],
    reader: &mut BitReader<&[u8; WINDOW + PADDING]>,
) -> usize {
    let mut at = *reader;
    let mut k = 1;
    macro_rules! symbols {
        () => {
            let (total, entry) = table.look_up(at.bits());
            let first = k + usize::from(entry.advance);
            let second = first + usize::from(entry.advance2);
            if KEPT {
                let value = at.value(total, entry);
                block[NATURAL_BEFORE[second] as usize] = i16::from(entry.base2);
                // Stored last: this overwrites the value above where there is no second symbol.
                block[NATURAL_BEFORE[first] as usize] = value;
            }
            if ends_block(total, second) {
                k = at.end_block(table, entry, first, second);
                break;
            }
            k = second;
            at.take(total);
        };
    }
    // 56 bits are enough for DC (27 bits) and one lookup (26 bits), or for two lookups.
    loop {
        symbols!();
        at.refill();
        symbols!();
        symbols!();
        at.refill();
        symbols!();
    }
    *reader = at;
    k
}

/// Passes over a block's AC symbols. Returns the position after the block, as [`decode_ac`].
#[inline(always)]
fn skip_ac(ac: &AcTable, table: &SkipTable, reader: &mut BitReader<&[u8; WINDOW + PADDING]>) -> usize {
    let mut at = *reader;
    let mut k = 1;
    macro_rules! symbols {
        () => {
            let (total, positions) = table.look_up(at.bits());
            let next = k + positions;
            if next < 64 {
                k = next;
                at.take(total);
            } else if next == 64 {
                k = 64;
                at.take(total);
                break;
            } else if (skip_table::END..skip_table::END + 64).contains(&next) {
                k = next - skip_table::END + usize::from(END_OF_BLOCK);
                at.take(total);
                break;
            } else {
                // A long or invalid code, or the block is full before the last of several symbols.
                at.refill();
                k = skip_symbol(ac, k, &mut at);
                at.refill();
                if k >= 64 {
                    break;
                }
            }
        };
    }
    // 56 bits are enough for DC (27 bits) and one lookup (22 bits), or for two lookups.
    loop {
        symbols!();
        at.refill();
        symbols!();
        symbols!();
        at.refill();
        symbols!();
    }
    *reader = at;
    k
}

/// Passes over one AC symbol at position `k`. Returns the position after it.
#[inline(always)]
fn skip_symbol(ac: &AcTable, k: usize, reader: &mut BitReader<&[u8; WINDOW + PADDING]>) -> usize {
    let (_, entry) = ac.look_up(reader.bits());
    let total = ac.first_total(reader.bits(), entry);
    reader.take(total);
    k + usize::from(entry.advance)
}

#[inline(always)]
fn skip_blocks_portable(window: &Window, layout: &McuLayout<'_>, cursor: &mut Cursor, count: usize) -> Option<usize> {
    let limit = layout.last_start(window);
    let (mut at, mut predictors) = (BitReader::new(&*window.bytes, cursor.position), cursor.predictors);
    let mut good = true;
    let mut done = 0;
    let mut nowhere = [0; 256];
    macro_rules! block {
        ($tables:ident, $mcu:ident, $number:expr) => {
            let ((), _) = ($mcu, $number);
            at.refill();
            good &= at.read_dc($tables, &mut predictors[$tables.component]);
            good &= is_valid_end(match $tables.skip {
                Some(table) => skip_ac($tables.ac, table, &mut at),
                None => decode_ac::<false>($tables.ac, &mut nowhere, &mut at),
            });
            done += 1;
        };
    }
    for_blocks!(
        &layout.blocks[..],
        (done < count && at.position().next_byte() <= limit).then_some(()),
        block
    );
    *cursor = Cursor {
        position: at.position(),
        predictors,
    };
    good.then_some(done)
}
