//! Memory that is zero until somebody writes to it.
//!
//! darktable reads memory that it has not written, such as, in 4.2.1, the tiles of its RCD demosaicing. Pages fresh
//! from the system are zeros already, and to fill them all the same would take 0.03 s of a preview of 6 megapixels:
//! darktable asks for the size of the raw, and uses the size of the picture. So only what is handed out again is
//! filled.
//!
//! The signatures are those of `malloc(3)` and `posix_memalign(3)`.

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::buffers;
use crate::symbol::{self, Real};

unsafe extern "C" {
    fn calloc(count: usize, bytes: usize) -> *mut c_void;
}

/// `malloc` that is `calloc`, which knows what is fresh.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    unsafe { calloc(1, bytes) }
}

/// What pixels lie in.
///
/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    static REAL: Real = Real::named(c"posix_memalign");
    if let Some(buffer) = buffers::take(alignment, bytes) {
        unsafe { *block = buffer };
        return 0;
    }
    let real: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int =
        unsafe { transmute(REAL.get()) };
    let failed = unsafe { real(block, alignment, bytes) };
    if failed == 0 {
        unsafe { clear(*block, bytes) };
    }
    failed
}

/// And its other name.
///
/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    static REAL: Real = Real::named(c"aligned_alloc");
    if let Some(buffer) = buffers::take(alignment, bytes) {
        return buffer;
    }
    let real: unsafe extern "C" fn(usize, usize) -> *mut c_void = unsafe { transmute(REAL.get()) };
    let block = unsafe { real(alignment, bytes) };
    unsafe { clear(block, bytes) };
    block
}

unsafe fn clear(block: *mut c_void, bytes: usize) {
    if !block.is_null() && !unsafe { is_fresh(block) } {
        unsafe { block.cast::<u8>().write_bytes(0, bytes) };
    }
}

/// Whether the system has just handed out this block by itself. glibc notes that in the second bit of the word
/// before it (malloc.c, `IS_MMAPPED`), and `free` gives such a block back.
unsafe fn is_fresh(block: *mut c_void) -> bool {
    is_glibc() && unsafe { block.cast::<usize>().sub(1).read() } & 2 != 0
}

/// Whether memory is handed out by glibc, and not by a library that is loaded before it.
fn is_glibc() -> bool {
    static ANSWER: AtomicUsize = AtomicUsize::new(0);
    let known = ANSWER.load(Relaxed);
    if known != 0 {
        return known == 2;
    }
    static FREE: Real = Real::named(c"free");
    let library = |function: *mut c_void| symbol::origin(function).map(|origin| origin.base);
    let glibc = symbol::anywhere(c"gnu_get_libc_version").and_then(library);
    let same = glibc.is_some() && glibc == library(FREE.get());
    ANSWER.store(if same { 2 } else { 1 }, Relaxed);
    same
}
