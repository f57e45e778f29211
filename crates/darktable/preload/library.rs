//! Tells where darktable's own library is, on standard output, when it is asked to: the library is what has a version, and
//! the program that uses it may be the same file in several. The signatures are those of `getenv(3)`, `strlen(3)` and
//! `write(2)`.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::symbol::{anywhere, origin};

/// Also in `src/probe.rs`, as are the words before the path.
const TELL: &CStr = c"CHEMIGRAM_TELL_LIBRARY";
const BEFORE: &[u8] = b"library: ";

const STANDARD_OUTPUT: c_int = 1;

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn strlen(text: *const c_char) -> usize;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
}

/// Called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = tell;

extern "C" fn tell() {
    if unsafe { getenv(TELL.as_ptr()) }.is_null() {
        return;
    }
    if let Some(library) = anywhere(c"dt_init").and_then(|function| origin(function)) {
        unsafe {
            write(STANDARD_OUTPUT, BEFORE.as_ptr().cast(), BEFORE.len());
            write(STANDARD_OUTPUT, library.file.cast(), strlen(library.file));
            write(STANDARD_OUTPUT, c"\n".as_ptr().cast(), 1);
        }
    }
}
