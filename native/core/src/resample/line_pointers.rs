//! What kernels with vector instructions check once before they read and write by pointers.

use core::marker::PhantomData;

/// Panics unless `n` values can be read from each offset in `rows`. Callers pad rows accordingly.
pub fn check_rows<T>(rows: &[T], offsets: &[usize], n: usize) {
    assert!(offsets.iter().all(|o| o + n <= rows.len()));
}

/// A line of each plane and its output, as pointers.
#[derive(Clone, Copy)]
pub struct LinePointers<'a> {
    line: *const i16,
    pub line_stride: usize,
    out: *mut u8,
    /// In values.
    pub out_stride: usize,
    pub out_bytes: usize,
    /// Values of a plane that may be written.
    pub outputs: usize,
    pub planes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> LinePointers<'a> {
    /// Panics unless `line` holds all planes, and `out` has a value.
    pub fn new<T>(line: &'a [i16], line_stride: usize, out: &'a mut [T], out_stride: usize, planes: usize) -> Self {
        assert!(planes > 0 && planes * line_stride <= line.len() && (planes - 1) * out_stride < out.len());
        Self {
            line: line.as_ptr(),
            line_stride,
            out: out.as_mut_ptr().cast(),
            out_stride,
            out_bytes: size_of::<T>(),
            outputs: out_stride.min(out.len() - (planes - 1) * out_stride),
            planes,
            memory: PhantomData,
        }
    }

    /// The line of a plane, `line_stride` values, and its output, `outputs` values.
    ///
    /// # Safety
    /// There are more than `plane` planes.
    #[inline]
    pub unsafe fn plane(self, plane: usize) -> (*const i16, *mut u8) {
        // SAFETY: the caller guarantees this; `new` has checked the lengths.
        unsafe {
            (
                self.line.add(plane * self.line_stride),
                self.out.add(plane * self.out_stride * self.out_bytes),
            )
        }
    }
}
