//! Large buffers that are kept when darktable gives them back, for its next picture.
//!
//! A preview of 24 megapixels takes 0.7 GB from the system and gives it back. Taking it costs a tenth of the preview,
//! and half of it where the system, between two pictures, handed the memory on to the host that it runs on.
//!
//! The signatures are those of `malloc(3)` and `mmap(2)`.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::symbol::Real;

/// Set where a darktable is kept alive; also in `src/darktable/preload.rs`.
const WANTED: &CStr = c"CHEMIGRAM_KEEPS_BUFFERS";
/// A large page of x86-64. Every kept buffer starts at one and is made of them; smaller ones are not kept.
const PAGE: usize = 2 << 20;
/// How much is kept at most that nobody uses, in bytes: the buffers of 45 megapixels.
const MOST: usize = 2 << 30;
const SLOTS: usize = 64;

// Those of Linux on nearly all processors. On the others nothing can be mapped with them, and nothing is kept.
const READ_WRITE: c_int = 1 | 2;
const PRIVATE_ANONYMOUS: c_int = 0x02 | 0x20;
const IN_LARGE_PAGES: c_int = 14;
const NOT_NEEDED: c_int = 4;
const FAILED: usize = usize::MAX;

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        may: c_int,
        kind: c_int,
        file: c_int,
        offset: isize,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn mincore(at: *mut c_void, bytes: usize, pages: *mut u8) -> c_int;
    fn sched_yield() -> c_int;
}

#[derive(Clone, Copy)]
struct Buffer {
    at: *mut u8,
    bytes: usize,
}

impl Buffer {
    /// New, and so zeros.
    fn map(bytes: usize) -> Option<Self> {
        let all = unsafe { mmap(null_mut(), bytes + PAGE, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0) };
        if all.addr() == FAILED {
            return None;
        }
        let before = all.cast::<u8>().align_offset(PAGE);
        let buffer = Self { at: unsafe { all.cast::<u8>().add(before) }, bytes };
        unsafe {
            if before > 0 {
                munmap(all, before);
            }
            if before < PAGE {
                munmap(buffer.at.add(bytes).cast(), PAGE - before);
            }
            madvise(buffer.at.cast(), bytes, IN_LARGE_PAGES);
        }
        Some(buffer)
    }

    /// Zeros from the start on, for so many bytes. Where there is no memory behind it, because nobody has written there
    /// or it was swapped out, the system sees to it: darktable asks for more than it writes to.
    fn clear(self, bytes: usize) {
        for at in (0..bytes).step_by(PAGE) {
            let block = unsafe { self.at.add(at) };
            let mut pages = [0; PAGE / 4096];
            let known = unsafe { mincore(block.cast(), PAGE, pages.as_mut_ptr()) } == 0;
            let empty = known && pages.iter().all(|page| page & 1 == 0);
            if !(empty && unsafe { madvise(block.cast(), PAGE, NOT_NEEDED) } == 0) {
                unsafe { block.write_bytes(0, PAGE) };
            }
        }
    }

    fn unmap(self) {
        unsafe { munmap(self.at.cast(), self.bytes) };
    }
}

#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Used(Buffer),
    /// Nobody's, since the buffer of that number was given back.
    Kept(Buffer, u64),
}

struct Slots {
    slots: [Slot; SLOTS],
    given_back: u64,
}

impl Slots {
    fn used(&mut self, block: *mut c_void) -> Option<(&mut Slot, Buffer)> {
        self.slots.iter_mut().find_map(|slot| match *slot {
            Slot::Used(buffer) if buffer.at.cast() == block => Some((slot, buffer)),
            _ => None,
        })
    }

    /// The smallest kept one that is as large, and not much larger: what is larger is wanted by somebody else.
    fn fitting(&mut self, bytes: usize) -> Option<Buffer> {
        let fits = |slot: &mut Slot| match *slot {
            Slot::Kept(buffer, _) if (bytes..=bytes + bytes / 4).contains(&buffer.bytes) => Some(buffer),
            _ => None,
        };
        let slots = self.slots.iter_mut();
        let (slot, buffer) = slots
            .filter_map(|slot| fits(slot).map(|buffer| (slot, buffer)))
            .min_by_key(|(_, it)| it.bytes)?;
        *slot = Slot::Used(buffer);
        Some(buffer)
    }

    /// Forgets the one that was given back first; the caller unmaps it.
    fn oldest(&mut self) -> Option<Buffer> {
        let when = |slot: &mut Slot| match *slot {
            Slot::Kept(buffer, when) => Some((buffer, when)),
            _ => None,
        };
        let slots = self.slots.iter_mut();
        let (slot, (buffer, _)) =
            slots.filter_map(|slot| when(slot).map(|it| (slot, it))).min_by_key(|(_, (_, when))| *when)?;
        *slot = Slot::Empty;
        Some(buffer)
    }

    fn kept(&self) -> usize {
        let bytes = |slot: &Slot| if let Slot::Kept(buffer, _) = slot { buffer.bytes } else { 0 };
        self.slots.iter().map(bytes).sum()
    }
}

struct Shared {
    locked: AtomicBool,
    slots: UnsafeCell<Slots>,
}

// `with` lets in one thread at a time.
unsafe impl Sync for Shared {}

/// What is done in here calls nobody, so that it is soon done.
fn with<T>(act: impl FnOnce(&mut Slots) -> T) -> T {
    static SHARED: Shared = Shared {
        locked: AtomicBool::new(false),
        slots: UnsafeCell::new(Slots { slots: [Slot::Empty; SLOTS], given_back: 0 }),
    };
    while SHARED.locked.swap(true, Acquire) {
        unsafe { sched_yield() };
    }
    let answer = act(unsafe { &mut *SHARED.slots.get() });
    SHARED.locked.store(false, Release);
    answer
}

fn wanted() -> bool {
    static ANSWER: AtomicU8 = AtomicU8::new(0);
    match ANSWER.load(Relaxed) {
        0 => {
            let wanted = unsafe { !getenv(WANTED.as_ptr()).is_null() };
            ANSWER.store(if wanted { 2 } else { 1 }, Relaxed);
            wanted
        }
        known => known == 2,
    }
}

/// A buffer of zeros, or nothing where it is for others to give one.
pub fn take(alignment: usize, bytes: usize) -> Option<*mut c_void> {
    if bytes < PAGE || alignment > PAGE || !wanted() {
        return None;
    }
    let bytes = bytes.checked_next_multiple_of(PAGE)?;
    if let Some(buffer) = with(|slots| slots.fitting(bytes)) {
        buffer.clear(bytes);
        return Some(buffer.at.cast());
    }
    let buffer = loop {
        match Buffer::map(bytes) {
            Some(buffer) => break buffer,
            // There may be room when others are gone.
            None => with(Slots::oldest)?.unmap(),
        }
    };
    loop {
        let placed = with(|slots| {
            let empty = slots.slots.iter_mut().find(|slot| matches!(slot, Slot::Empty));
            empty.map(|slot| *slot = Slot::Used(buffer))
        });
        if placed.is_some() {
            return Some(buffer.at.cast());
        }
        match with(Slots::oldest) {
            Some(oldest) => oldest.unmap(),
            None => {
                buffer.unmap();
                return None;
            }
        }
    }
}

/// How large a block is, if it is a buffer from here.
fn size(block: *mut c_void) -> Option<usize> {
    if block.is_null() || block.addr() % PAGE != 0 {
        return None;
    }
    with(|slots| slots.used(block).map(|(_, buffer)| buffer.bytes))
}

/// Keeps a block that is from here.
fn give_back(block: *mut c_void) {
    with(|slots| {
        slots.given_back += 1;
        let now = slots.given_back;
        if let Some((slot, buffer)) = slots.used(block) {
            *slot = Slot::Kept(buffer, now);
        }
    });
    while let Some(oldest) = with(|slots| if slots.kept() > MOST { slots.oldest() } else { None }) {
        oldest.unmap();
    }
}

/// Gives back a block, from here or not.
///
/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    static REAL: Real = Real::named(c"free");
    static SOUGHT: AtomicBool = AtomicBool::new(false);
    if size(block).is_some() {
        return give_back(block);
    }
    // To look it up may free something, which would look it up: those few bytes are lost.
    if !REAL.is_known() && SOUGHT.swap(true, Relaxed) {
        return;
    }
    let real: unsafe extern "C" fn(*mut c_void) = unsafe { transmute(REAL.get()) };
    unsafe { real(block) }
}

/// Makes a block larger or smaller, from here or not.
///
/// # Safety
///
/// As that of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    static REAL: Real = Real::named(c"realloc");
    if let Some(had) = size(block) {
        let other = crate::memory::malloc(bytes);
        if !other.is_null() {
            unsafe { other.cast::<u8>().copy_from_nonoverlapping(block.cast(), had.min(bytes)) };
            give_back(block);
        }
        return other;
    }
    let real: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void = unsafe { transmute(REAL.get()) };
    unsafe { real(block, bytes) }
}
