//! A darktable ends with the program that started it, also when that is killed: nobody else would end it.
//!
//! The signal is sent when the *thread* ends that the process is a child of, and the thread that starts a program ends at
//! once. Only then is the process the child of the main thread, so that is waited for. The signatures and values are
//! those of `prctl(2)`, `tgkill(2)` and `errno(3)` on Linux.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulong};

/// The number of the thread that starts the process; also in `src/darktable/process.rs`.
const STARTED_BY: &CStr = c"CHEMIGRAM_STARTED_BY";

const SET_PARENT_DEATH_SIGNAL: c_int = 1;
const KILL: c_ulong = 9;
const NO_SUCH_PROCESS: c_int = 3;
/// How often it is looked whether the thread has ended, a millisecond apart.
const LOOKS: usize = 2000;

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn atoi(text: *const c_char) -> c_int;
    fn getppid() -> c_int;
    fn tgkill(process: c_int, thread: c_int, signal: c_int) -> c_int;
    fn prctl(what: c_int, value: c_ulong) -> c_int;
    fn usleep(microseconds: c_uint) -> c_int;
    fn _exit(status: c_int) -> !;
    fn __errno_location() -> *mut c_int;
}

/// Called by the loader before the program begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = end_with_parent;

extern "C" fn end_with_parent() {
    unsafe {
        let by = getenv(STARTED_BY.as_ptr());
        let thread = if by.is_null() { 0 } else { atoi(by) };
        let parent = getppid();
        if thread <= 0 || parent <= 1 {
            return;
        }
        for _ in 0..LOOKS {
            if tgkill(parent, thread, 0) != 0 && *__errno_location() == NO_SUCH_PROCESS {
                prctl(SET_PARENT_DEATH_SIGNAL, KILL);
                // It may have ended before it was asked to tell.
                if getppid() != parent {
                    _exit(1);
                }
                return;
            }
            usleep(1000);
        }
    }
}
