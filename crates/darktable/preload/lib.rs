//! Makes darktable repeat itself, and saves it some work; loaded into it before everything else (`LD_PRELOAD`).
//!
//! Functions of the libraries that darktable uses are replaced by ours, which call them in their turn. Where this
//! cannot be loaded, or a library is another one, darktable runs as it would without.
//!
//! And it sees to it that darktable ends with whoever started it.
//!
//! There is no standard library in here: what it calls is in the program that it is loaded into.
#![no_std]

mod buffers;
mod curves;
mod exif;
mod library;
mod memory;
mod modules;
mod needs;
mod noise;
mod parent;
mod presets;
mod symbol;
mod threads;

#[panic_handler]
fn never(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
