//! From entropy-coded bytes to coefficients. This code knows no markers, rows or regions.

pub(crate) mod bit_reader;
pub(crate) mod huffman;
pub(crate) mod lookup_entry;
pub(crate) mod progressive;
pub(crate) mod refinement;
pub(crate) mod sequential;
pub(crate) mod skip_table;
#[cfg(test)]
mod tests;
pub(crate) mod two_places;
pub(crate) mod unstuff;
