//! The functions of the other libraries in the process; signatures and values of `dlsym(3)` and `dladdr(3)`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering::Relaxed};

/// `RTLD_NEXT`: the next library that has the symbol. The value of glibc and musl.
const NEXT: *mut c_void = usize::MAX as *mut c_void;
/// `RTLD_DEFAULT`: the first one that has it.
const ANY: *mut c_void = null_mut();

/// `Dl_info`.
#[repr(C)]
pub struct Origin {
    /// The library's path.
    pub file: *const c_char,
    /// Where it is loaded.
    pub base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn pthread_once(once: *mut c_int, run: extern "C" fn()) -> c_int;
    fn dladdr(address: *const c_void, origin: *mut Origin) -> c_int;
}

/// A function that one of ours replaces, looked up when it is first called: not every program that this is
/// loaded into has all of them, such as the shell of a script that starts darktable.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name.
    pub const fn named(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// Whether it was looked up.
    pub fn is_known(&self) -> bool {
        !self.found.load(Relaxed).is_null()
    }

    /// Whichever thread is first finds the same. Whoever calls ours was linked with it, so it is there.
    pub fn get(&self) -> *mut c_void {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = unsafe { dlsym(NEXT, self.name.as_ptr()) };
            self.found.store(found, Relaxed);
        }
        found
    }
}

/// `pthread_once_t`, with its initial value in glibc and musl: something that is done once, whichever thread needs it.
pub struct Once(AtomicI32);

impl Once {
    /// Not done yet.
    pub const fn new() -> Self {
        Self(AtomicI32::new(0))
    }

    /// Does it, or waits until it is done.
    pub fn run(&self, what: extern "C" fn()) {
        unsafe { pthread_once(self.0.as_ptr(), what) };
    }
}

/// A function, if any library has it.
pub fn anywhere(name: &CStr) -> Option<*mut c_void> {
    let found = unsafe { dlsym(ANY, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The library that an address lies in.
pub fn origin(address: *const c_void) -> Option<Origin> {
    let mut origin = Origin { file: null_mut(), base: null_mut(), symbol: null_mut(), address: null_mut() };
    let found = unsafe { dladdr(address, &mut origin) } != 0 && !origin.file.is_null();
    found.then_some(origin)
}
