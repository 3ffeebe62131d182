//! The seek table: where decoding may begin inside a scan.

pub(crate) mod bytes;
pub(crate) mod hints;
pub(crate) mod mcu_reader;
pub(crate) mod table;
