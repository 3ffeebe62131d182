//! One call that fills rows from stored pixels: its arguments are checked against each other.

use penstock_core::fill::{
    self, Affine, Conversion, FillError, FillOptions, Filler, Geometry, Interleaved, Layout, Mode, Row, StoredFiller,
    StoredImage, StoredRow, StoredWindow, ValueType,
};
use penstock_core::jpeg::Limits;
use pyo3::prelude::*;

use crate::arrays::{Array, Batch, Dtype};
use crate::errors::invalid_argument;
use crate::level::level;
use crate::memory::BufferArgument;
use crate::stack::row_index;
use crate::target::{background, check_distinct, filter_from_name};

/// How values are converted: the numbers for each channel.
struct Numbers {
    scale: Option<Vec<f32>>,
    offset: Option<Vec<f32>>,
    mean: Option<Vec<f32>>,
    deviation: Option<Vec<f32>>,
}

impl Numbers {
    fn conversion(&self, channels: usize) -> PyResult<Conversion<'_>> {
        let has = |numbers: &[f32]| numbers.len() == channels && numbers.iter().all(|number| number.is_finite());
        match (&self.scale, &self.offset, &self.mean, &self.deviation) {
            (None, None, None, None) => Ok(Conversion::Keep),
            (Some(scale), Some(offset), None, None) if has(scale) && has(offset) => {
                Ok(Conversion::Scale { scale, offset })
            }
            (None, None, Some(mean), Some(deviation)) if has(mean) && has(deviation) => {
                Ok(Conversion::Standardise { mean, deviation })
            }
            _ => Err(invalid_argument(format!(
                "scale and offset, or mean and std, must be given together, {channels} finite numbers each"
            ))),
        }
    }
}

/// The images of a call, and how they become rows. All arguments agree with each other.
pub struct StoredCall<'a> {
    images: Vec<StoredImage<'a>>,
    out: &'a Batch,
    rows: Vec<usize>,
    places: Vec<Place>,
    conversion: Conversion<'a>,
    /// Whether values and their type stay as they are.
    keeps_type: bool,
    options: FillOptions,
}

/// What becomes a row.
enum Place {
    /// A part of the image, of the size of a row.
    Window(StoredWindow),
    /// What is resized.
    Resized(Geometry),
}

/// The arguments that say how rows are written.
pub struct RowArguments<'a> {
    rows: Array<i64>,
    layout: &'a str,
    filter: &'a str,
    geometry: Option<Array<i32>>,
    numbers: Numbers,
    beside: Option<[u8; 3]>,
    pad: bool,
}

impl<'a> RowArguments<'a> {
    pub fn new(
        rows: Array<i64>,
        layout: &'a str,
        filter: &'a str,
        geometry: Option<Array<i32>>,
        [scale, offset, mean, deviation]: [Option<Vec<f32>>; 4],
        beside: Option<[u8; 3]>,
        pad: bool,
    ) -> Self {
        let numbers = Numbers {
            scale,
            offset,
            mean,
            deviation,
        };
        Self {
            rows,
            layout,
            filter,
            geometry,
            numbers,
            beside,
            pad,
        }
    }
}

impl<'a> StoredCall<'a> {
    /// Checks the arguments against each other.
    pub fn new(images: Vec<StoredImage<'a>>, out: &'a Batch, arguments: &'a RowArguments<'a>) -> PyResult<Self> {
        let (layout, window, channels) = match (arguments.layout, out.shape) {
            ("HWC", [_, h, w, c]) => (Layout::Hwc, [w, h], c),
            ("CHW", [_, c, h, w]) => (Layout::Chw, [w, h], c),
            (layout, _) => {
                return Err(invalid_argument(format!(
                    "layout must be one of HWC, CHW, got '{layout}'"
                )));
            }
        };
        if images.iter().any(|image| image.channels != channels) || window.contains(&0) || channels == 0 {
            return Err(invalid_argument(format!(
                "out must have layout {} with the channels of the images and at least one pixel, got shape {:?}",
                arguments.layout, out.shape
            )));
        }
        let rows = check_rows(images.len(), out, arguments)?;
        let conversion = arguments.numbers.conversion(channels)?;
        let value = images.first().map(|image| image.value);
        let same = matches!(
            (value, out.dtype),
            (Some(ValueType::U8), Dtype::U8) | (Some(ValueType::U16), Dtype::U16) | (Some(ValueType::F32), Dtype::F32)
        );
        let keeps = conversion == Conversion::Keep;
        // A batch of uint16, unless it keeps values of this type, has the bits of bfloat16 numbers.
        let is_float = out.dtype != Dtype::U8;
        if value.is_some() && !(keeps && same) && (!is_float || keeps && value != Some(ValueType::F32)) {
            return Err(invalid_argument(
                "a batch of floats, or of the bits of bfloat16 numbers (uint16), needs scale and offset, or mean and \
                 std, or images of floats; any other batch of integers has the type of the images, and no numbers",
            ));
        }
        Ok(Self {
            places: read_places(&images, arguments, window)?,
            images,
            out,
            rows,
            conversion,
            keeps_type: keeps && same,
            options: FillOptions {
                mode: Mode::Rgb,
                alpha: [1.0, 0.0],
                filter: filter_from_name(arguments.filter)?,
                layout,
                window,
                background: background(arguments.beside),
                quality: f64::INFINITY,
                late_color: false,
                limits: Limits::NONE,
            },
        })
    }

    /// Fills the rows, without the GIL.
    pub fn run(&self, py: Python<'_>) -> PyResult<()> {
        let level = level();
        py.detach(|| {
            let mut stored = StoredFiller::with_level(level);
            fill::with_filler(level, |filler| {
                (0..self.images.len()).try_for_each(|i| self.fill_one(i, &mut stored, filler))
            })
        })
        .map_err(invalid_argument)
    }

    fn fill_one(&self, i: usize, stored: &mut StoredFiller, filler: &mut Filler) -> Result<(), String> {
        let (image, row) = (self.images[i], self.rows[i]);
        let geometry = match &self.places[i] {
            Place::Resized(geometry) => geometry,
            Place::Window(window) => {
                // SAFETY: rows are in range and distinct, and the types are those of `dtype`. The Python caller must not
                // write them in another call at the same time, as the module's documentation says.
                let mut row = unsafe {
                    match (self.keeps_type, self.out.dtype) {
                        (false, Dtype::F16) => StoredRow::F16(self.out.row_mut(row)),
                        (false, Dtype::U16) => StoredRow::Bf16(self.out.row_mut(row)),
                        (false, _) => StoredRow::F32(self.out.row_mut(row)),
                        (true, _) => StoredRow::Same(self.out.row_bytes_mut(row)),
                    }
                };
                stored.fill(image, *window, self.options.layout, self.conversion, &mut row);
                return Ok(());
            }
        };
        let affine = affine(self.conversion, image.channels);
        // SAFETY: as above.
        let row = unsafe {
            match self.out.dtype {
                Dtype::F16 => Row::F16(self.out.row_mut(row), affine),
                Dtype::F32 => Row::F32(self.out.row_mut(row), affine),
                Dtype::U16 => Row::Bf16(self.out.row_mut(row), affine), // only images of uint8 are resized
                Dtype::U8 => Row::U8(self.out.row_bytes_mut(row)),
            }
        };
        let pixels = Interleaved {
            bytes: image.bytes,
            width: image.width,
            height: image.height,
            channels: image.channels,
        };
        filler
            .fill_pixels(pixels, geometry, &self.options, row)
            .map_err(|error| match error {
                FillError::Image(error) => format!("image {i}: {error}"),
                FillError::Geometry(message) => format!("geometry[{i}]: {message}"),
            })
    }
}

fn check_rows(n: usize, out: &Batch, arguments: &RowArguments<'_>) -> PyResult<Vec<usize>> {
    let (rows, geometry) = (&arguments.rows, arguments.geometry.as_ref());
    if rows.shape() != [n] || geometry.is_some_and(|geometry| geometry.shape() != [n, Geometry::COLUMNS]) {
        return Err(invalid_argument(format!(
            "rows of {n} images must have shape [{n}], and geometry shape [{n}, 9]"
        )));
    }
    refuse_overlap(out, rows)?;
    if let Some(geometry) = geometry {
        refuse_overlap(out, geometry)?;
    }
    let rows: Vec<usize> = rows
        .values()
        .iter()
        .map(|row| row_index(*row, out.shape[0]))
        .collect::<Option<_>>()
        .ok_or_else(|| invalid_argument(format!("rows must be in [0, {}), the rows of out", out.shape[0])))?;
    check_distinct(&rows)?;
    Ok(rows)
}

fn read_places(images: &[StoredImage<'_>], arguments: &RowArguments<'_>, window: [usize; 2]) -> PyResult<Vec<Place>> {
    let columns = arguments
        .geometry
        .as_ref()
        .map(|geometry| geometry.values().as_chunks().0);
    let place = |(i, image): (usize, &StoredImage<'_>)| {
        let place = match columns {
            Some(columns) if arguments.pad => padded_window(columns[i], window),
            Some(columns) => place_of(columns[i], image, window, arguments.beside.is_some()),
            None if [image.width, image.height] == window => {
                Ok(Place::Window(StoredWindow::whole(image.width, image.height)))
            }
            None => Err(format!(
                "without a geometry, an image must have the size of the rows, {window:?}"
            )),
        };
        place.map_err(|message| invalid_argument(format!("geometry[{i}]: {message}")))
    };
    images.iter().enumerate().map(place).collect()
}

/// A window that may leave the image.
fn padded_window(columns: [i32; Geometry::COLUMNS], window: [usize; 2]) -> Result<Place, String> {
    let [x0, y0, x1, y1, width, height, left, top, flip] = columns.map(i64::from);
    let size = [x1 - x0, y1 - y0];
    if size != window.map(|side| side as i64) || size != [width, height] || [left, top] != [0, 0] {
        return Err(format!(
            "with pad, the region must have the size of the rows, {window:?}"
        ));
    }
    if !(0..4).contains(&flip) {
        return Err(format!("flip must be 0, 1, 2 or 3, got {flip}"));
    }
    Ok(Place::Window(StoredWindow {
        x: x0,
        y: y0,
        width: window[0],
        height: window[1],
        flip_x: flip & 1 != 0,
        flip_y: flip & 2 != 0,
    }))
}

/// A window inside the image, or what is resized.
fn place_of(
    columns: [i32; Geometry::COLUMNS],
    image: &StoredImage<'_>,
    window: [usize; 2],
    framed: bool,
) -> Result<Place, String> {
    let geometry = Geometry::new(columns, window, framed)?;
    geometry.check_inside(image.width, image.height)?;
    match StoredWindow::of(&geometry) {
        Some(window) => Ok(Place::Window(window)),
        None if image.value == ValueType::U8 && matches!(image.channels, 1 | 3) => Ok(Place::Resized(geometry)),
        None => Err("only images of 1 or 3 channels of uint8 are resized".to_owned()),
    }
}

/// Refuses an argument that overlaps the batch: the call would overwrite what it reads.
pub fn refuse_overlap(out: &Batch, argument: &impl BufferArgument) -> PyResult<()> {
    if out.overlaps(argument) {
        return Err(invalid_argument("no other argument must overlap out"));
    }
    Ok(())
}

/// The numbers of one or three channels, for three.
fn affine(conversion: Conversion<'_>, channels: usize) -> Affine {
    let of = |numbers: &[f32]| std::array::from_fn(|c| numbers[c % channels]);
    match conversion {
        Conversion::Scale { scale, offset } => Affine {
            scale: of(scale),
            offset: of(offset),
        },
        _ => Affine {
            scale: [1.0; 3],
            offset: [0.0; 3],
        },
    }
}
