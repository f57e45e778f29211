//! `vocab import` and `vocab mark`: styles, and moves made of LUTs and of words.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::import;
use super::import_args::{MarkArgs, VocabImportArgs};
use super::setup::App;
use crate::darktable::luts::{self, MAX_BYTES};
use crate::durable;
use crate::review::line;
use crate::vocabulary::made::{self, MadeMove};
use crate::vocabulary::styles;

/// A LUT that was taken over.
#[derive(Debug, Serialize)]
struct Taken {
    /// The move.
    name: String,
    /// Its file in the LUT folder.
    lut: String,
    /// Colours along each side of its cube.
    size: usize,
    /// It was there already.
    unchanged: bool,
}

/// Takes files over. Of several, one that cannot be taken over keeps none of the others back; the status is its.
pub fn import(app: &App, args: &VocabImportArgs) -> Result<u8, Failure> {
    let name = args.name.as_deref();
    if let [file] = args.files.as_slice() {
        if file.extension().is_some_and(|ending| ending == "dtstyle") {
            return import::import_style(app, file, name).map(|()| 0);
        }
        let taken = take(app, file, name, &args.space)?;
        app.output.result(&taken, || {
            format!(
                "{}`chemigram apply PHOTO {}` applies it, `opacity=50` by half\n",
                row(&taken),
                taken.name
            )
        })?;
        return Ok(0);
    }
    if name.is_some() {
        return Err(
            Failure::input("one name cannot be given to several files").remedy("import them one by one")
        );
    }
    let mut done = Vec::new();
    for file in &args.files {
        done.push((file, take(app, file, None, &args.space)));
    }
    let failed = done.iter().find_map(|(_, taken)| taken.as_ref().err());
    let status = failed.map_or(0, Failure::exit_status);
    let rows: Vec<_> = done
        .iter()
        .map(|(file, taken)| match taken {
            Ok(taken) => json!({ "file": file, "move": taken }),
            Err(failure) => json!({ "file": file, "error": failure.message() }),
        })
        .collect();
    app.output.result(&rows, || {
        let text = |(_, taken): &(&PathBuf, Result<Taken, Failure>)| match taken {
            Ok(taken) => row(taken),
            Err(failure) => format!("FAILED: {}\n", line(failure.message())),
        };
        done.iter().map(text).collect()
    })?;
    Ok(status)
}

fn row(taken: &Taken) -> String {
    let Taken { name, size, .. } = taken;
    let unchanged = if taken.unchanged { ", which you have already" } else { "" };
    format!("{name}  a LUT of {size}³ colours{unchanged}\n")
}

/// Takes one LUT over into the person's own vocabulary.
fn take(app: &App, file: &Path, name: Option<&str>, space: &str) -> Result<Taken, Failure> {
    let unusable = |error| {
        let failure = Failure::from(error);
        Failure::input(format!("{} is no LUT that can be used: {}", file.display(), failure.message()))
    };
    let lut = luts::read(&import::bounded(file, MAX_BYTES)?).map_err(unusable)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.map_or_else(|| styles::name_of(&stem), str::to_owned);
    styles::check_name(&name).map_err(|e| Failure::input(e).remedy("give it another with --name"))?;
    let space = made::LUT_SPACES.iter().find(|(known, _)| *known == space).map_or(0, |(_, number)| *number);
    let title = lut.title.clone().unwrap_or_else(|| line(&stem).chars().take(60).collect());
    let made = made::lut(&name, &title, &lut, space);
    let folder = app.folders.vocabulary();
    let unchanged = app.vocabulary()?.has_made(&made, &folder)?;
    let place = app.folders.luts().join(&lut.name);
    // Again too: it may be missing, or damaged. A move without its LUT is of no use, so the move is last.
    durable::write(&place, &lut.bytes).map_err(|e| Failure::file("write", &place, &e))?;
    keep(&made, unchanged, &folder)?;
    Ok(Taken { name, lut: lut.name, size: lut.size, unchanged })
}

fn keep(made: &MadeMove, unchanged: bool, folder: &Path) -> Result<(), Failure> {
    let save = || made.save(folder).map_err(|e| Failure::file("write", &folder.join(&made.file), &e));
    if unchanged { Ok(()) } else { save() }
}

/// Makes a move that writes words into the picture.
pub fn mark(app: &App, args: &MarkArgs) -> Result<(), Failure> {
    let words = args.text.trim();
    made::check_words(words).map_err(Failure::input)?;
    let name = args.name.clone().unwrap_or_else(|| {
        let name = styles::name_of(&format!("mark {words}"));
        name.chars().take(40).collect::<String>().trim_end_matches('_').to_owned()
    });
    styles::check_name(&name).map_err(|e| Failure::input(e).remedy("give it another with --name"))?;
    let made = made::mark(&name, words, &args.place, args.size);
    let folder = app.folders.vocabulary();
    let unchanged = app.vocabulary()?.has_made(&made, &folder)?;
    keep(&made, unchanged, &folder)?;
    let file = folder.join(&made.file);
    app.output.result(&json!({ "name": name, "file": file, "unchanged": unchanged }), || {
        format!("{name}  {}\n`chemigram apply PHOTO {name}` applies it\n", line(words))
    })
}
