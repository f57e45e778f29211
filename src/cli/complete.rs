//! What a shell completes besides commands and options: photos, refs and sessions of the library.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Command, CommandFactory as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};

use super::args::Cli;
use super::paths::Folders;
use crate::session::listing;
use base::ids::PhotoId;
use engine::photo::{Library, Workspace};

/// Every command, with what its arguments complete.
pub fn commands() -> Command {
    let mut command = Cli::command();
    // Arguments are made when they are needed, and here all of them are.
    command.build();
    completing(command)
}

/// A command of which each argument completes what its name says: `PHOTO`, `SESSION`, `REF`, `BRANCH`.
fn completing(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let first =
            arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str().to_owned());
        let name = first.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
        match name.as_str() {
            "PHOTO" | "PHOTOS" => arg.add(photos()),
            "PHOTO|SESSION" => arg.add(photos_and_sessions()),
            "SESSION" => arg.add(sessions()),
            "REF" | "A" | "B" | "BRANCH" | "FROM" => arg.add(refs()),
            _ => arg,
        }
    });
    command.mut_subcommands(completing)
}

/// Completes the id of a photo, and after these a file, which some commands take instead.
fn photos() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = candidates(current, ids().into_iter());
        if found.is_empty() {
            found = PathCompleter::any().complete(current);
        }
        found
    })
}

/// Completes the id of a photo or of a session.
fn photos_and_sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, ids().into_iter().chain(recent())))
}

fn ids() -> Vec<String> {
    let photos = library().and_then(|library| library.photos().ok()).unwrap_or_default();
    photos.iter().map(PhotoId::to_string).collect()
}

/// Completes a branch or tag of the photo that stands before it on the line.
pub fn refs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let Some(photo) = named_photo() else { return Vec::new() };
        let names = photo.branches().into_iter().chain(photo.tags()).flatten();
        candidates(current, names.map(|(name, _)| name.to_string()).chain(["HEAD".to_owned()]))
    })
}

/// Completes the short id of a session, newest first.
fn sessions() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| candidates(current, recent().into_iter()))
}

/// `last`, and the short ids of all sessions, newest first.
fn recent() -> Vec<String> {
    let Some(library) = library() else { return Vec::new() };
    let open = |id: PhotoId| listing::of_photo(&library.open(&id).ok()?).ok();
    let mut ids: Vec<_> =
        library.photos().unwrap_or_default().into_iter().filter_map(open).flatten().collect();
    ids.sort_by(|a, b| b.as_str().cmp(a.as_str()));
    let short = ids.iter().map(|id| id.short().to_owned());
    ["last".to_owned()].into_iter().chain(short).collect()
}

fn candidates(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    names.filter(|name| name.starts_with(&*begun)).map(CompletionCandidate::new).collect()
}

/// The words of the line that is completed.
fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The library that the line, the environment or the usual folders name.
fn library() -> Option<Library> {
    let words = words();
    let typed = words.iter().zip(words.iter().skip(1)).find(|(option, _)| *option == "--library");
    let joined = words.iter().find_map(|word| word.strip_prefix("--library="));
    let named = typed.map(|(_, folder)| folder.as_str()).or(joined).map(PathBuf::from);
    let named = named.or_else(|| std::env::var_os("CHEMIGRAM_LIBRARY").map(PathBuf::from));
    Some(Library::new(named.or_else(|| Some(Folders::find().ok()?.library()))?))
}

/// The first word that is a photo's id, or the photo of the first that is part of a session's.
fn named_photo() -> Option<Workspace> {
    let library = library()?;
    let words = words();
    let photo = |word: &String| library.open(&word.parse().ok()?).ok();
    let session = |word: &String| library.open(&listing::find(&library, word).ok()?.0).ok();
    words.iter().skip(1).find_map(photo).or_else(|| words.iter().skip(1).find_map(session))
}
