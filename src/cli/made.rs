//! `vocab import`, `vocab mark` and `vocab lens`: styles, and moves made of LUTs, of words and of lenses.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use serde_json::json;

use super::failure::Failure;
use super::import;
use super::setup::App;
use crate::review::line;
use base::durable;
use darktable::lensfun::{Lensfun, Places};
use darktable::luts::{self, MAX_BYTES};
use darktable::probe::DarktableCli;
use engine::vocabulary::made::{self, MadeMove};
use engine::vocabulary::made::{LUT_SPACES, MARK_PLACES};
use engine::vocabulary::styles;

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab import \"Dusk & dawn.dtstyle\"\n  chemigram apply iguana dusk_dawn\n\n  \
                  chemigram vocab import ~/luts/*.cube\n  chemigram apply iguana kodak_2383 opacity=60\n\n\
                  A style can only be applied as a whole. A LUT becomes a move, and its opacity is its strength. \
                  Neither may have the name of another move or look."
)]
pub struct VocabImportArgs {
    /// A style (.dtstyle), or LUTs: .cube, or 8-bit Hald images (.png)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Its name in chemigram [default: derived from the style or the LUT's file name]
    #[arg(long)]
    pub name: Option<String>,
    /// Colour space of the LUTs
    #[arg(long, value_name = "SPACE", default_value = "srgb", value_parser = lut_space())]
    pub space: String,
}

fn lut_space() -> PossibleValuesParser {
    PossibleValuesParser::new(LUT_SPACES.map(|(name, _)| name))
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram vocab mark \"© Ann Example\" --name signature\n  chemigram apply iguana signature opacity=60\n\n\
                  Sessions can write only texts that you defined here. To change font and colour, edit \
                  moves/mark_NAME.toml in your vocabulary folder."
)]
pub struct MarkArgs {
    /// The text: one line of up to 60 characters
    pub text: String,
    /// The move's name [default: derived from the text]
    #[arg(long)]
    pub name: Option<String>,
    /// Position of the text
    #[arg(long, value_name = "PLACE", default_value = "bottom-right", value_parser = mark_place())]
    pub place: String,
    /// Height of the letters, in percent of the picture's shorter side
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub size: f64,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab lens \"Helios-44 58mm\" --camera \"Nikon D700\" --name helios\n  \
                  chemigram apply iguana helios aperture=4\n\n  \
                  chemigram vocab lens \"Canon EF 20mm f/2.8 USM\" --aperture 2.8\n\n\
                  A part of the name is enough if no other lens has it. The profiles are those of lensfun, as darktable \
                  uses them; put your own in lensfun/*.xml next to your chemigram folder."
)]
pub struct LensArgs {
    /// The lens, by its name in lensfun
    #[arg(value_name = "LENS")]
    pub lens: String,
    /// The camera, for its sensor size [default: full frame, or the largest sensor the profile covers]
    #[arg(long, value_name = "MODEL")]
    pub camera: Option<String>,
    /// Focal length [default: the lens's own; for a zoom, the one in the raw file]
    #[arg(long, value_name = "MM", value_parser = millimetres)]
    pub focal: Option<f64>,
    /// Aperture as an f-number [default: the one in the raw file; without one, vignetting is not corrected]
    #[arg(long, value_name = "F", value_parser = f_number)]
    pub aperture: Option<f64>,
    /// The move's name [default: derived from the lens]
    #[arg(long)]
    pub name: Option<String>,
}

fn millimetres(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(focal) if (1.0..=5000.0).contains(&focal) => Ok(focal),
        _ => Err("must be between 1 and 5000".into()),
    }
}

fn f_number(text: &str) -> Result<f64, String> {
    match text.trim_start_matches("f/").parse() {
        Ok(aperture) if (0.5..=128.0).contains(&aperture) => Ok(aperture),
        _ => Err("must be between 0.5 and 128".into()),
    }
}

fn mark_place() -> PossibleValuesParser {
    PossibleValuesParser::new(MARK_PLACES.map(|(name, ..)| name))
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(size) if (0.5..=10.0).contains(&size) => Ok(size),
        _ => Err("must be between 0.5 and 10".into()),
    }
}

/// An imported LUT.
#[derive(Debug, Serialize)]
struct Taken {
    name: String,
    /// Its file in the LUT folder.
    lut: String,
    /// Colours along each side of its cube.
    size: usize,
    /// It was there already.
    unchanged: bool,
}

/// Imports files. Of several, one that cannot be imported keeps none of the others back; the status is its.
pub fn import(app: &App, args: &VocabImportArgs) -> Result<u8, Failure> {
    let name = args.name.as_deref();
    if let [file] = args.files.as_slice() {
        if file.extension().is_some_and(|ending| ending == "dtstyle") {
            return import::import_style(app, file, name).map(|()| 0);
        }
        let taken = take(app, file, name, &args.space)?;
        app.output.result(&taken, || {
            format!(
                "{}Apply it with `chemigram apply PHOTO {}`; add `opacity=50` for half its strength.\n",
                row(&taken),
                taken.name
            )
        })?;
        return Ok(0);
    }
    if name.is_some() {
        return Err(Failure::input("--name cannot name several files").remedy("import them one by one"));
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
    let unchanged = if taken.unchanged { ", already imported" } else { "" };
    format!("{name}  LUT with {size}³ colours{unchanged}\n")
}

/// Imports one LUT into the person's own vocabulary.
fn take(app: &App, file: &Path, name: Option<&str>, space: &str) -> Result<Taken, Failure> {
    let unusable = |error| {
        let failure = Failure::from(error);
        Failure::input(format!("cannot use {} as a LUT: {}", file.display(), failure.message()))
    };
    let lut = luts::read(&import::bounded(file, MAX_BYTES)?).map_err(unusable)?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.map_or_else(|| styles::name_of(&stem), str::to_owned);
    styles::check_name(&name).map_err(|e| Failure::input(e).remedy("choose another name with --name"))?;
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
    let name = name_or(args.name.as_ref(), &format!("mark {words}"))?;
    let made = made::mark(&name, words, &args.place, args.size);
    let (unchanged, file) = add(app, &made)?;
    app.output.result(&json!({ "name": name, "file": file, "unchanged": unchanged }), || {
        format!("{name}  {}\nApply it with `chemigram apply PHOTO {name}`.\n", line(words))
    })
}

/// Makes a move that corrects a lens.
pub fn lens(app: &App, args: &LensArgs) -> Result<(), Failure> {
    let darktable = app.darktable().ok();
    let program = darktable.as_ref().map(DarktableCli::path);
    let places = Places::find(&|name| std::env::var_os(name).map(PathBuf::from), program);
    let fitted = Lensfun::read(&places)?.fit(&args.lens, args.camera.as_deref())?;
    let (lens, camera) = (&fitted.lens, &fitted.camera);
    let name = name_or(args.name.as_ref(), &lens.model)?;
    let made = made::lens(&name, &fitted, args.focal, args.aperture);
    let (unchanged, file) = add(app, &made)?;
    let known = json!({
        "name": name, "lens": lens.model, "maker": lens.maker, "camera": camera.model, "crop": camera.crop,
        "vignetting": lens.vignetting, "file": file, "unchanged": unchanged,
    });
    app.output.result(&known, || {
        let zoom = lens.focal.is_some_and(|(from, to)| from < to) && args.focal.is_none();
        let remarks = [
            (
                args.camera.is_none(),
                format!("for a sensor with crop factor {}; choose another with --camera\n", camera.crop),
            ),
            (zoom, "a zoom: the focal length comes from the file, or set `focal=MM`\n".to_owned()),
            (!lens.vignetting, "the profile has no vignetting correction\n".to_owned()),
            (
                lens.vignetting && args.aperture.is_none(),
                "vignetting is corrected if the file has an aperture, or with `aperture=F`\n".to_owned(),
            ),
        ];
        let remarks: String = remarks.into_iter().filter(|(said, _)| *said).map(|(_, words)| words).collect();
        format!("{name}  {}\n{remarks}Apply it with `chemigram apply PHOTO {name}`.\n", line(&lens.model))
    })
}

/// The name that was given, or one of 40 characters at most made of a text.
fn name_or(given: Option<&String>, text: &str) -> Result<String, Failure> {
    let name = given.cloned().unwrap_or_else(|| {
        let name = styles::name_of(text);
        name.chars().take(40).collect::<String>().trim_end_matches('_').to_owned()
    });
    styles::check_name(&name).map_err(|e| Failure::input(e).remedy("choose another name with --name"))?;
    Ok(name)
}

/// Keeps a move in the person's own vocabulary; whether it was there already, and its file.
fn add(app: &App, made: &MadeMove) -> Result<(bool, PathBuf), Failure> {
    let folder = app.folders.vocabulary();
    let unchanged = app.vocabulary()?.has_made(made, &folder)?;
    keep(made, unchanged, &folder)?;
    Ok((unchanged, folder.join(&made.file)))
}
