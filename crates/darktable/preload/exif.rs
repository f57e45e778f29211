//! Pictures that nobody keeps carry no EXIF.
//!
//! darktable writes a TIFF, and then Exiv2 reads it and writes it once more, with the photograph's EXIF in it:
//! 0.006 s of a preview of 1024 pixels. A picture that is only looked at, and never leaves the scratch folder, does
//! without when the environment says so.
//!
//! The signature was read from the callers' code in 4.2.1, 5.0.1 and 5.4.1; other than 1 is a failure.

use core::ffi::{CStr, c_char, c_int};
use core::mem::transmute;

use crate::symbol::Real;

/// Set where no picture is kept; also in `src/darktable/preload.rs`.
const WITHOUT: &CStr = c"CHEMIGRAM_WITHOUT_EXIF";

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Writes EXIF into a picture's file.
///
/// # Safety
///
/// As that of darktable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_exif_write_blob(
    exif: *mut u8,
    bytes: u32,
    picture: *const c_char,
    packed: c_int,
) -> c_int {
    static REAL: Real = Real::named(c"dt_exif_write_blob");
    if !unsafe { getenv(WITHOUT.as_ptr()) }.is_null() {
        return 1;
    }
    let real: unsafe extern "C" fn(*mut u8, u32, *const c_char, c_int) -> c_int =
        unsafe { transmute(REAL.get()) };
    unsafe { real(exif, bytes, picture, packed) }
}
