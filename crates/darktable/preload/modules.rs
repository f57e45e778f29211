//! Modules that are off make no tables.
//!
//! For each picture darktable hands every module of its pipe its parameters, those that are off too, and some make
//! tables of tens of thousands of points of them: 0.015 s, a tenth of a small preview. Nobody reads the tables of
//! a module that is off, so here these modules are handed their parameters when they are on.
//!
//! darktable finds a module's functions by name in its library, where this intercepts it.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use crate::symbol::{self, Real};

/// Those whose function took longer than 0.2 ms on 4.2.1, 5.0.1 or 5.4.1 and fills tables of its own alone. Not
/// `basecurve`, which frees its table whether it made one or not.
const WITH_TABLES: [&[u8]; 11] = [
    b"/libcolisa.so",
    b"/libcolorequal.so",
    b"/libcolorzones.so",
    b"/libfilmic.so",
    b"/liblevels.so",
    b"/liblowlight.so",
    b"/liblowpass.so",
    b"/libprofile_gamma.so",
    b"/librgblevels.so",
    b"/libtonecurve.so",
    b"/libtoneequal.so",
];

/// Versions whose [`Piece`] it is: measured on 4.2.1, 5.0.1 and 5.4.1.
const MEASURED: [&[u8]; 4] = [b"4.", b"5.0.", b"5.2.", b"5.4."];

/// A module in a pipe: the beginning of `dt_dev_pixelpipe_iop_t`.
#[repr(C)]
struct Piece {
    module: *const c_void,
    pipe: *const c_void,
    data: *const c_void,
    blending: *const c_void,
    enabled: c_int,
}

/// `commit_params` of darktable's modules.
type Commit = unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, *const Piece);

/// The functions that [`OURS`] replace.
static THEIRS: [AtomicPtr<c_void>; WITH_TABLES.len()] =
    [const { AtomicPtr::new(null_mut()) }; WITH_TABLES.len()];
const OURS: [Commit; WITH_TABLES.len()] = [
    commit::<0>,
    commit::<1>,
    commit::<2>,
    commit::<3>,
    commit::<4>,
    commit::<5>,
    commit::<6>,
    commit::<7>,
    commit::<8>,
    commit::<9>,
    commit::<10>,
];

unsafe extern "C" fn commit<const MODULE: usize>(
    module: *const c_void,
    parameters: *const c_void,
    pipe: *const c_void,
    piece: *const Piece,
) {
    let stands = unsafe { &*piece };
    if stands.module == module && stands.pipe == pipe && stands.enabled == 0 {
        return;
    }
    let theirs: Commit = unsafe { transmute(THEIRS[MODULE].load(Acquire)) };
    unsafe { theirs(module, parameters, pipe, piece) }
}

/// Looks up a function of a module's library, as GLib's GModule does.
///
/// # Safety
///
/// As that of GLib.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_module_symbol(
    library: *mut c_void,
    name: *const c_char,
    found: *mut *mut c_void,
) -> c_int {
    static REAL: Real = Real::named(c"g_module_symbol");
    type Symbol = unsafe extern "C" fn(*mut c_void, *const c_char, *mut *mut c_void) -> c_int;
    let real: Symbol = unsafe { transmute(REAL.get()) };
    let is_there = unsafe { real(library, name, found) };
    if is_there != 0
        && unsafe { CStr::from_ptr(name) } == c"commit_params"
        && let Some(module) = with_tables(unsafe { *found })
    {
        THEIRS[module].store(unsafe { *found }, Release);
        unsafe { *found = OURS[module] as *mut c_void };
    }
    is_there
}

/// The place of a function's module in [`WITH_TABLES`], if it is one of those.
fn with_tables(function: *const c_void) -> Option<usize> {
    let version = symbol::anywhere(c"darktable_package_version")?;
    let version = unsafe { CStr::from_ptr(version.cast()) }.to_bytes();
    if !MEASURED.iter().any(|measured| version.starts_with(measured)) {
        return None;
    }
    let file = unsafe { CStr::from_ptr(symbol::origin(function)?.file) }.to_bytes();
    WITH_TABLES.iter().position(|library| file.ends_with(library))
}
