//! `export`: states as files to give away, or as sidecars to go on with in darktable.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;

use super::failure::Failure;
use super::photos::{self, refuse_existing, write_new};
use super::progress;
use super::setup::{App, interactive_deadline};
use super::signals;
use crate::review::line as plain_line;
use crate::session::listing;
use base::error::ErrorCode;
use base::ids::{Hash, PhotoId};
use darktable::export::{Depth, Format, Profile, Settings};
use darktable::metadata::Metadata;
use darktable::render::{RawFile, RenderError, Renderer as _};
use darktable::{duplicates, luts, xmp};
use engine::photo::{Head, Workspace};

/// Examples of `export`.
pub const EXAMPLES: &str = "\
Examples:
  chemigram export iguana branch_b_tone -o tone.jpg
  chemigram export iguana --session 4f2a9c -o to-print/ --format tiff --profile adobe-rgb
  chemigram export iguana main v2 -o web/ --size 2048 --jpeg-quality 88 --metadata none
  chemigram export iguana --session 4f2a9c --sidecar

darktable develops and scales the picture at its highest quality; no sharpening is added for the size. A file appears \
only when it is complete and checked. The edit itself is written into the file only with --metadata all. Files in a \
folder are named PHOTO-REF.jpg (.tif, .png).

Linear profiles need 16 bits; display-p3 needs darktable 5.0.

With --sidecar no picture is written, but each edit as a duplicate for darktable: NAME_01.NEF.xmp beside NAME.NEF, under \
the first number that is free. No file is ever replaced. Import the raw again in darktable, and the duplicates appear.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Branches, tags or commits; several need a folder as --output
    #[arg(value_name = "REF", default_value = "HEAD")]
    pub refs: Vec<String>,
    /// Export the branches of this session: at least four characters of its id, or `last`
    #[arg(long, value_name = "SESSION", conflicts_with = "refs")]
    pub session: Option<String>,
    /// Output file (.jpg, .tif, .png), or a folder [default with --sidecar: the raw's own folder]
    #[arg(short, long, value_name = "FILE|FOLDER", required_unless_present = "sidecar")]
    pub output: Option<PathBuf>,
    /// Write darktable sidecars instead of pictures: one duplicate of the photo per edit
    #[arg(long, conflicts_with_all = ["size", "format", "jpeg_quality", "bits", "profile", "metadata", "force"])]
    pub sidecar: bool,
    /// Longest side in pixels; smaller pictures are not enlarged [default: full size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=30_000))]
    pub size: Option<u32>,
    /// File format [default: from the file name; jpeg in a folder]
    #[arg(long)]
    pub format: Option<FileFormat>,
    /// JPEG quality, 1 to 100 [default: 95]
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg_quality: Option<u8>,
    /// Bits per channel, 8 or 16 [default: 16 for TIFF, otherwise 8]
    #[arg(long, value_name = "BITS", value_parser = bits)]
    pub bits: Option<u8>,
    /// Colour space; its profile is embedded
    #[arg(long, default_value = "srgb", value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>()))]
    pub profile: Profile,
    /// Metadata to write
    #[arg(long, default_value = "camera")]
    pub metadata: Keep,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// JPEG, 8 bits.
    Jpeg,
    /// TIFF, 8 or 16 bits, lossless compression.
    Tiff,
    /// PNG, 8 or 16 bits.
    Png,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// The camera's Exif data, without the edit.
    Camera,
    /// The Exif data and the whole edit, as darktable writes it.
    All,
    /// Only the colour profile.
    None,
}

fn bits(text: &str) -> Result<u8, String> {
    match text {
        "8" => Ok(8),
        "16" => Ok(16),
        _ => Err("must be 8 or 16".into()),
    }
}

/// Quality of a JPEG when none is given.
const JPEG_QUALITY: u8 = 95;

/// One exported file, as `--json` tells it.
#[derive(Serialize, JsonSchema)]
pub struct Written {
    file: PathBuf,
    #[serde(rename = "ref")]
    at: String,
    commit: Hash,
    width: u32,
    height: u32,
    bits: u8,
    profile: &'static str,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    blank: Option<String>,
    seconds: f64,
}

/// Exports what is named, each file whole or not at all. Files that are done stay when a later one fails.
pub fn export(app: &App, args: &ExportArgs) -> Result<(), Failure> {
    let workspace = app.photo(&args.photo)?;
    let refs = match &args.session {
        Some(part) => branches(app, &args.photo, part)?,
        None => args.refs.clone(),
    };
    if args.sidecar {
        return sidecars(app, &workspace, &refs, args.output.as_deref());
    }
    let output = args.output.clone().unwrap_or_default();
    let folder = refs.len() > 1 || args.session.is_some() || is_folder(&output);
    let format = format(args, &output, folder)?;
    let metadata = match args.metadata {
        Keep::Camera => Metadata::Camera,
        Keep::All => Metadata::All,
        Keep::None => Metadata::None,
    };
    let settings = Settings { format, profile: args.profile, metadata, long_edge: args.size };
    let mut work = Vec::new();
    for at in refs {
        let commit = workspace.resolve(&at)?;
        let file = match folder {
            true => output.join(file_name(&workspace, &at, format)?),
            false => output.clone(),
        };
        refuse_existing(&file, args.force)?;
        work.push((at, commit, file));
    }
    let renderer = app.oneshot()?;
    // Before a picture is waited for.
    settings.check(renderer.darktable_version())?;
    let (_heard, cancel) = signals::cancelling()?;
    let bar = progress::waiting(&app.output);
    let mut written = Vec::new();
    let all = work.len();
    for (at, commit, file) in work {
        bar.set_message(format!("exporting {} ({} of {all})", plain_line(&at), written.len() + 1));
        let state = workspace.state_of(&commit)?;
        let deadline = interactive_deadline().with_cancel(cancel.clone());
        let exported = renderer.export(&workspace.raw(), &state, &settings, &deadline)?;
        write_new(&file, &exported.bytes, args.force)?;
        if let Some(blank) = exported.blank {
            app.output.remark(&photos::as_untouched(&file, blank));
        }
        written.push(Written {
            file,
            at,
            commit,
            width: exported.width,
            height: exported.height,
            bits: format.bits(),
            profile: args.profile.as_str(),
            bytes: exported.bytes.len(),
            blank: exported.blank.map(|blank| blank.to_string()),
            seconds: exported.elapsed.as_secs_f64(),
        });
    }
    bar.finish_and_clear();
    app.output.result(&written, || written.iter().map(line).collect())
}

fn line(written: &Written) -> String {
    let Written { file, width, height, bits, profile, bytes, seconds, .. } = written;
    let megabytes = *bytes as f64 / 1e6;
    format!(
        "{}  {width}×{height}  {bits} bits  {profile}  {megabytes:.1} MB  {seconds:.1} s\n",
        file.display()
    )
}

/// The branches that a session made, in their order.
fn branches(app: &App, photo: &PhotoId, part: &str) -> Result<Vec<String>, Failure> {
    let (workspace, id) = app.session(part)?;
    if workspace.id() != photo {
        let message = format!("session {} is not on `{photo}` but on `{}`", id.short(), workspace.id());
        return Err(Failure::input(message));
    }
    let made = listing::read(&workspace, &id)?.state.branches;
    if made.is_empty() {
        let message = format!("session {} made no branches", id.short());
        return Err(Failure::new(ErrorCode::NotFound, message));
    }
    Ok(made.iter().map(|branch| branch.name.to_string()).collect())
}

/// Whether the path names a folder: it is one, or it ends with a slash.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// The name of a file in a folder.
fn file_name(workspace: &Workspace, at: &str, format: Format) -> Result<String, Failure> {
    let at = shown(workspace, at)?;
    Ok(format!("{}-{}.{}", workspace.id(), at.replace('/', "-"), format.extension()))
}

/// What a ref is called: HEAD goes by the branch that it follows.
fn shown(workspace: &Workspace, at: &str) -> Result<String, Failure> {
    Ok(match (at, workspace.head()?) {
        ("HEAD", Head::Branch(branch)) => branch.to_string(),
        _ => at.to_owned(),
    })
}

/// One duplicate, as `--json` tells it.
#[derive(Serialize, JsonSchema)]
pub struct Sidecar {
    file: PathBuf,
    #[serde(rename = "ref")]
    at: String,
    commit: Hash,
    unchanged: bool,
}

/// Writes each edit as a duplicate of the photo: beside its raw, or into `folder`.
fn sidecars(app: &App, workspace: &Workspace, refs: &[String], folder: Option<&Path>) -> Result<(), Failure> {
    let record = &workspace.photo().raw;
    let original = Path::new(&record.original);
    let picture = original.file_name().unwrap_or_default().to_string_lossy();
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => {
            // What lies there must be the photo itself: its name alone proves nothing.
            RawFile { path: original.to_owned(), sha256: record.sha256.clone() }.prove().map_err(
                |error| Failure::from(error).remedy("put the raw back there, or name a folder with --output"),
            )?;
            original.parent().unwrap_or(original).to_owned()
        }
    };
    let folder = std::path::absolute(&folder).map_err(|e| Failure::file("write to", &folder, &e))?;
    // All are spelled before one is written: what cannot be is told while there is nothing yet.
    let mut work = Vec::new();
    for at in refs {
        let commit = workspace.resolve(at)?;
        let at = shown(workspace, at)?;
        let state = workspace.state_of(&commit)?;
        luts::check(&state, Some(&app.folders.luts())).map_err(RenderError::from)?;
        let text = xmp::write(&duplicates::named(&state, &at), &app.layouts(), &picture)?;
        work.push((at, commit, state, text));
    }
    let mut written = Vec::new();
    let mut with_luts = false;
    for (at, commit, state, text) in work {
        let made = duplicates::write(&folder, &picture, &text)
            .map_err(|error| Failure::file("write a sidecar to", &folder, &error))?;
        with_luts |= luts::check(&state, None).is_err();
        written.push(Sidecar { file: made.file, at, commit, unchanged: made.unchanged });
    }
    if with_luts {
        app.output.remark(&format!(
            "note: for its LUTs, set darktable's LUT folder (preferences, processing) to {}",
            app.folders.luts().display()
        ));
    }
    app.output.result(&written, || {
        let line = |one: &Sidecar| {
            let there = if one.unchanged { "  (there already)" } else { "" };
            format!("{}  {}{there}\n", one.file.display(), plain_line(&one.at))
        };
        written.iter().map(line).collect()
    })
}

/// The format that is typed, or that the file's name ends in; both must agree.
fn format(args: &ExportArgs, file: &Path, folder: bool) -> Result<Format, Failure> {
    let ending = file.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let named = match ending.as_str() {
        "jpg" | "jpeg" => Some(FileFormat::Jpeg),
        "tif" | "tiff" => Some(FileFormat::Tiff),
        "png" => Some(FileFormat::Png),
        _ => None,
    };
    let chosen = match (args.format, named) {
        (chosen, _) if folder => chosen.unwrap_or(FileFormat::Jpeg),
        (None, Some(named)) => named,
        (Some(chosen), Some(named)) if chosen == named => named,
        (_, None) => {
            let message = format!("cannot write {}: unknown image format", file.display());
            return Err(Failure::input(message)
                .remedy("use a name that ends in .jpg, .tif or .png, or in / for a folder"));
        }
        (Some(_), Some(_)) => {
            let message = format!("the extension of {} contradicts --format", file.display());
            return Err(Failure::input(message).remedy("leave out --format"));
        }
    };
    let depth = |usual| match args.bits.unwrap_or(usual) {
        16 => Depth::Sixteen,
        _ => Depth::Eight,
    };
    match chosen {
        FileFormat::Jpeg if args.bits == Some(16) => {
            Err(Failure::input("JPEG files have 8 bits").remedy("use .tif or .png for 16 bits"))
        }
        FileFormat::Jpeg => Ok(Format::Jpeg(args.jpeg_quality.unwrap_or(JPEG_QUALITY))),
        _ if args.jpeg_quality.is_some() => {
            Err(Failure::input("--jpeg-quality is only for JPEG files").remedy("leave it out, or use .jpg"))
        }
        FileFormat::Tiff => Ok(Format::Tiff(depth(16))),
        FileFormat::Png => Ok(Format::Png(depth(8))),
    }
}
