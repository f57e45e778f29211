//! The command line: one file for each group of verbs, with its arguments. Nothing is decided here; verbs call the
//! library and print the result. Everything that is printed goes through [`output`], every error through [`failure`].
//!
//! Groups of arguments have plain comments: a doc comment would become the description of each command that has them.
#![allow(missing_docs, reason = "clap reads the comments; nothing here is an interface")]

pub mod args;
mod balance;
mod batch;
mod chat;
mod choice;
mod complete;
mod demo;
mod doctor;
mod edit;
mod eval;
mod eval_compare;
pub mod eval_golden;
mod eval_judge;
mod eval_show;
mod eval_store;
mod export;
mod failure;
mod goal;
mod history;
mod images;
mod import;
mod layers;
mod learn;
mod logging;
mod made;
mod masks;
mod measure;
mod mode_b;
mod output;
mod overnight;
mod paths;
mod photos;
mod places;
mod progress;
mod promote;
mod prompts;
mod propagate;
mod protocol;
mod prune;
mod review;
mod run;
mod schema;
mod setup;
mod signals;
mod sought;
mod stores;
mod taste;
mod try_moves;
mod watch;

use std::path::Path;

use clap::{CommandFactory as _, Parser as _};
use serde_json::json;

use args::{Cli, Globals, Verb};
use failure::Failure;
use output::Output;
use pixels::overlay::Part;
use setup::App;

/// Runs the program with the process's own arguments and returns its exit status.
pub fn main() -> u8 {
    // Answers a shell that completes a line, and ends.
    clap_complete::CompleteEnv::with_factory(complete::commands).complete();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let output = Output::new(&cli.globals);
    let status = match run(&cli.globals, &cli.verb, output.clone()) {
        Ok(status) => status,
        Err(failure) => {
            output.failure(&failure);
            failure.exit_status()
        }
    };
    output.ended(status)
}

/// What clap has to say: help and version are results, anything else is a usage error.
fn usage(error: &clap::Error) -> u8 {
    let json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() {
        // In one piece: `error.print()` writes line by line.
        let (text, output) = (error.render(), Output::for_errors());
        let text = if output::wants_color() { text.ansi().to_string() } else { text.to_string() };
        output.raw(text.as_bytes());
        return output.ended(0);
    }
    let text = error.to_string();
    if !json {
        output::Output::for_errors().say(text.trim_end());
        return 2;
    }
    let mut parts = text.trim_start_matches("error: ").split("\n\n");
    let failure = Failure::input(parts.next().unwrap_or_default().replace("\n  ", " "))
        .remedy("see `chemigram --help` or `chemigram COMMAND --help`");
    output::Output::for_json().failure(&failure);
    2
}

fn run(globals: &Globals, verb: &Verb, output: Output) -> Result<u8, Failure> {
    match verb {
        Verb::Completions { shell } => {
            completions(&output, *shell);
            return Ok(0);
        }
        Verb::Man { dir } => return man(&output, dir.as_deref()).map(|()| 0),
        _ => {}
    }
    let app = App::new(output, globals)?;
    logging::start(globals, app.redactor.clone())?;
    dispatch(&app, verb)
}

fn dispatch(app: &App, verb: &Verb) -> Result<u8, Failure> {
    let done = |result: Result<(), Failure>| result.map(|()| 0);
    match verb {
        Verb::Demo(args) => demo::demo(app, args),
        Verb::DemoRaw { file, force } => done(photos::demo_raw(app, file, *force)),
        Verb::Ingest { raws, id, brief, import_sidecar } => {
            let (id, brief, sidecar) = (id.as_ref(), brief.as_ref(), import_sidecar.as_ref());
            photos::ingest(app, raws, &photos::Taking { id, brief, sidecar })
        }
        Verb::ImportSidecar(args) => done(import::import_sidecar(app, args)),
        Verb::Photos => done(photos::photos(app)),
        Verb::Status(arg) => done(photos::status(app, &arg.photo)),
        Verb::Log { photo, at, limit } => done(history::log(app, photo, at, *limit)),
        Verb::Diff { photo, a, b } => done(history::diff(app, photo, a, b)),
        Verb::Branch { photo, name, from, delete, rename } => {
            done(history::branch(app, photo, name.as_ref(), from, *delete, rename.as_ref()))
        }
        Verb::Tag { photo, name, at, delete } => done(history::tag(app, photo, name.as_ref(), at, *delete)),
        Verb::Undo { photo, dry_run } => done(history::undo(app, photo, *dry_run)),
        Verb::Checkout { photo, at } => done(history::checkout(app, photo, at)),
        Verb::Reset(arg) => done(history::reset(app, &arg.photo)),
        Verb::Fsck { photo, .. } => history::fsck(app, photo.as_ref()),
        Verb::Gc { photo, yes } => done(history::gc(app, photo, *yes)),
        Verb::Render {
            photo,
            at,
            output,
            size,
            quality,
            proxy,
            show_mask,
            mask_for,
            crop,
            grid,
            beside,
            difference,
            force,
        } => {
            let look = edit::PreviewRequest {
                size: *size,
                quality: *quality,
                proxy: proxy.unwrap_or_default(),
                mask: show_mask.as_ref(),
                mask_for: mask_for.as_deref(),
                part: crop.unwrap_or(Part::WHOLE),
                grid: *grid,
                beside: beside.as_deref().or(difference.then_some("baseline")),
                difference: *difference,
            };
            done(edit::render(app, photo, at, output, &look, *force))
        }
        Verb::Export(args) => done(export::export(app, args)),
        Verb::Apply { photo, name, values, mask, label } => {
            done(edit::apply(app, photo, name, values, mask.as_ref(), label.as_deref()))
        }
        Verb::Measure(args) => done(measure::measure(app, args)),
        Verb::Try(args) => done(try_moves::try_moves(app, args)),
        Verb::ApplyRegions(args) => done(places::apply_regions(app, args)),
        Verb::Spot(args) => done(places::spot(app, args)),
        Verb::Mask { verb } => done(masks::mask(app, verb)),
        Verb::ReplaceMask(args) => done(places::replace_mask(app, args)),
        Verb::Remove(args) => done(places::remove(app, args)),
        Verb::Propagate(args) => propagate::propagate(app, args),
        Verb::BindLayers(args) => done(layers::bind(app, args)),
        Verb::GreyCard(args) => done(balance::grey_card(app, args)),
        Verb::Chat(args) => chat::chat(app, args),
        Verb::RunModeB(args) => run::run(app, args),
        Verb::RunProtocol(args) => run::run_protocol(app, args),
        Verb::Overnight(args) => overnight::overnight(app, args),
        Verb::Batch { verb } => batch::batch(app, verb),
        Verb::Worker(args) => batch::worker(app, args),
        Verb::ModeB { verb } => mode_b::mode_b(app, verb),
        Verb::Review(args) => done(review::review(app, args)),
        Verb::Compare(args) => done(review::compare(app, args)),
        Verb::Picks { verb } => done(review::picks(app, verb)),
        Verb::Promote(args) => done(promote::promote(app, args)),
        Verb::Proposals { verb } => done(learn::proposals(app, verb)),
        Verb::Taste { verb } => done(taste::taste(app, verb)),
        Verb::Notes { photo, edit, add } => done(taste::notes(app, photo, *edit, add.as_deref())),
        Verb::Gaps { verb } => done(learn::gaps(app, verb)),
        Verb::Vocab { verb } => stores::vocab(app, verb),
        Verb::Providers { verb } => stores::providers(app, verb),
        Verb::Prompts { verb } => prompts::run(app, verb),
        Verb::Protocol { verb } => protocol::protocol(app, verb),
        Verb::Eval { verb } => eval::eval(app, verb),
        Verb::Prune(args) => prune::prune(app, args),
        Verb::Schema { name } => done(schema::schema(app, name.as_deref())),
        Verb::Cache { verb } => done(stores::cache(app, *verb)),
        Verb::Doctor(args) => doctor::doctor(app, args.store.as_ref()),
        // Answered before the library is looked for.
        Verb::Completions { .. } | Verb::Man { .. } => Ok(0),
    }
}

/// Prints the script by which a shell asks this program for what can come next.
fn completions(output: &Output, shell: clap_complete::Shell) {
    let mut script = Vec::new();
    let shells = clap_complete::env::Shells::builtins();
    if let Some(shell) = shells.completer(&shell.to_string()) {
        // Writing to memory does not fail.
        let _ = shell.write_registration("COMPLETE", "chemigram", "chemigram", "chemigram", &mut script);
    }
    output.raw(&script);
}

/// Prints the manual page, or writes all of them into a folder.
fn man(output: &Output, dir: Option<&Path>) -> Result<(), Failure> {
    let command = Cli::command();
    let Some(dir) = dir else {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(command);
        man.render(&mut page).map_err(|e| Failure::file("make", Path::new("the page"), &e))?;
        output.raw(&page);
        return Ok(());
    };
    std::fs::create_dir_all(dir).map_err(|e| Failure::file("make", dir, &e))?;
    clap_mangen::generate_to(command, dir).map_err(|e| Failure::file("write to", dir, &e))?;
    output.result(&json!({ "folder": dir }), || format!("{}\n", dir.display()))
}
