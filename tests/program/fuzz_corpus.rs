//! Every seed of the fuzz targets, and every input that a run of theirs kept, through the very same checks.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../fuzz/checks.rs"]
mod checks;

#[test]
fn every_seed_holds_what_its_target_checks() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    for (name, check) in checks::ALL {
        let files: Vec<_> = fs::read_dir(seeds.join(name)).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(files.len() >= 2, "{name} has {} seeds", files.len());
        for file in files {
            let data = fs::read(&file).unwrap();
            check(&data);
            // And cut short, as a disk that is full leaves a file.
            check(&data[..data.len() / 2]);
        }
    }
}

#[test]
fn every_kept_input_holds_what_its_target_checks() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/kept");
    std::thread::scope(|scope| {
        for (name, check) in checks::ALL {
            let archive = kept.join(format!("{name}.tar.gz"));
            scope.spawn(move || {
                let folder = tempfile::tempdir().unwrap();
                let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
                assert!(tar.unwrap().success());
                let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
                assert!(files.len() > 50, "{name} has {} inputs", files.len());
                for file in files {
                    check(&fs::read(file.unwrap().path()).unwrap());
                }
            });
        }
    });
}
