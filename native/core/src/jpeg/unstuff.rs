//! Byte stuffing: in entropy-coded data FF00 stands for FF, and FF with anything else is a marker.

/// Bytes looked at in one step.
const STEP: usize = 32;
/// Writable bytes that `unstuff` wants after what it may produce.
pub(crate) const SPARE: usize = STEP;

/// How far [`unstuff`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub read: usize,
    pub written: usize,
    /// `source[read..]` starts with a marker, or is empty.
    pub ended: bool,
}

/// Copies entropy-coded data from `source` to `target` without the stuffing, up to a marker, the end of `source`, or until
/// `target` has less than [`SPARE`] bytes left.
#[inline]
pub(crate) fn unstuff(source: &[u8], target: &mut [u8]) -> Progress {
    let (mut read, mut written) = (0, 0);
    while let Some(room) = target.get_mut(written..).and_then(|t| t.first_chunk_mut::<STEP>()) {
        let Some(chunk) = source.get(read..).and_then(|s| s.first_chunk::<STEP>()) else {
            return unstuff_tail(source, target, read, written);
        };
        *room = *chunk;
        let plain = match first_ff(chunk) {
            None => {
                read += STEP;
                written += STEP;
                continue;
            }
            Some(plain) => plain,
        };
        read += plain;
        written += plain;
        match source.get(read + 1) {
            Some(0) => {
                // the FF is in place already
                written += 1;
                read += 2;
            }
            Some(0xff) => read += 1, // a fill byte: look again at the second FF
            _ => return Progress { read, written, ended: true },
        }
    }
    Progress { read, written, ended: false }
}

/// The last bytes, one by one.
fn unstuff_tail(source: &[u8], target: &mut [u8], mut read: usize, mut written: usize) -> Progress {
    while let Some(&byte) = source.get(read) {
        let step = match (byte, source.get(read + 1)) {
            (0xff, Some(0)) => 2,
            (0xff, Some(0xff)) => {
                read += 1;
                continue;
            }
            (0xff, _) => break,
            _ => 1,
        };
        target[written] = byte;
        written += 1;
        read += step;
    }
    Progress { read, written, ended: true }
}

/// Offset of the marker that ends the entropy-coded data at the start of `source`; its length if there is none.
pub(crate) fn find_marker(source: &[u8]) -> usize {
    let mut at = 0;
    while at < source.len() {
        if let Some(None) = source[at..].first_chunk::<STEP>().map(first_ff) {
            at += STEP;
            continue;
        }
        match (source[at], source.get(at + 1)) {
            (0xff, Some(0)) => at += 2,
            (0xff, Some(0xff)) => at += 1,
            (0xff, _) => return at,
            _ => at += 1,
        }
    }
    at
}

#[inline(always)]
fn first_ff(chunk: &[u8; STEP]) -> Option<usize> {
    if chunk.iter().fold(0, |any, &byte| any | u8::from(byte == 0xff)) == 0 {
        return None;
    }
    chunk.iter().position(|&byte| byte == 0xff)
}
