//! Builds the small library that is loaded into darktable (`preload`), which the program carries inside it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

const SOURCES: &str = "preload";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={SOURCES}");
    let library = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("preload.so");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        match compile(&library) {
            Ok(()) => return Ok(()),
            Err(why) => {
                let why = why.replace('\n', " ");
                println!("cargo::warning=darktable 4 will render with one thread: {why}");
            }
        }
    }
    // darktable goes without it, as it does where it cannot be loaded.
    fs::write(&library, [])
}

/// One object without a standard library: what it calls is in the program that it is loaded into.
fn compile(library: &Path) -> Result<(), String> {
    let of = |name: &str| env::var_os(name).ok_or(format!("cargo sets no {name}"));
    let mut rustc = Command::new(of("RUSTC")?);
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "preload"]);
    rustc.arg("--target").arg(of("TARGET")?);
    rustc.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
    rustc.args(["-C", "link-arg=-nostdlib", "-C", "link-arg=-nostartfiles"]);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut setting = OsString::from("linker=");
        setting.push(linker);
        rustc.arg("-C").arg(setting);
    }
    let ended = rustc
        .arg("-o")
        .arg(library)
        .arg(format!("{SOURCES}/lib.rs"))
        .output()
        .map_err(|error| error.to_string())?;
    if ended.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ended.stderr).into_owned()) }
}
