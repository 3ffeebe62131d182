//! What happens to samples: inverse DCT, upsampling, colour. The scalar code specifies each kernel; the vector code lies
//! beside it.

pub(crate) mod color;
pub(crate) mod idct;
pub(crate) mod idct_scaled;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod upsample;
