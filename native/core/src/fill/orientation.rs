//! Exif orientation (Exif 2.32, tag 0x0112): the relation of the stored rows to the picture that a viewer shows.

use super::lines;
use crate::error::Error;
use crate::resample::Picture;
use crate::simd::Available;

/// How stored rows become the picture: both mirrors first, then the transposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orientation {
    /// Columns of the stored image are mirrored.
    pub mirrors_x: bool,
    /// Rows of the stored image are mirrored.
    pub mirrors_y: bool,
    /// Rows and columns are exchanged.
    pub transposes: bool,
}

impl Orientation {
    /// The orientation with this value of the tag, 1 to 8.
    pub fn from_exif(value: u8) -> Option<Self> {
        (1..=8).contains(&value).then_some(Self {
            mirrors_x: matches!(value, 2 | 3 | 7 | 8),
            mirrors_y: matches!(value, 3 | 4 | 6 | 7),
            transposes: value >= 5,
        })
    }

    /// Whether the picture is the stored image.
    pub fn is_identity(self) -> bool {
        self == Self::default()
    }

    /// Writes the picture of a stored image, which is given as bands from top to bottom.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(super) fn apply(self, level: Available, bands: &[Picture], picture: &mut Picture) -> Result<(), Error> {
        let [first, ..] = bands else { return Ok(()) };
        let (planes, width) = (first.planes, first.width);
        let height = bands.iter().map(|band| band.height).sum();
        let size = if self.transposes {
            [height, width]
        } else {
            [width, height]
        };
        picture.resize(planes, size[0], size[1])?;
        for plane in 0..planes {
            let rows = bands
                .iter()
                .flat_map(|band| (0..band.height).map(move |y| band.row(plane, y)));
            if self.transposes {
                self.transpose(level, rows, height, plane, picture);
            } else {
                self.mirror(level, rows, height, plane, picture);
            }
        }
        Ok(())
    }

    fn mirror<'a>(
        self,
        level: Available,
        rows: impl Iterator<Item = &'a [u8]>,
        height: usize,
        plane: usize,
        picture: &mut Picture,
    ) {
        for (y, row) in rows.enumerate() {
            let y = if self.mirrors_y { height - 1 - y } else { y };
            let out = &mut picture.row_mut(plane, y)[..row.len()];
            if self.mirrors_x {
                lines::reverse(level, row, out);
            } else {
                out.copy_from_slice(row);
            }
        }
    }

    fn transpose<'a>(
        self,
        level: Available,
        mut rows: impl Iterator<Item = &'a [u8]>,
        height: usize,
        plane: usize,
        picture: &mut Picture,
    ) {
        let stride = picture.stride();
        let mut start = 0;
        while start < height {
            // A block of fewer rows writes beyond its columns: it must be the one beside the padding of the picture's rows.
            let is_rest = self.mirrors_y && start == 0 && !height.is_multiple_of(lines::TRANSPOSED_ROWS);
            let count = if is_rest {
                height % lines::TRANSPOSED_ROWS
            } else {
                lines::TRANSPOSED_ROWS.min(height - start)
            };
            let mut block = [&[][..]; lines::TRANSPOSED_ROWS];
            for (i, row) in rows.by_ref().take(count).enumerate() {
                block[if self.mirrors_y { count - 1 - i } else { i }] = row;
            }
            let last = block[count - 1];
            block[count..].fill(last);
            let column = if self.mirrors_y { height - start - count } else { start };
            let out = &mut picture.plane_mut(plane)[column..];
            lines::transpose(level, &block, self.mirrors_x, out, stride);
            start += count;
        }
    }
}
