//! Many edits of one raw, rendered by one darktable: starting it costs more than rendering a small picture.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "test support: a failure is the test's failure"
)]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use chemigram::clock::Deadline;
use chemigram::darktable::probe::DarktableCli;
use chemigram::darktable::process::{Job, arguments};
use chemigram::darktable::render::{Picture, RawFile};
use chemigram::darktable::{checks, scratch};

/// Renders `raw` once for each sidecar, as previews. darktable develops every picture that it imports with the
/// sidecar beside it, so each edit gets a folder with a link to the raw. The link's name is always the same, because
/// grain grows from it. The pixels are those of one darktable a render: the contract test renders some both ways. An
/// error says what is wrong with the batch, not with which edit.
pub fn render(
    cli: &DarktableCli,
    config: &Path,
    raw: &RawFile,
    sidecars: &[String],
    long_edge: u32,
    deadline: &Deadline,
) -> Result<Vec<Picture>, String> {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().join("home");
    fs::create_dir(&home).unwrap();
    let folders: Vec<PathBuf> = (0..sidecars.len()).map(|at| temp.path().join(at.to_string())).collect();
    let mut args = Vec::new();
    for (folder, sidecar) in folders.iter().zip(sidecars) {
        fs::create_dir(folder).unwrap();
        let link = folder.join("photo.dng");
        fs::hard_link(&raw.path, &link).or_else(|_| fs::copy(&raw.path, &link).map(|_| ())).unwrap();
        fs::write(folder.join("photo.dng.xmp"), sidecar).unwrap();
        args.extend([OsString::from("--import"), link.into()]);
    }
    args.push(format!("$(FILE_FOLDER)/{}", scratch::PICTURE).into());
    let edge = long_edge.to_string();
    args.extend(arguments(["--width", &edge, "--height", &edge, "--hq", "false"]));
    args.extend(arguments([
        "--icc-type",
        "SRGB",
        "--apply-custom-presets",
        "false",
        "--core",
        "--configdir",
    ]));
    args.push(config.into());
    args.extend(arguments(["--library", ":memory:", "--disable-opencl"]));
    args.extend(arguments(["--conf", "write_sidecar_files=never"]));
    args.extend(arguments(["--conf", "plugins/imageio/format/png/bpp=8"]));
    args.extend(arguments(["--conf", "plugins/imageio/format/png/compression=1"]));
    let job = Job {
        program: cli.path(),
        args,
        home: &home,
        temp: temp.path(),
        env: scratch::repeatable(cli.version()),
        watch: checks::is_telling,
    };
    let ended = job.run(deadline).map_err(|e| e.to_string())?;
    checks::ending(&ended, &raw.path, temp.path()).map_err(|e| e.to_string())?;
    let picture = |folder: &PathBuf| {
        let png = fs::read(folder.join(scratch::PICTURE)).map_err(|e| e.to_string())?;
        let picture = checks::decode(&png)?;
        checks::fits(&picture, long_edge).map_err(|e| e.to_string())?;
        checks::not_blank(&picture).map_err(|e| e.to_string())?;
        Ok(picture)
    };
    folders.iter().map(picture).collect()
}
