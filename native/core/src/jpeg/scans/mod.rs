//! Scans as sequences of MCUs: files of one scan, and files of several scans.

pub(crate) mod coefficients;
pub(crate) mod intervals;
pub(crate) mod multi_scan;
pub(crate) mod scan_reader;
pub(crate) mod script;
pub(crate) mod sequential_scan;
