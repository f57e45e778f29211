//! `demo`: from a raw to a review, without a raw of your own and without a key.

use std::path::{Path, PathBuf};

use super::args::DemoArgs;
use super::failure::Failure;
use super::run::run_request;
use super::setup::App;
use crate::budget::Budget;
use crate::provider::Choice;
use crate::session::start::Request;
use crate::transcript::Vector;
use base::assets::Overlay;
use base::error::ErrorCode;
use darktable::dng;
use engine::photo::IngestOptions;

/// The file that marks a folder as made by the demo, and so as its to delete.
const MARKER: &str = ".chemigram-demo";

/// What the demo explores.
const VECTORS: [(&str, &str); 3] = [
    ("tone", "open the shadows"),
    ("color", "warmer and a little richer"),
    ("structure", "more texture and clarity"),
];

const BUDGET: &str = "time=5m,iterations=60,branches=3";

/// Runs the demo. The status is the session's.
pub fn demo(app: &App, args: &DemoArgs) -> Result<u8, Failure> {
    let folder = args.dir.clone().unwrap_or_else(|| default_folder(app));
    let folder = std::path::absolute(&folder).map_err(|e| Failure::file("use", &folder, &e))?;
    // A missing darktable is said before anything is made.
    let version = app.darktable()?.version().to_owned();
    make(&folder)?;
    let say = |text: String| app.output.remark(&text);
    let raw = folder.join("espresso.dng");
    say(format!("1. Generated raw file: {}", raw.display()));
    let bytes = dng::demo_raw()?;
    base::durable::write(&raw, &bytes).map_err(|e| Failure::file("write", &raw, &e))?;
    let demo = app.with_library(folder.join("photos"));
    say(format!("2. Baseline: the default edit of darktable {version}"));
    let brief = Overlay::demo().text("brief.md").map(std::borrow::Cow::into_owned);
    let workspace = demo.ingest(&raw, IngestOptions { id: Some("espresso".parse()?), brief })?.workspace;
    say(format!("3. Session ({BUDGET}), one branch per direction:"));
    for (name, direction) in VECTORS {
        say(format!("   {name}: {direction}"));
    }
    let mut vectors = Vec::new();
    for (name, direction) in VECTORS {
        vectors.push(Vector { name: name.parse()?, direction: direction.to_owned(), intensity: None });
    }
    let request = Request {
        brief: None,
        vectors,
        budget: Budget::parse(BUDGET)?,
        from: "HEAD".into(),
        criteria: None,
        prompt: crate::launch::PROMPT.into(),
        preview_edge: 1024,
        unattended: true,
        seed: args.seed,
        proposes: true,
    };
    let choice = Choice { provider: "explorer".into(), seed: args.seed, ..Choice::default() };
    let status = run_request(&demo, &demo.launcher(None)?, workspace, (&choice, None), request)?;
    say(format!(
        "\nTo look at the pictures and compare them:\n  chemigram review --library {0}\n\
         Before you run the commands above, select the demo's library:\n  export CHEMIGRAM_LIBRARY={0}\n\
         Then try a photo of your own:\n  chemigram run-mode-b PHOTO.NEF --budget standard --direction tone=\"open the shadows\"",
        shell_word(demo.library.root())
    ));
    Ok(status)
}

fn default_folder(app: &App) -> PathBuf {
    let checkout = Path::new("target");
    if checkout.is_dir() { checkout.join("demo") } else { app.folders.demo() }
}

/// Makes the folder again. Only one that the demo made itself is deleted.
fn make(folder: &Path) -> Result<(), Failure> {
    let file = |doing: &'static str| move |e: std::io::Error| Failure::file(doing, folder, &e);
    let marker = folder.join(MARKER);
    if folder.is_symlink() {
        return Err(Failure::new(ErrorCode::StateError, format!("{} is a symbolic link", folder.display()))
            .remedy("choose another folder with --dir"));
    }
    if marker.is_file() {
        std::fs::remove_dir_all(folder).map_err(file("remove"))?;
    } else if folder.exists() {
        let empty = std::fs::read_dir(folder).map_err(file("read"))?.next().is_none();
        if !empty {
            let message = format!("{} already exists and was not made by the demo", folder.display());
            return Err(
                Failure::new(ErrorCode::StateError, message).remedy("choose another folder with --dir")
            );
        }
    }
    std::fs::create_dir_all(folder).map_err(file("make"))?;
    std::fs::write(&marker, "made by `chemigram demo`, which deletes this folder when it runs again\n")
        .map_err(file("write to"))
}

/// A path as a shell takes it.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let harmless = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(harmless) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_its_own_is_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("demo");
        make(&own).unwrap();
        std::fs::write(own.join("old"), "x").unwrap();
        make(&own).unwrap();
        assert!(!own.join("old").exists() && own.join(MARKER).is_file());
        let foreign = dir.path().join("photos");
        std::fs::create_dir(&foreign).unwrap();
        make(&foreign).unwrap();
        std::fs::remove_file(foreign.join(MARKER)).unwrap();
        std::fs::write(foreign.join("precious.nef"), "x").unwrap();
        assert_eq!(make(&foreign).unwrap_err().exit_status(), 4);
        assert!(foreign.join("precious.nef").exists());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(make(&link).is_err() && own.join(MARKER).is_file());
    }

    #[test]
    fn a_path_with_blanks_is_quoted() {
        assert_eq!(shell_word(Path::new("/a/b-c")), "/a/b-c");
        assert_eq!(shell_word(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
