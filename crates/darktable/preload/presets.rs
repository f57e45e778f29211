//! White-balance presets, read when they are asked for.
//!
//! At each start darktable reads its presets for the white balance of all cameras, 3 MB of JSON: a quarter of the time
//! that a start takes. Only its white balance module uses them, and renders were never seen to need one. Here they are
//! read when they are first asked for.

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use crate::symbol::{Once, Real};

/// The file that darktable named, or null for its own.
static FILE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

static READ: Once = Once::new();

/// Keeps the file's name for [`read`].
///
/// # Safety
///
/// `file` is null or lives as long as the process: darktable gives null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_wb_presets_init(file: *const c_char) {
    FILE.store(file.cast_mut(), Release);
}

extern "C" fn read() {
    static REAL: Real = Real::named(c"dt_wb_presets_init");
    let real: unsafe extern "C" fn(*const c_char) = unsafe { transmute(REAL.get()) };
    unsafe { real(FILE.load(Acquire)) }
}

/// How many presets there are.
///
/// # Safety
///
/// As that of darktable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_wb_presets_count() -> c_int {
    static REAL: Real = Real::named(c"dt_wb_presets_count");
    READ.run(read);
    let real: unsafe extern "C" fn() -> c_int = unsafe { transmute(REAL.get()) };
    unsafe { real() }
}

/// The preset at a place in the list.
///
/// # Safety
///
/// As that of darktable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_wb_preset(place: c_int) -> *mut c_void {
    static REAL: Real = Real::named(c"dt_wb_preset");
    READ.run(read);
    let real: unsafe extern "C" fn(c_int) -> *mut c_void = unsafe { transmute(REAL.get()) };
    unsafe { real(place) }
}
