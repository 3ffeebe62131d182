//! The geometry of an output row: region, orientation, size, window and flip.

use std::ops::Range;

use super::Orientation;
use crate::jpeg::{ChromaGrid, Region, Scale};
use crate::resample::{Axis, Between};

/// Region, size, window and flip of one image, checked for consistency. The region is one of the stored image; size,
/// window and flip are those of the picture, after its orientation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    region: [usize; 4],
    orientation: Orientation,
    size: [usize; 2],
    origin: [usize; 2],
    visible: [usize; 2],
    margin: [usize; 2],
    is_framed: bool,
    /// Mirror left and right, after everything else.
    pub flip_x: bool,
    /// Mirror top and bottom, after everything else.
    pub flip_y: bool,
}

impl Geometry {
    /// Number of columns of a row of geometry.
    pub const COLUMNS: usize = 9;

    /// The geometry of a row: x0, y0, x1, y1 (region of the source), width, height (size after resizing), left, top
    /// (origin of the window within that), flip (bit 0: horizontal, bit 1: vertical). `window`: its width and height.
    /// If `may_leave_picture`, a part of the window may lie outside the picture, but not all of it.
    ///
    /// # Errors
    /// A message, if these contradict each other.
    pub fn new(columns: [i32; Self::COLUMNS], window: [usize; 2], may_leave_picture: bool) -> Result<Self, String> {
        let [x0, y0, x1, y1, width, height, left, top, flip] = columns;
        if x0 < 0 || y0 < 0 || x1 <= x0 || y1 <= y0 {
            return Err(format!(
                "region must satisfy 0 <= x0 < x1 and 0 <= y0 < y1, got ({x0}, {y0}, {x1}, {y1})"
            ));
        }
        if width < 1 || height < 1 {
            return Err(format!("size must be at least 1 x 1, got {width} x {height}"));
        }
        let [w, h] = window;
        let (x, y) = (VisibleSpan::new(left, w, width), VisibleSpan::new(top, h, height));
        if x.len == 0 || y.len == 0 || !may_leave_picture && (x.len < w || y.len < h) {
            return Err(format!(
                "window must lie inside the size {width} x {height}, got {w} x {h} at ({left}, {top})"
            ));
        }
        if !(0..4).contains(&flip) {
            return Err(format!("flip must be 0, 1, 2 or 3, got {flip}"));
        }
        Ok(Self {
            region: [x0, y0, x1, y1].map(|v| v as usize),
            orientation: Orientation::default(),
            size: [width as usize, height as usize],
            origin: [x.origin, y.origin],
            visible: [x.len, y.len],
            margin: [x.before, y.before],
            is_framed: x.len < w || y.len < h,
            flip_x: flip & 1 != 0,
            flip_y: flip & 2 != 0,
        })
    }

    /// A whole image or a region of it, resized.
    pub fn resize(region: [usize; 4], width: usize, height: usize) -> Self {
        Self {
            region,
            orientation: Orientation::default(),
            size: [width, height],
            origin: [0, 0],
            visible: [width, height],
            margin: [0, 0],
            is_framed: false,
            flip_x: false,
            flip_y: false,
        }
    }

    /// The same for an image whose stored rows have this orientation.
    pub fn oriented(self, orientation: Orientation) -> Self {
        Self { orientation, ..self }
    }

    /// How the stored image becomes the picture.
    pub fn orientation(&self) -> Orientation {
        self.orientation
    }

    /// The axis of the picture along which the rows of the stored image lie one after another.
    fn axis_of_rows(&self) -> usize {
        usize::from(!self.orientation.transposes)
    }

    /// Rows of the stored image, after resizing, that the window shows.
    pub(super) fn stored_rows(&self) -> usize {
        self.visible[self.axis_of_rows()]
    }

    /// The geometry of these rows of [`Self::stored_rows`].
    pub(super) fn band(&self, rows: &Range<usize>) -> Self {
        let (mut band, axis) = (*self, self.axis_of_rows());
        band.origin[axis] += if self.orientation.mirrors_y {
            self.visible[axis] - rows.end
        } else {
            rows.start
        };
        band.visible[axis] = rows.len();
        band
    }

    /// Columns and rows of the window that show the picture.
    pub(super) fn visible(&self) -> [usize; 2] {
        self.visible
    }

    /// Columns and rows of the window before the picture.
    pub(super) fn margin(&self) -> [usize; 2] {
        self.margin
    }

    /// Origin in the image, and width and height, of the window, if nothing is resized and no background is visible.
    pub(super) fn unscaled_window(&self) -> Option<([usize; 2], [usize; 2])> {
        let [x0, y0, x1, y1] = self.region;
        let is_unscaled = self.size == [x1 - x0, y1 - y0] && !self.is_framed && self.orientation.is_identity();
        is_unscaled.then_some(([x0 + self.origin[0], y0 + self.origin[1]], self.visible))
    }

    /// # Errors
    /// A message, if the region does not lie inside an image of this size.
    pub fn check_inside(&self, width: usize, height: usize) -> Result<(), String> {
        let [x0, y0, x1, y1] = self.region;
        if x1 > width || y1 > height {
            return Err(format!(
                "region must lie inside the image of {width} x {height} pixels, got ({x0}, {y0}, {x1}, {y1})"
            ));
        }
        Ok(())
    }

    /// The samples at `scale` that hold the region's pixels.
    pub fn scaled_region(&self, scale: Scale) -> Region {
        let [x0, y0, x1, y1] = self.region;
        let (x, y) = (x0 / scale.denominator(), y0 / scale.denominator());
        Region {
            x,
            y,
            width: scale.side(x1) - x,
            height: scale.side(y1) - y,
            scale,
        }
    }

    /// The smallest scale that leaves at least `quality` samples for each pixel of the size, in both directions.
    pub fn scale(&self, quality: f64) -> Scale {
        let [x0, y0, x1, y1] = self.region;
        let [width, height] = self.size;
        let stored = if self.orientation.transposes {
            [height, width]
        } else {
            self.size
        };
        Scale::smallest_sufficient([x1 - x0, y1 - y0], stored, quality)
    }

    /// Whether the resize makes the region smaller on an axis, and larger on none.
    pub(super) fn shrinks(&self) -> bool {
        let axes = self.axes(Scale::Full);
        axes.iter().all(|axis| axis.target <= axis.source) && !axes.iter().all(|axis| axis.is_identity())
    }

    /// Both axes of the visible part of the stored image, for a source at `scale`.
    pub fn axes(&self, scale: Scale) -> [Axis; 2] {
        let step = scale.denominator();
        let rows = self.axis_of_rows();
        [
            (0, 1 - rows, self.orientation.mirrors_x),
            (1, rows, self.orientation.mirrors_y),
        ]
        .map(|(stored, axis, is_mirrored)| {
            let (target, origin, len) = (self.size[axis], self.origin[axis], self.visible[axis]);
            Axis {
                source: self.region[stored + 2] - self.region[stored],
                target,
                start: if is_mirrored { target - origin - len } else { origin },
                len,
                step,
                phase: self.region[stored] % step,
                between: Between::Constant,
                is_mirrored,
            }
        })
    }

    /// Both axes of the visible part of the stored image, for a source of chroma samples, and the sample in the image
    /// that is the first of each axis.
    pub(super) fn chroma_axes(&self, grid: &ChromaGrid) -> ([Axis; 2], [usize; 2]) {
        let mut origin = [0; 2];
        let mut axes = self.axes(Scale::Full);
        for (i, axis) in axes.iter_mut().enumerate() {
            let (start, end, step) = (self.region[i], self.region[i + 2], grid.step[i]);
            (axis.step, axis.phase) = (step, start % step);
            origin[i] = start / step;
            if grid.is_interpolated[i] {
                let has_before = origin[i] > 0;
                origin[i] -= usize::from(has_before);
                axis.between = Between::Linear {
                    has_before,
                    has_after: end.div_ceil(step) < grid.size[i],
                };
            }
        }
        (axes, origin)
    }
}

/// The part of a picture that a window shows, along one axis.
struct VisibleSpan {
    /// The first visible column (or row) of the picture.
    origin: usize,
    /// The number of visible columns.
    len: usize,
    /// Columns of the window before them.
    before: usize,
}

impl VisibleSpan {
    fn new(start: i32, window: usize, size: i32) -> Self {
        let (start, size) = (i64::from(start), i64::from(size));
        let end = (start + window as i64).min(size);
        let origin = start.max(0);
        Self {
            origin: origin as usize,
            len: (end - origin).max(0) as usize,
            before: (origin - start) as usize,
        }
    }
}
