//! Noise profiles, read when they are asked for.
//!
//! At each start darktable reads its profiles of the noise of all cameras, 1.5 MB of JSON: an eighth of the time that a
//! start takes. Only its module for profiled denoising uses them: that of 4.x when it is on, that of 5.x with every
//! photo. Here they are read when they are first asked for; until then darktable has a parser that has read nothing.

use core::ffi::{c_char, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use crate::symbol::{self, Once, Real};

/// The file that darktable named, or null for its own.
static FILE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// The parser that darktable was given, if it is one that has read nothing.
static GIVEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// The one that has read the profiles, or null if that failed.
static FULL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn load(file: *const c_char) -> *mut c_void {
    static REAL: Real = Real::named(c"dt_noiseprofile_init");
    let real: unsafe extern "C" fn(*const c_char) -> *mut c_void = unsafe { transmute(REAL.get()) };
    unsafe { real(file) }
}

/// Gives darktable a parser, and keeps the file's name.
///
/// # Safety
///
/// `file` is null or lives as long as the process: darktable gives null, or an argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_noiseprofile_init(file: *const c_char) -> *mut c_void {
    let Some(new) = symbol::anywhere(c"json_parser_new") else { return load(file) };
    let new: extern "C" fn() -> *mut c_void = unsafe { transmute(new) };
    FILE.store(file.cast_mut(), Release);
    GIVEN.store(new(), Release);
    GIVEN.load(Acquire)
}

extern "C" fn read() {
    FULL.store(load(FILE.load(Acquire)), Release);
}

/// What a parser has read, also where it is ours that darktable was given.
///
/// # Safety
///
/// As that of JSON-GLib.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn json_parser_get_root(parser: *mut c_void) -> *mut c_void {
    static REAL: Real = Real::named(c"json_parser_get_root");
    static READ: Once = Once::new();
    let real: unsafe extern "C" fn(*mut c_void) -> *mut c_void = unsafe { transmute(REAL.get()) };
    if parser.is_null() || parser != GIVEN.load(Acquire) {
        return unsafe { real(parser) };
    }
    READ.run(read);
    let full = FULL.load(Acquire);
    unsafe { real(if full.is_null() { parser } else { full }) }
}
