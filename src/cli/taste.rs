//! `taste` and `notes`: what is remembered, shown and changed by a person.

use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::{App, text};
use crate::launch::{DEFAULT_SEED, Runner};
use crate::review::preferences::{self, Preference};
use crate::review::{count, line, wrap};
use crate::session::worded;
use base::error::ErrorCode;
use base::ids::PhotoId;
use base::{durable, files};
use engine::photo::{TasteFile, Tastes};

pub const TASTE_EXAMPLES: &str = "\
Examples:
  chemigram taste show
  chemigram taste edit birds
  chemigram taste forget birds 2
  chemigram taste suggest
  chemigram taste suggest --accept 1

_default.md is read before every session; another file is read where a photo's brief names it: `Tastes: birds`.";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum TasteVerb {
    /// List the taste files
    List,
    /// Show what is remembered, with numbers
    Show {
        /// The file, such as birds [default: all files]
        file: Option<String>,
    },
    /// Open a taste file in your editor ($VISUAL or $EDITOR)
    Edit {
        /// The file, such as birds
        #[arg(default_value = "_default")]
        file: String,
    },
    /// Remove one point from a file
    Forget {
        /// The file, such as birds
        file: String,
        /// The number of the point, as `taste show` prints it
        number: usize,
    },
    /// Suggest what to remember, from the picks that you made on review pages
    Suggest {
        /// Remember the suggestion of this number
        #[arg(long, value_name = "N")]
        accept: Option<usize>,
        /// The file that it goes to, such as birds
        #[arg(long, value_name = "FILE", default_value = "_default", requires = "accept")]
        file: String,
        /// The model that words the suggestions; what they rest on are the counts
        #[arg(long, value_name = "PROVIDER[:MODEL]")]
        provider: Option<String>,
    },
}

pub fn taste(app: &App, verb: &TasteVerb) -> Result<(), Failure> {
    let tastes = Tastes::new(app.folders.tastes());
    match verb {
        TasteVerb::List => {
            let files = some(app, &tastes)?;
            let rows: Vec<Value> = files
                .iter()
                .map(|file| json!({ "file": file.name, "points": file.points().len() }))
                .collect();
            app.output.result(&rows, || {
                let row = |file: &TasteFile| {
                    format!("{:24} {}\n", file.name, count(file.points().len() as u64, "point"))
                };
                files.iter().map(row).collect()
            })
        }
        TasteVerb::Show { file } => show(app, &tastes, file.as_deref()),
        TasteVerb::Edit { file } => edit(app, &tastes, file),
        TasteVerb::Forget { file, number } => {
            let gone = tastes.forget(file, *number)?;
            app.output.result(&json!({ "file": gone.file, "forgotten": gone.text }), || {
                format!("forgotten: {}\n", gone.text)
            })
        }
        TasteVerb::Suggest { accept, file, provider } => {
            suggest(app, &tastes, *accept, file, provider.as_deref())
        }
    }
}

/// The files, with a remark where there are none.
fn some(app: &App, tastes: &Tastes) -> Result<Vec<TasteFile>, Failure> {
    let files = tastes.files()?;
    if files.is_empty() {
        app.output.remark("nothing is remembered about your taste yet; write it with `chemigram taste edit`");
    }
    Ok(files)
}

fn show(app: &App, tastes: &Tastes, file: Option<&str>) -> Result<(), Failure> {
    let mut files = some(app, tastes)?;
    if let Some(file) = file {
        let path = tastes.path(file)?;
        files.retain(|one| path.ends_with(&one.name));
        if files.is_empty() {
            return Err(Failure::new(ErrorCode::NotFound, format!("there is no {}", path.display()))
                .remedy("`chemigram taste list` shows the files"));
        }
    }
    let width = app.output.style().width;
    app.output.result(&files, || {
        let mut shown = String::new();
        for file in &files {
            shown.push_str(&format!("{}\n", file.name));
            for (number, point) in (1..).zip(file.points()) {
                let rows = wrap(&line(&point.text), width.saturating_sub(6));
                for (at, row) in rows.iter().enumerate() {
                    let number = if at == 0 { format!("{number:4}") } else { "    ".into() };
                    shown.push_str(&format!("{number}  {row}\n"));
                }
            }
        }
        shown
    })
}

fn edit(app: &App, tastes: &Tastes, file: &str) -> Result<(), Failure> {
    let path = tastes.path(file)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Failure::file("make", folder, &e))?;
    }
    open_editor(&path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let points: Vec<_> =
        tastes.files()?.into_iter().filter(|one| one.name == name).flat_map(|one| one.points()).collect();
    for point in &points {
        warn_of_opposites(app, tastes, &point.text)?;
    }
    app.output.result(&json!({ "file": path, "points": points.len() }), || {
        format!("{}: {}\n", path.display(), count(points.len() as u64, "point"))
    })
}

/// Lets a person change a file in the editor of her choice.
pub fn open_editor(path: &Path) -> Result<(), Failure> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let Some(editor) = named("VISUAL").or_else(|| named("EDITOR")) else {
        return Err(Failure::new(ErrorCode::NotFound, "neither VISUAL nor EDITOR names an editor")
            .remedy(format!("set one (`EDITOR=nano`), or change the file by yourself: {}", path.display())));
    };
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or_default();
    let ended = std::process::Command::new(program).args(words).arg(path).status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::new(ErrorCode::StateError, format!("the editor `{editor}` ended with {status}")))
        }
        Err(e) => Err(Failure::file("start", Path::new(program), &e)
            .remedy("set EDITOR to an editor that is installed")),
    }
}

/// Says which points a text cannot be followed together with.
pub fn warn_of_opposites(app: &App, tastes: &Tastes, text: &str) -> Result<(), Failure> {
    for point in tastes.opposed_to(text)? {
        app.output.remark(&format!(
            "\"{}\" is the opposite of \"{}\" in {}",
            line(text),
            line(&point.text),
            point.file
        ));
    }
    Ok(())
}

fn suggest(
    app: &App,
    tastes: &Tastes,
    accept: Option<usize>,
    file: &str,
    provider: Option<&str>,
) -> Result<(), Failure> {
    let choices = preferences::of_library(&app.library)?;
    let mut found = preferences::of(&choices);
    if let Some(provider) =
        app.launcher(None)?.fallback(provider.filter(|_| !found.is_empty()), DEFAULT_SEED)?
    {
        let rows: Vec<String> =
            found.iter().map(|one| format!("{} ({} of {})", one.text, one.with, one.choices)).collect();
        let words = Runner::new()?.block_on(worded::findings(&*provider, &app.redactor, &rows))?;
        found.iter_mut().zip(words).for_each(|(one, words)| one.words = Some(words));
    }
    let text = |one: &Preference| one.words.clone().unwrap_or_else(|| one.text.clone());
    if let Some(number) = accept {
        let chosen = number.checked_sub(1).and_then(|at| found.get(at));
        let chosen = chosen.ok_or_else(|| {
            Failure::new(ErrorCode::NotFound, format!("there is no suggestion {number}"))
                .remedy("`chemigram taste suggest` lists them")
        })?;
        warn_of_opposites(app, tastes, &chosen.text)?;
        tastes.add(file, &text(chosen), jiff::Zoned::now().date())?;
        let path = tastes.path(file)?;
        return app.output.result(&json!({ "accepted": chosen, "file": path }), || {
            format!("remembered in {}: {}\n", path.display(), text(chosen))
        });
    }
    let seen = format!("{} with a pick", count(choices.len() as u64, "session"));
    if found.is_empty() {
        app.output.remark(&format!(
            "{seen}: nothing in them is more than chance. Pick more on review pages (`chemigram review`), and import them with `chemigram picks import`"
        ));
    }
    app.output.result(&json!({ "choices": choices.len(), "suggestions": found }), || {
        let rows = (1..).zip(&found).map(|(number, one)| {
            format!(
                "{number}. {}\n   In {} of {}, what you picked went this way, in {} the other way; by chance in {:.1} % of cases or fewer.\n",
                line(&text(one)),
                one.with,
                seen,
                one.against,
                (one.p * 100.0).max(0.1)
            )
        });
        let mut all: String = rows.collect();
        if !found.is_empty() {
            all.push_str("\nTo remember one: chemigram taste suggest --accept 1\n");
        }
        all
    })
}

/// Shows a photo's notes, opens them in an editor, or adds a line.
pub fn notes(app: &App, photo: &PhotoId, edit: bool, add: Option<&str>) -> Result<(), Failure> {
    let path = app.photo(photo)?.folder().join("notes.md");
    if let Some(add) = add {
        let _lock = app.writer(photo, "add a note")?;
        let add = text(add)?;
        let old = read(&path)?;
        let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let new = format!("{old}{gap}- {}\n", line(add.trim()));
        durable::write(&path, new.as_bytes()).map_err(|e| Failure::file("write", &path, &e))?;
    } else if edit {
        open_editor(&path)?;
    }
    let shown = read(&path)?;
    if shown.trim().is_empty() {
        app.output.remark(&format!("`{photo}` has no notes yet"));
    }
    app.output.result(&json!({ "photo": photo, "file": path, "text": shown }), || shown.clone())
}

fn read(path: &Path) -> Result<String, Failure> {
    match files::read_text(path, files::LARGEST_TEXT) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Failure::file("read", path, &e)),
    }
}
