//! Two threads that take their work in turn.
//!
//! darktable's pixel code hands pieces of a picture to whichever thread is free. Where a piece's result depends on
//! what its thread did before, as the frame's edge does in the RCD demosaicing of darktable 4, a picture depends on
//! chance. Here GNU's OpenMP library, which the darktable of Linux distributions is built with, is asked for two
//! threads and for the same pieces in the same order each time. Two, because what two threads add up is the same in
//! either order, and the sum of three is not.
//!
//! In a darktable that has another OpenMP library nothing of this happens.
//!
//! The signatures are those of libgomp's binary interface (its manual, "The libgomp ABI"; GCC's
//! `omp-builtins.def`).

use core::ffi::{CStr, c_int, c_long, c_uint, c_ulonglong, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::symbol::{self, Real};

const THREADS: u8 = 2;

/// Modules whose threads add to the same numbers whenever they come to it: they get one thread. Found as the
/// plugins of 4.2.1 that add fractions atomically outside of a reduction; seen with `colorreconstruct`, on 4.2.1,
/// 5.0.1 and 5.4.1.
const RACING: [&[u8]; 3] = [b"/libcolorreconstruct.so", b"/libcolormapping.so", b"/libcolortransfer.so"];

type Body = unsafe extern "C" fn(*mut c_void);

/// What is known of a region's code: its address, which is even, and one more if it is racing.
static SEEN: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];

/// A parallel region: two threads unless its author asked for another number, and one if it is racing.
///
/// # Safety
///
/// Called by compiled OpenMP code alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn GOMP_parallel(body: Body, data: *mut c_void, threads: c_uint, flags: c_uint) {
    static REAL: Real = Real::named(c"GOMP_parallel");
    let real: unsafe extern "C" fn(Body, *mut c_void, c_uint, c_uint) = unsafe { transmute(REAL.get()) };
    let threads = match threads {
        told if is_foreign() => told,
        _ if races(body) => 1,
        0 => THREADS.into(),
        told => told,
    };
    unsafe { real(body, data, threads, flags) }
}

/// Looking up where code comes from takes a while, and a picture has thousands of regions of a few kinds.
fn races(body: Body) -> bool {
    let address = body as usize & !1;
    let seen = &SEEN[(address >> 4) % SEEN.len()];
    let known = seen.load(Relaxed);
    if known & !1 == address {
        return known & 1 == 1;
    }
    let racing = comes_from_racing(address as *const c_void);
    seen.store(address | usize::from(racing), Relaxed);
    racing
}

fn comes_from_racing(address: *const c_void) -> bool {
    symbol::origin(address).is_some_and(|origin| {
        let file = unsafe { CStr::from_ptr(origin.file) }.to_bytes();
        RACING.iter().any(|library| file.ends_with(library))
    })
}

/// Whether the OpenMP library is LLVM's, which has GNU's functions too but asks for threads by others.
fn is_foreign() -> bool {
    static ANSWER: AtomicUsize = AtomicUsize::new(0);
    let known = ANSWER.load(Relaxed);
    if known != 0 {
        return known == 2;
    }
    let foreign = symbol::anywhere(c"__kmpc_fork_call").is_some();
    ANSWER.store(if foreign { 2 } else { 1 }, Relaxed);
    foreign
}

/// Two, or what a foreign library says.
fn two_unless_foreign(real: &Real) -> c_int {
    if !is_foreign() {
        return THREADS.into();
    }
    let real: unsafe extern "C" fn() -> c_int = unsafe { transmute(real.get()) };
    unsafe { real() }
}

/// darktable makes as many buffers as this says processors.
#[unsafe(no_mangle)]
pub extern "C" fn omp_get_num_procs() -> c_int {
    static REAL: Real = Real::named(c"omp_get_num_procs");
    two_unless_foreign(&REAL)
}

/// And in places as many as this says threads.
#[unsafe(no_mangle)]
pub extern "C" fn omp_get_max_threads() -> c_int {
    static REAL: Real = Real::named(c"omp_get_max_threads");
    two_unless_foreign(&REAL)
}

/// A loop whose pieces go to whoever is free, as a loop whose pieces go round. `$up` is what a loop over unsigned
/// numbers has besides.
macro_rules! in_turn {
    ($number:ty: $start:ident, $next:ident as $static_start:literal, $static_next:literal $(, $up:ident)?) => {
        #[unsafe(no_mangle)]
        #[allow(missing_docs, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $start(
            $($up: bool,)?
            start: $number,
            end: $number,
            step: $number,
            chunk: $number,
            from: *mut $number,
            to: *mut $number,
        ) -> bool {
            type Start = unsafe extern "C" fn(
                $(in_turn!(bool $up),)?
                $number,
                $number,
                $number,
                $number,
                *mut $number,
                *mut $number,
            ) -> bool;
            static REAL: Real = Real::named($static_start);
            let real: Start = unsafe { transmute(REAL.get()) };
            unsafe { real($($up,)? start, end, step, chunk, from, to) }
        }

        #[unsafe(no_mangle)]
        #[allow(missing_docs, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $next(from: *mut $number, to: *mut $number) -> bool {
            static REAL: Real = Real::named($static_next);
            let real: unsafe extern "C" fn(*mut $number, *mut $number) -> bool =
                unsafe { transmute(REAL.get()) };
            unsafe { real(from, to) }
        }
    };
    (bool $up:ident) => { bool };
    (signed: $start:ident, $next:ident) => {
        in_turn!(c_long: $start, $next as c"GOMP_loop_static_start", c"GOMP_loop_static_next");
    };
    (unsigned: $start:ident, $next:ident) => {
        in_turn!(
            c_ulonglong: $start,
            $next as c"GOMP_loop_ull_static_start",
            c"GOMP_loop_ull_static_next",
            up
        );
    };
}

in_turn!(signed: GOMP_loop_dynamic_start, GOMP_loop_dynamic_next);
in_turn!(signed: GOMP_loop_guided_start, GOMP_loop_guided_next);
in_turn!(signed: GOMP_loop_nonmonotonic_dynamic_start, GOMP_loop_nonmonotonic_dynamic_next);
in_turn!(signed: GOMP_loop_nonmonotonic_guided_start, GOMP_loop_nonmonotonic_guided_next);
in_turn!(unsigned: GOMP_loop_ull_dynamic_start, GOMP_loop_ull_dynamic_next);
in_turn!(unsigned: GOMP_loop_ull_guided_start, GOMP_loop_ull_guided_next);
in_turn!(unsigned: GOMP_loop_ull_nonmonotonic_dynamic_start, GOMP_loop_ull_nonmonotonic_dynamic_next);
in_turn!(unsigned: GOMP_loop_ull_nonmonotonic_guided_start, GOMP_loop_ull_nonmonotonic_guided_next);
