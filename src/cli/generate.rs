//! `completions` and `man`: made from the argument definitions, so they cannot be out of date.

use std::path::Path;

use clap::CommandFactory as _;
use serde_json::json;

use super::args::Cli;
use super::failure::Failure;
use super::output::Output;

pub fn completions(output: &Output, shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "chemigram", &mut script);
    output.raw(&script);
}

/// Prints the manual page, or writes all of them into a folder.
pub fn man(output: &Output, dir: Option<&Path>) -> Result<(), Failure> {
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
