//! The seek table of a JPEG (`index` in Python): where decoding may begin inside its scan.

pub(crate) mod bytes;
pub(crate) mod hints;
pub(crate) mod mcu_reader;
pub(crate) mod table;
