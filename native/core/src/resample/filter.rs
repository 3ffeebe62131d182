//! Filters of a resize, as functions of a distance, and the axes they are applied to.

/// A filter of a resize. The support of Pillow's filters (the first four) grows with the scale where an axis shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The average of the pixels whose centres are covered.
    Box,
    /// Triangle.
    Bilinear,
    /// Cubic convolution with a = -0.5 (R. Keys, 1981).
    Bicubic,
    /// Sinc windowed by sinc, three lobes.
    Lanczos,
    /// OpenCV's INTER_LINEAR: the two nearest pixels, whatever the scale is, with weights of 11 bits.
    Cv2Linear,
    /// OpenCV's INTER_AREA where both axes shrink: pixels by the area that is covered.
    Cv2Area,
    /// OpenCV's INTER_AREA where an axis grows: two pixels, in proportion to the covered area.
    Cv2AreaLinear,
    /// OpenCV's INTER_NEAREST: the pixel at the corner of the output pixel.
    Cv2Nearest,
}

impl Filter {
    /// The names of filters for callers.
    pub const NAMES: [&'static str; 7] = [
        "box",
        "bilinear",
        "bicubic",
        "lanczos",
        "cv2-linear",
        "cv2-area",
        "cv2-nearest",
    ];

    /// The filter with one of [`Self::NAMES`].
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "box" => Some(Self::Box),
            "bilinear" => Some(Self::Bilinear),
            "bicubic" => Some(Self::Bicubic),
            "lanczos" => Some(Self::Lanczos),
            "cv2-linear" => Some(Self::Cv2Linear),
            "cv2-area" => Some(Self::Cv2Area),
            "cv2-nearest" => Some(Self::Cv2Nearest),
            _ => None,
        }
    }

    /// The filter of both axes of a resize: OpenCV's area filter is another one where an axis grows.
    pub fn of_axes(self, x: Axis, y: Axis) -> Self {
        let grows = |axis: Axis| axis.target > axis.source;
        match self {
            Self::Cv2Area if grows(x) || grows(y) => Self::Cv2AreaLinear,
            filter => filter,
        }
    }

    /// Whether no weight is negative. Then results stay within the range of their sources, and the order of the passes
    /// and the precision between them are free.
    pub fn is_convex(self) -> bool {
        !matches!(self, Self::Bicubic | Self::Lanczos)
    }

    /// Source pixels for each output pixel. OpenCV divides twice, which rounds differently.
    pub(super) fn scale(self, axis: Axis) -> f64 {
        match self {
            Self::Cv2Linear | Self::Cv2Area | Self::Cv2AreaLinear | Self::Cv2Nearest => {
                1.0 / (axis.target as f64 / axis.source as f64)
            }
            _ => axis.source as f64 / axis.target as f64,
        }
    }

    /// How much the filter is stretched on an axis whose output pixels cover `scale` source pixels; at least 1.
    pub(super) fn stretch(self, scale: f64) -> f64 {
        match self {
            Self::Cv2Linear | Self::Cv2AreaLinear | Self::Cv2Nearest => 1.0,
            _ => scale.max(1.0),
        }
    }

    pub(super) fn support(self) -> f64 {
        match self {
            Self::Box | Self::Cv2Area | Self::Cv2Nearest => 0.5,
            Self::Bilinear | Self::Cv2Linear | Self::Cv2AreaLinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// The weight at a distance from the centre, of one of Pillow's filters.
    pub(super) fn weight(self, x: f64) -> f64 {
        match self {
            Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// What the pixels are that averages were made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// Each pixel is the average that covers it.
    #[default]
    Constant,
    /// Each pixel is interpolated between the two averages whose centres are nearest.
    Linear {
        /// Whether there is an average before the first one that covers a source pixel. It is then sample 0.
        has_before: bool,
        /// Whether there is one after the last.
        has_after: bool,
    },
}

/// One axis of a resize: `source` pixels become `target` pixels, of which `start..start + len` are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Source pixels; at least 1.
    pub source: usize,
    /// Target pixels; at least 1.
    pub target: usize,
    /// First wanted pixel of `target`.
    pub start: usize,
    /// Number of wanted pixels; at least 1.
    pub len: usize,
    /// Pixels in each average of the source. 1: the source has full size. At most `source / target`.
    pub step: usize,
    /// Pixels of the first average that lie before the source; less than `step`.
    pub phase: usize,
    /// What the pixels are where averages are given.
    pub between: Between,
    /// Whether the result is that of the mirrored source, mirrored: weights are rounded as for that.
    pub is_mirrored: bool,
}

impl Axis {
    /// An axis of which all of `target` is wanted.
    pub fn whole(source: usize, target: usize) -> Self {
        Self {
            source,
            target,
            start: 0,
            len: target,
            step: 1,
            phase: 0,
            between: Between::Constant,
            is_mirrored: false,
        }
    }

    /// The number of averages that cover the source.
    pub fn averages(self) -> usize {
        (self.phase + self.source).div_ceil(self.step)
    }

    /// Whether the axis keeps its size.
    pub fn is_identity(self) -> bool {
        self.source == self.target
    }
}
