//! `review`, `compare` and `picks`: looking at what sessions made, and choosing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Subcommand};
use image::ImageFormat;
use serde_json::json;

use super::edit::{encode, format_of};
use super::failure::Failure;
use super::photos::{refuse_existing, write_new};
use super::setup::{App, interactive_deadline};
use crate::overnight::report::BatchReport;
use crate::overnight::{page, record};
use crate::review::page::{Gallery, render};
use crate::review::picks::{self, Agreement, Verdict};
use crate::review::{Group, Remark, ReviewModel, Shot, count, line, session_page};
use crate::session::listing;
use crate::tools::blobs::write_jpeg;
use base::durable;
use base::error::ErrorCode;
use base::ids::{PhotoId, SessionId};
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use engine::photo::{Authority, Workspace};
use pixels::overlay;
use pixels::sheet::contact_sheet;

pub(super) const REVIEW_EXAMPLES: &str = "\
Examples:
  chemigram review
  chemigram review 3f9a --blind
  chemigram review last --sheet sheet.jpg
  chemigram review --batch last

The page needs no network. In it: click a picture to enlarge it, then Space to blink with the picture before, S for a \
slider, C for side by side, ? for all keys.";

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  chemigram compare iguana baseline branch_b_tone branch_b_color
  chemigram compare iguana main branch_b_tone -o both.jpg";

pub(super) const PICKS_EXAMPLES: &str = "\
Example:
  chemigram picks import ~/Downloads/picks.json";

/// The longest side of a contact sheet in pixels.
const SHEET_EDGE: u32 = 2400;
/// What a page is called in a session's folder.
const PAGE: &str = "review.html";

#[derive(Args, Debug)]
pub struct ReviewArgs {
    /// The session: at least four characters of its id, or `last`
    #[arg(default_value = "last")]
    pub session: String,
    /// Show the report of a batch instead: its name, the beginning of it, or `last`
    #[arg(long, value_name = "BATCH", conflicts_with_all = ["session", "sheet", "blind"])]
    pub batch: Option<String>,
    /// Hide names and scores and shuffle the branches until you reveal them
    #[arg(long)]
    pub blind: bool,
    /// Write the page here [default: review.html in the session's folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a contact sheet instead: .jpg, .png or .tif
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "blind"])]
    pub sheet: Option<PathBuf>,
    /// Do not open the page
    #[arg(long)]
    pub no_open: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Two or more branches, tags or commits; the first is the one that the others are held against
    #[arg(value_name = "REF", required = true, num_args = 2..)]
    pub refs: Vec<String>,
    /// Write one picture with all of them instead of a page: .jpg, .png or .tif
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the page here [default: compare.html in the photo's folder]
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub page: Option<PathBuf>,
    /// Longest side of each picture in pixels
    #[arg(long, value_name = "N", default_value_t = 1200, value_parser = clap::value_parser!(u32).range(16..=4096))]
    pub size: u32,
    /// Do not open the page
    #[arg(long)]
    pub no_open: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum PicksVerb {
    /// Import the picks that a review page saved
    Import {
        /// The file
        #[arg(value_name = "FILE", default_value = "picks.json")]
        file: PathBuf,
    },
    /// List the imported picks, and how often the scores agree with them
    List {
        /// Only those of this photo
        photo: Option<PhotoId>,
    },
}

/// Writes the page of a session into its folder, and returns where.
pub fn write_page(workspace: &Workspace, id: &SessionId) -> Result<PathBuf, Failure> {
    let session = listing::read(workspace, id)?;
    let model = ReviewModel::of(workspace, &session)?;
    let page = session_page(workspace, &session, &model, false)
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot write the page: {e}")))?;
    written(None, workspace.session_folder(id).join(PAGE), &page, true)
}

/// Writes the page of a session, or a contact sheet, and opens it.
pub fn review(app: &App, args: &ReviewArgs) -> Result<(), Failure> {
    if let Some(name) = &args.batch {
        return batch(app, args, name);
    }
    let (workspace, id) = match args.session.as_str() {
        "last" => last(app)?,
        part => app.session(part)?,
    };
    let session = listing::read(&workspace, &id)?;
    let model = ReviewModel::of(&workspace, &session)?;
    if let Some(file) = &args.sheet {
        return sheet(app, &model, file, args.force);
    }
    let page = session_page(&workspace, &session, &model, args.blind)
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot write the page: {e}")))?;
    let own = workspace.session_folder(&id).join(PAGE);
    let file = written(args.output.as_deref(), own, &page, args.force)?;
    shown(app, &file, page.len(), args.no_open)
}

fn batch(app: &App, args: &ReviewArgs, name: &str) -> Result<(), Failure> {
    let batch = record::find(&app.library, name)?;
    let report = BatchReport::of(&app.library, &batch);
    report.write(&mut page::gallery(&batch.record.sessions))?;
    let mut file = batch.folder.join("report.html");
    let bytes = std::fs::read(&file).map_err(|e| Failure::file("read", &file, &e))?;
    if args.output.is_some() {
        file = written(args.output.as_deref(), file, &String::from_utf8_lossy(&bytes), args.force)?;
    }
    shown(app, &file, bytes.len(), args.no_open)
}

/// The newest session of the library.
fn last(app: &App) -> Result<(Workspace, SessionId), Failure> {
    let mut newest: Option<(PhotoId, SessionId)> = None;
    for photo in app.library.photos()? {
        let Ok(workspace) = app.library.open(&photo) else { continue };
        // An id begins with its time.
        if let Some(id) = listing::of_photo(&workspace)?.into_iter().next()
            && newest.as_ref().is_none_or(|(_, known)| known.as_str() < id.as_str())
        {
            newest = Some((photo, id));
        }
    }
    let Some((photo, id)) = newest else {
        let none = format!("there is no session in {}", app.library.root().display());
        return Err(Failure::new(ErrorCode::NotFound, none)
            .remedy("run one with `chemigram demo`, or name the library with --library"));
    };
    Ok((app.photo(&photo)?, id))
}

/// Writes a page where it is wanted, else to a place of its own, where it may replace the one before.
fn written(wanted: Option<&Path>, own: PathBuf, page: &str, force: bool) -> Result<PathBuf, Failure> {
    match wanted {
        Some(file) => {
            write_new(file, page.as_bytes(), force)?;
            Ok(file.to_owned())
        }
        None => {
            durable::write(&own, page.as_bytes()).map_err(|e| Failure::file("write", &own, &e))?;
            Ok(own)
        }
    }
}

/// Prints where a page is, and opens it where there is a screen and a person.
fn shown(app: &App, file: &Path, bytes: usize, no_open: bool) -> Result<(), Failure> {
    let opened = !no_open && app.output.can_ask() && has_screen() && open(file);
    app.output.result(&json!({ "file": file, "bytes": bytes, "opened": opened }), || {
        format!("{}\n", file.display())
    })
}

fn has_screen() -> bool {
    cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some())
}

fn open(file: &Path) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

fn sheet(app: &App, model: &ReviewModel, file: &Path, force: bool) -> Result<(), Failure> {
    let mut tiles = Vec::new();
    if let Some(path) = &model.baseline_preview {
        tiles.push(("before".to_owned(), picture(path)?));
    }
    for branch in &model.branches {
        let Some(path) = &branch.preview else { continue };
        let score = branch.judged_score.filter(|_| branch.is_candidate()).map(|score| format!(" {score}/5"));
        tiles.push((format!("{}{}", branch.branch, score.unwrap_or_default()), picture(path)?));
    }
    if tiles.is_empty() {
        return Err(Failure::new(ErrorCode::StateError, "the session has no pictures yet"));
    }
    put_sheet(app, &tiles, file, force)
}

fn put_sheet(app: &App, tiles: &[(String, Picture)], file: &Path, force: bool) -> Result<(), Failure> {
    let format = format_of(file)?;
    refuse_existing(file, force)?;
    let shown: Vec<(String, &Picture)> = tiles.iter().map(|(name, tile)| (name.clone(), tile)).collect();
    let too_large = || Failure::new(ErrorCode::StateError, "the pictures do not fit on one sheet");
    let sheet = contact_sheet(&shown, SHEET_EDGE).ok_or_else(too_large)?;
    write_new(file, &encode(&sheet, format)?, force)?;
    let names: Vec<&String> = tiles.iter().map(|(name, _)| name).collect();
    let result = json!({ "file": file, "tiles": names, "width": sheet.width, "height": sheet.height });
    app.output.result(&result, || format!("{}\n", file.display()))
}

fn picture(path: &Path) -> Result<Picture, Failure> {
    let read = image::open(path)
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot read {}: {e}", path.display())))?
        .to_rgb8();
    let (width, height) = read.dimensions();
    Ok(Picture { width, height, rgb: read.into_raw() })
}

/// Shows two or more edits of a photo side by side.
pub fn compare(app: &App, args: &CompareArgs) -> Result<(), Failure> {
    if let Some(file) = &args.output {
        format_of(file)?;
        refuse_existing(file, args.force)?;
    }
    let workspace = app.photo(&args.photo)?;
    let commits = args.refs.iter().map(|at| workspace.resolve(at)).collect::<Result<Vec<_>, _>>()?;
    let (renderer, raw) = (app.steady_renderer()?, workspace.raw());
    let mut tiles = Vec::new();
    for (at, commit) in args.refs.iter().zip(&commits) {
        let state = workspace.state_of(commit)?;
        let request =
            RenderRequest { raw: &raw, state: &state, long_edge: args.size, quality: Quality::Judge };
        let rendered = renderer.render(&request, &interactive_deadline(), &ByHand)?;
        tiles.push((line(at), (*rendered.picture).clone()));
    }
    if let Some(file) = &args.output {
        return put_sheet(app, &tiles, file, args.force);
    }
    let page = compare_page(&args.photo, &tiles, &commits)?;
    let own = workspace.folder().join("compare.html");
    let file = written(args.page.as_deref(), own, &page, args.force)?;
    shown(app, &file, page.len(), args.no_open)
}

fn compare_page(
    photo: &PhotoId,
    tiles: &[(String, Picture)],
    commits: &[base::ids::Hash],
) -> Result<String, Failure> {
    let folder = tempfile::tempdir()
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot create a temporary folder: {e}")))?;
    let mut gallery = Gallery::of(tiles.len());
    let mut shots = Vec::new();
    for (number, ((name, tile), commit)) in tiles.iter().zip(commits).enumerate() {
        let path = folder.path().join(format!("{number}.jpg"));
        write_jpeg(&path, tile).map_err(|e| Failure::file("write", &path, &e))?;
        let heat = tiles.first().filter(|_| number > 0).and_then(|(_, first)| overlay::heat_map(first, tile));
        let heat = match heat {
            Some(map) => {
                let path = folder.path().join(format!("{number}-difference.png"));
                let bytes = encode(&overlay::with_scale(&map), ImageFormat::Png)?;
                std::fs::write(&path, bytes).map_err(|e| Failure::file("write", &path, &e))?;
                gallery.small(&path, 800, "")
            }
            None => None,
        };
        let shot = Shot {
            key: format!("{photo} {name} {commit}"),
            name: name.clone(),
            before: number == 0,
            asked: commit.short().to_owned(),
            heat: heat.map(|map| map.src),
            ..Shot::default()
        };
        shots.push(shot.with(gallery.picture(&path, &format!("{photo}: {name}"))));
    }
    let facts = vec![Remark::plain(format!("{} of one photo", count(tiles.len() as u64, "edit")))];
    let group = Group { photo: photo.to_string(), shots, facts, ..Group::default() };
    let context = json!({ "group": group, "caps": [], "turns": [] });
    render("session", &format!("compare {photo}"), photo.as_str(), false, &context)
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot write the page: {e}")))
}

/// Imports picks, or lists them.
pub fn picks(app: &App, verb: &PicksVerb) -> Result<(), Failure> {
    match verb {
        PicksVerb::Import { file } => import(app, file),
        PicksVerb::List { photo } => list(app, photo.as_ref()),
    }
}

fn import(app: &App, file: &Path) -> Result<(), Failure> {
    let read = picks::read(file)?;
    // Nothing is written unless all of it can be.
    for photo in &read.photos {
        let workspace = app.photo(&photo.photo)?;
        for pick in &photo.picks {
            workspace.commit(&pick.commit)?;
        }
    }
    let mut new = 0;
    for photo in &read.photos {
        let writer = app.photo(&photo.photo)?.lock(Authority::Person, "picks")?;
        new += picks::import(writer.workspace(), photo, jiff::Timestamp::now())?;
    }
    let picked = read.photos.iter().flat_map(|photo| &photo.picks);
    let any = picked.into_iter().any(|pick| pick.verdict == Some(Verdict::Pick));
    let next: Vec<String> =
        any.then(|| format!("chemigram promote --picks {}", file.display())).into_iter().collect();
    app.output.result(&json!({ "file": file, "new": new, "next": next }), || {
        let mut text = format!("{} imported\n", count(new as u64, "new pick"));
        if !next.is_empty() {
            text.push_str(&format!("\nTo promote what you picked:\n  {}\n", next.join("\n  ")));
        }
        text
    })
}

fn list(app: &App, photo: Option<&PhotoId>) -> Result<(), Failure> {
    let found = match photo {
        Some(photo) => {
            let workspace = app.photo(photo)?;
            let kept = picks::of_photo(&workspace)?;
            vec![(workspace, kept)]
        }
        None => picks::of_library(&app.library)?,
    };
    let (mut agreement, mut rows) = (Agreement::default(), Vec::new());
    for (workspace, kept) in &found {
        agreement.add_photo(workspace, kept, |_| true);
        rows.extend(kept.iter().map(|one| json!({ "photo": workspace.id(), "pick": one })));
    }
    app.output.result(&json!({ "picks": rows, "agreement": agreement }), || {
        let mut text = String::new();
        for (workspace, kept) in &found {
            for one in kept {
                let pick = &one.pick;
                let word = match pick.verdict {
                    Some(Verdict::Pick) => "picked",
                    Some(Verdict::Reject) => "rejected",
                    None => "–",
                };
                let stars = "*".repeat(usize::from(pick.stars.unwrap_or(0)));
                let note = line(&pick.note);
                text.push_str(&format!(
                    "{}  {:24}  {word:8}  {stars:5}  {note}\n",
                    workspace.id(),
                    pick.branch.as_str()
                ));
            }
        }
        if let Some(words) = agreement.words() {
            text.push_str(&format!("\n{words}\n"));
        }
        text
    })
}
