//! Modules that do not have the loader look through all of darktable's libraries again.
//!
//! At each start darktable loads about a hundred modules. Each of them says that it needs darktable's own library and
//! GTK's, and each time the loader walks through all the libraries that those need in turn, some 170: three tenths of
//! a start. They are loaded already, for the program needs them itself, and a module finds their functions whether it
//! names them or not. Here a module is loaded from a copy, in the working directory, that does not name them.
//!
//! Where that cannot be done, the module itself is loaded. The layout is that of `elf(5)`, for 64 bits, lowest byte
//! first; the other signatures and values are those of GLib's GModule and of `open(2)`.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::transmute;
use core::slice::from_raw_parts_mut;

use crate::symbol::{self, Real};

/// Libraries that darktable's program needs itself, each with a function by which that is seen.
const LOADED: [(&[u8], &CStr); 3] =
    [(b"libdarktable.so", c"dt_init"), (b"libgtk-3.so.0", c"gtk_init"), (b"libgdk-3.so.0", c"gdk_init")];

/// The largest module of 4.2.1 has 0.5 MB.
const LARGEST: usize = 16 << 20;

const READ: c_int = 0;
const WRITE_NEW: c_int = 0o1 | 0o100 | 0o200;
const CLOSE_ON_EXEC: c_int = 0o2_000_000;
const OWNER: c_uint = 0o600;
const TO_THE_END: c_int = 2;

/// `PT_LOAD` and `PT_DYNAMIC`.
const LOAD: usize = 1;
const DYNAMIC: usize = 2;
/// `DT_NEEDED` and `DT_STRTAB`, and how large an entry is that begins with such a tag: `Elf64_Dyn`.
const NEEDED: usize = 1;
const NAMES: usize = 5;
const ENTRY: usize = 16;

unsafe extern "C" {
    fn open(path: *const c_char, how: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn lseek(file: c_int, to: isize, from: c_int) -> isize;
    fn pread(file: c_int, into: *mut c_void, bytes: usize, at: isize) -> isize;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    fn unlink(path: *const c_char) -> c_int;
    fn strrchr(text: *const c_char, character: c_int) -> *const c_char;
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// Loads a module, as GLib's GModule does.
///
/// # Safety
///
/// As that of GLib.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_module_open(path: *const c_char, how: c_int) -> *mut c_void {
    static REAL: Real = Real::named(c"g_module_open");
    let real: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = unsafe { transmute(REAL.get()) };
    let mut name = [0; 256];
    let copied = unsafe { copy_name(path, &mut name) } && unsafe { copy(path, name.as_ptr()) };
    if copied {
        let module = unsafe { real(name.as_ptr(), how) };
        if !module.is_null() {
            return module;
        }
    }
    unsafe { real(path, how) }
}

/// The file of this name in the working directory. The copies stay there: another module of the same name would
/// otherwise be taken for the one that is loaded.
unsafe fn copy_name(path: *const c_char, name: &mut [c_char; 256]) -> bool {
    if path.is_null() {
        return false;
    }
    let slash = unsafe { strrchr(path, b'/'.into()) };
    if slash.is_null() {
        return false;
    }
    let end = unsafe { CStr::from_ptr(slash) }.to_bytes_with_nul();
    let Some(rest) = name.get_mut(1..=end.len()) else { return false };
    for (to, from) in rest.iter_mut().zip(end) {
        *to = from.cast_signed();
    }
    name[0] = b'.'.cast_signed();
    true
}

/// Whether there is now a copy of the module that does not name what is loaded.
unsafe fn copy(module: *const c_char, to: *const c_char) -> bool {
    unsafe {
        let from = open(module, READ | CLOSE_ON_EXEC);
        if from < 0 {
            return false;
        }
        let bytes = usize::try_from(lseek(from, 0, TO_THE_END)).unwrap_or(0);
        let memory = if bytes <= LARGEST { malloc(bytes) } else { core::ptr::null_mut() };
        let read = !memory.is_null() && pread(from, memory, bytes, 0) == bytes.cast_signed();
        close(from);
        let copied = read
            && forget_loaded(from_raw_parts_mut(memory.cast(), bytes)).is_some_and(|names| names > 0)
            && written(to, memory, bytes);
        free(memory);
        copied
    }
}

unsafe fn written(to: *const c_char, content: *const c_void, bytes: usize) -> bool {
    unsafe {
        let file = open(to, WRITE_NEW | CLOSE_ON_EXEC, OWNER);
        if file < 0 {
            return false;
        }
        let whole = write(file, content, bytes) == bytes.cast_signed();
        close(file);
        if !whole {
            unlink(to);
        }
        whole
    }
}

/// A part of a library, in its file and in memory.
struct Segment {
    kind: usize,
    offset: usize,
    address: usize,
    bytes: usize,
}

/// A library's parts: `Elf64_Phdr`.
fn segments(library: &[u8]) -> Option<impl Iterator<Item = Segment>> {
    let table = number::<8>(library, 32)?;
    let count = number::<2>(library, 56)?;
    Some((0..count).map_while(move |place| {
        let header = library.get(table.checked_add(56 * place)?..)?;
        Some(Segment {
            kind: number::<4>(header, 0)?,
            offset: number::<8>(header, 8)?,
            address: number::<8>(header, 16)?,
            bytes: number::<8>(header, 32)?,
        })
    }))
}

/// Takes the names of loaded libraries out of those that a library needs, and tells how many they were.
fn forget_loaded(library: &mut [u8]) -> Option<usize> {
    if !library.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let dynamic = segments(library)?.find(|segment| segment.kind == DYNAMIC)?;
    let entries = dynamic.bytes / ENTRY;
    let names = address_of_names(library.get(dynamic.offset..)?, entries)?;
    let around = segments(library)?
        .find(|segment| segment.kind == LOAD && names.wrapping_sub(segment.address) < segment.bytes)?;
    let names = around.offset.checked_add(names - around.address)?;

    let mut kept = 0;
    for place in 0..entries {
        let from = dynamic.offset + ENTRY * place;
        if number::<8>(library, from)? == NEEDED
            && is_loaded(library.get(names.checked_add(number::<8>(library, from + 8)?)?..)?)
        {
            continue;
        }
        let to = dynamic.offset + ENTRY * kept;
        for byte in 0..ENTRY {
            *library.get_mut(to + byte)? = *library.get(from + byte)?;
        }
        kept += 1;
    }
    // Zeros end the table.
    for byte in library.get_mut(dynamic.offset + ENTRY * kept..dynamic.offset + ENTRY * entries)? {
        *byte = 0;
    }
    Some(entries - kept)
}

fn address_of_names(dynamic: &[u8], entries: usize) -> Option<usize> {
    let place = (0..entries).find(|place| number::<8>(dynamic, ENTRY * place) == Some(NAMES))?;
    number::<8>(dynamic, ENTRY * place + 8)
}

/// Whether that is the name of one of [`LOADED`], and it is.
fn is_loaded(name: &[u8]) -> bool {
    LOADED.iter().any(|(library, function)| {
        name.strip_prefix(*library).is_some_and(|rest| rest.first() == Some(&0))
            && symbol::anywhere(function).is_some()
    })
}

fn number<const BYTES: usize>(of: &[u8], at: usize) -> Option<usize> {
    let bytes = of.get(at..)?.get(..BYTES)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
