//! The library that is loaded into darktable, loaded into a program of which more is known: this one.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is the failure of its test")]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use darktable::preload;
use testkit::demo::Demo;
use testkit::kept;

/// Memory that is asked for as darktable asks for pixels: aligned, which Rust gets by `posix_memalign`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

const MIB: usize = 1 << 20;

fn unwritten(bytes: usize) -> Vec<Line> {
    Vec::with_capacity(bytes / 64)
}

fn filled(bytes: usize, with: u8) -> Vec<Line> {
    vec![Line([with; 64]); bytes / 64]
}

fn at(buffer: &[Line]) -> usize {
    buffer.as_ptr().addr()
}

/// What lies there, written or not.
fn content(buffer: &Vec<Line>) -> Vec<u8> {
    let mut bytes = vec![1; buffer.capacity() * 64];
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, at(buffer) as u64).unwrap();
    bytes
}

/// How much this process has mapped, in bytes.
fn mapped() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn buffers_are_kept_cleared_and_not_too_many() {
    let (setting, _) = preload::KEEPS_BUFFERS;
    if std::env::var_os(setting).is_none() {
        let demo = Demo::open();
        let folder = tempfile::tempdir().unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "preload::buffers_are_kept_cleared_and_not_too_many", "--nocapture"])
            .envs(preload::repeatable(demo.cli(), folder.path()).unwrap())
            .envs([preload::KEEPS_BUFFERS])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains("all of it was tried"), "{said}");
        return;
    }

    // The same one again, and nothing of what was in it.
    let first = filled(8 * MIB, 7);
    let place = at(&first);
    drop(first);
    let again = unwritten(8 * MIB);
    assert_eq!(at(&again), place);
    assert!(content(&again).iter().all(|byte| *byte == 0));

    // Never the same one twice; and not one that is much larger.
    let beside = unwritten(8 * MIB);
    assert!(at(&beside).abs_diff(place) >= 8 * MIB);
    drop(again);
    let small = unwritten(4 * MIB);
    let fitting = unwritten(7 * MIB);
    assert!(at(&small) != place && at(&fitting) == place);

    // More at once than there are places for.
    let many: Vec<Vec<Line>> = (0..150).map(|at| filled(2 * MIB, at)).collect();
    let whole = |(at, buffer): (usize, &Vec<Line>)| buffer.iter().all(|line| line.0 == [at as u8; 64]);
    assert!(many.iter().enumerate().all(whole));
    drop(many);

    // Several threads take and give back at the same time.
    std::thread::scope(|scope| {
        for own in 0..4 {
            scope.spawn(move || {
                for round in 0..200 {
                    let buffer = filled((2 + round % 5) * MIB, own);
                    assert!(buffer.iter().all(|line| line.0 == [own; 64]));
                }
            });
        }
    });

    // What is over two gigabytes goes back.
    let before = mapped();
    let large: Vec<Vec<Line>> = (0..6).map(|_| unwritten(512 * MIB)).collect();
    assert!(mapped() > before + 3000 * MIB);
    drop(large);
    let after = mapped();
    assert!(after > before + 1500 * MIB && after < before + 2100 * MIB, "{before} {after}");
    println!("all of it was tried");
}

/// A program that asks darktable's library for its white-balance presets and noise profiles, after the files of them are
/// there.
const ASKS: &str = r#"
use std::ffi::{CStr, c_char, c_int, c_void};

#[repr(C)]
struct Preset {
    make: *const c_char,
    model: *const c_char,
}

unsafe extern "C" {
    fn dt_wb_presets_init(file: *const c_char);
    fn dt_wb_presets_count() -> c_int;
    fn dt_wb_preset(place: c_int) -> *const Preset;
    fn dt_noiseprofile_init(file: *const c_char) -> *mut c_void;
    fn json_parser_get_root(parser: *mut c_void) -> *mut c_void;
    fn json_to_string(node: *mut c_void, pretty: c_int) -> *const c_char;
}

fn main() {
    unsafe { dt_wb_presets_init(c"presets.json".as_ptr()) };
    let profiles = unsafe { dt_noiseprofile_init(c"profiles.json".as_ptr()) };
    std::fs::rename("later/presets.json", "presets.json").unwrap();
    std::fs::rename("later/profiles.json", "profiles.json").unwrap();
    for place in 0..unsafe { dt_wb_presets_count() } {
        let preset = unsafe { &*dt_wb_preset(place) };
        println!("{:?}", [preset.make, preset.model].map(|word| unsafe { CStr::from_ptr(word) }));
    }
    if !profiles.is_null() {
        for _ in 0..2 {
            let read = unsafe { CStr::from_ptr(json_to_string(json_parser_get_root(profiles), 0)) };
            println!("{}", read.to_str().unwrap());
        }
    }
}
"#;

/// What is asked for is there although it is read no earlier: the files are not yet there when darktable would read
/// them.
#[test]
fn presets_and_profiles_are_read_when_they_are_asked_for() {
    let cli = kept::darktable();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let linked = Command::new("ldd").arg(cli.path()).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let of = |name: &str| linked.split_whitespace().find(|word| word.starts_with('/') && word.contains(name));
    let (Some(library), Some(json)) = (of("/libdarktable.so"), of("/libjson-glib-1.0.so")) else {
        // One that runs in a root of its own, as by `scripts/with-darktable.sh`, is behind a script.
        assert!(std::fs::read(cli.path()).unwrap().starts_with(b"#!"), "{linked}");
        return;
    };
    std::fs::write(path("asks.rs"), ASKS).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024"]);
    rustc.args([library, json].map(|library| format!("-Clink-arg={library}")));
    rustc.args(["-C", &format!("link-arg=-Wl,-rpath,{}", Path::new(library).parent().unwrap().display())]);
    rustc.args(["-C", "link-arg=-Wl,--allow-shlib-undefined", "asks.rs"]).current_dir(folder.path());
    let built = rustc.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let presets = r#"{"version": 1, "wb_presets": [{"maker": "Nonesuch", "models": [{"model": "One", "presets": [
        {"name": "Daylight", "channels": [2.0, 1.0, 1.5, 0.0]}, {"name": "Shade", "channels": [2.2, 1.0, 1.3, 0.0]}]}]}]}"#;
    let profiles = r#"{"version":0,"noiseprofiles":[{"maker":"Nonesuch","models":[{"model":"One","profiles":[{"name":"iso 100","iso":100,"a":[1,2,3],"b":[0,0,0]}]}]}]}"#;
    let said = |settings: preload::Settings| {
        std::fs::create_dir_all(path("later")).unwrap();
        for (name, text) in [("presets.json", presets), ("profiles.json", profiles)] {
            let _ = std::fs::remove_file(path(name));
            std::fs::write(path("later").join(name), text).unwrap();
        }
        let ended = Command::new(path("asks")).envs(settings).current_dir(folder.path()).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    };
    let early = said(Vec::new());
    assert!(!early.contains("Nonesuch"), "{early}");
    let words = said(preload::repeatable(&cli, folder.path()).unwrap());
    assert_eq!(words, "[\"Nonesuch\", \"One\"]\n".repeat(2) + &format!("{profiles}\n").repeat(2));
}

/// A module is loaded from a copy that no longer names libraries that are loaded already, and from its own file where
/// a copy cannot be made; the picture is the same.
#[test]
fn modules_are_loaded_without_the_libraries_that_are_there() {
    let cli = kept::darktable();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let gradient = image::RgbImage::from_fn(8, 8, |x, y| image::Rgb([30 * x as u8, 30 * y as u8, 90]));
    gradient.save(path("given.png")).unwrap();
    let export = |settings: preload::Settings, to: &str| {
        let ended = Command::new(cli.path())
            .args(["given.png", to, "--core", "--library", ":memory:", "--disable-opencl"])
            .args([
                "--conf",
                "dt_cpubenchmark=1",
                "--conf",
                "write_sidecar_files=never",
                "--configdir",
                "settings",
            ])
            .envs(settings)
            .env("LD_DEBUG", "files")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let loader = String::from_utf8_lossy(&ended.stderr).into_owned();
        (image::open(path(to)).unwrap_or_else(|error| panic!("{error}: {loader}")).to_rgb16(), loader)
    };
    std::fs::write(path("libvelvia.so"), "not a module").unwrap();
    let (plain, _) = export(Vec::new(), "plain.png");
    let (picture, loader) = export(preload::repeatable(&cli, folder.path()).unwrap(), "from-copies.png");
    assert!(picture == plain, "another picture");
    let loaded = |file: &str| loader.lines().any(|line| line.ends_with(&format!("calling init: {file}")));
    assert!(loaded("./libexposure.so") && !loaded("./libvelvia.so"), "{loader}");
    let own = loader.lines().any(|line| line.contains("calling init: /") && line.ends_with("/libvelvia.so"));
    assert!(own, "{loader}");
    assert_eq!(std::fs::read(path("libvelvia.so")).unwrap(), b"not a module");

    let read =
        Command::new("readelf").args(["-d", "libexposure.so"]).current_dir(folder.path()).output().unwrap();
    let needed = String::from_utf8(read.stdout).unwrap();
    assert!(needed.contains("[libm.so.6]"), "{needed}");
    assert!(!needed.contains("[libdarktable.so]") && !needed.contains("[libgtk-3.so.0]"), "{needed}");
}
