//! Which darktable is installed, whether it is new enough, and what to type when it is not there.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::preload;
use crate::process::{self, Job, RunError, arguments};
use crate::render::RenderError;
use crate::sandbox::{Isolation, Sandbox, SandboxPaths};
use base::clock::Deadline;
use base::error::{Coded as _, ErrorCode};

/// The environment variable that names another `darktable-cli`.
pub(crate) const CLI_VARIABLE: &str = "CHEMIGRAM_DARKTABLE_CLI";
/// The oldest darktable that works, in words.
pub(crate) const OLDEST: &str = "4.2.1";
const OLDEST_VERSION: Version = Version { major: 4, minor: 2, patch: 1 };
/// The library of [`preload`] then tells where darktable's own is; the name is also in `preload/library.rs`.
const TELL_LIBRARY: (&str, &str) = ("CHEMIGRAM_TELL_LIBRARY", "1");
/// `--version` takes 0.05 s; more than this is a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// A darktable version; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The 4 of 4.2.1.
    pub major: u32,
    /// The 2 of 4.2.1.
    pub minor: u32,
    /// The 1 of 4.2.1.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Reads `4.2.1`, and the development form `4.9.0+123~gabcdef` without its tail.
    fn from_str(s: &str) -> Result<Self, ()> {
        let numbers = s.split(['+', '~', '-']).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(|n| n.parse().map_err(|_| ()));
        let mut next = || parts.next().unwrap_or(Err(()));
        Ok(Self { major: next()?, minor: next()?, patch: next()? })
    }
}

/// A `darktable-cli` that was asked for its version and is new enough, and what it is confined by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DarktableCli {
    path: PathBuf,
    version: String,
    /// Or why there is none.
    sandbox: Result<Sandbox, String>,
    takes_preload: bool,
}

impl DarktableCli {
    /// The one that [`CLI_VARIABLE`] names, else the first on `PATH`; confined where possible.
    ///
    /// # Errors
    /// [`RenderError`], if there is none, it does not answer, or it is too old.
    pub fn find(deadline: &Deadline) -> Result<Self, RenderError> {
        Self::find_as(Isolation::WherePossible, deadline)
    }

    /// [`Self::find`], confined as given.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_as(isolation: Isolation, deadline: &Deadline) -> Result<Self, RenderError> {
        Self::at_as(&locate()?, isolation, deadline)
    }

    /// Asks the program at `path` for its version, and refuses one older than [`OLDEST`]; confined where possible.
    ///
    /// # Errors
    /// [`RenderError`], if it does not answer, or is too old.
    pub fn at(path: &Path, deadline: &Deadline) -> Result<Self, RenderError> {
        Self::at_as(path, Isolation::WherePossible, deadline)
    }

    /// [`Self::at`], confined as given. A sandbox works if the program prints its version in it.
    ///
    /// # Errors
    /// As [`Self::at`].
    pub fn at_as(path: &Path, isolation: Isolation, deadline: &Deadline) -> Result<Self, RenderError> {
        Self::told(path, isolation, |path, sandbox| ask(path, sandbox, deadline))
    }

    /// [`Self::at_as`], asked by `ask`.
    pub(crate) fn told(
        path: &Path,
        isolation: Isolation,
        ask: impl Fn(&Path, Option<&Sandbox>) -> Result<Answer, RenderError>,
    ) -> Result<Self, RenderError> {
        let path = std::path::absolute(path).map_err(|e| RenderError::Missing(e.to_string()))?;
        let candidates = if isolation == Isolation::Off { Vec::new() } else { Sandbox::candidates() };
        let mut problem = "the kernel has no Landlock, and bwrap is not on PATH".to_owned();
        for sandbox in candidates {
            match ask(&path, Some(&sandbox)) {
                Ok(answer) => return Self::supported(path, answer, Ok(sandbox)),
                Err(error) if error.code() == ErrorCode::Interrupted => return Err(error),
                Err(error) => problem = format!("{sandbox}: {error}"),
            }
        }
        if isolation == Isolation::Required {
            return Err(RenderError::Unconfined(problem));
        }
        let answer = ask(&path, None)?;
        Self::supported(path, answer, Err(problem))
    }

    fn supported(
        path: PathBuf,
        Answer { version, takes_preload, .. }: Answer,
        sandbox: Result<Sandbox, String>,
    ) -> Result<Self, RenderError> {
        if version < OLDEST_VERSION {
            return Err(RenderError::TooOld { found: version.to_string(), least: OLDEST });
        }
        Ok(Self { path, version: version.to_string(), sandbox, takes_preload })
    }

    /// The program, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, such as `4.2.1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether it runs with a library loaded before its own.
    pub(crate) fn takes_preload(&self) -> bool {
        self.takes_preload
    }

    /// What it is confined by, or why by nothing.
    ///
    /// # Errors
    /// Why it is confined by nothing, in words.
    pub fn sandbox(&self) -> Result<&Sandbox, &str> {
        self.sandbox.as_ref().map_err(String::as_str)
    }
}

/// What a person needs to know about the installed darktable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doctor {
    /// Where `darktable-cli` is, if anywhere.
    pub path: Option<PathBuf>,
    /// Its version, if it could be asked.
    pub version: Option<String>,
    /// The oldest version that works.
    pub oldest: &'static str,
    /// Whether renders can be made with it.
    pub supported: bool,
    /// What is wrong, if anything.
    pub problem: Option<String>,
    /// The command that installs darktable here, when it is missing or too old and a package manager is known.
    pub install: Option<&'static str>,
    /// What confines it, if it runs and anything does.
    pub sandbox: Option<String>,
    /// Why nothing confines it, if nothing does.
    pub unconfined: Option<String>,
    /// The command that installs what would confine it, when nothing does and a package manager is known.
    pub install_sandbox: Option<&'static str>,
}

/// Looks at the installed darktable; never fails.
pub fn doctor(isolation: Isolation, deadline: &Deadline) -> Doctor {
    let path = std::env::var_os("PATH").unwrap_or_default();
    diagnose(locate(), isolation, &path, deadline)
}

fn diagnose(
    located: Result<PathBuf, RenderError>,
    isolation: Isolation,
    search: &OsStr,
    deadline: &Deadline,
) -> Doctor {
    let path = located.as_ref().ok().cloned();
    let found = located.and_then(|path| DarktableCli::at_as(&path, isolation, deadline));
    let version = match &found {
        Ok(cli) => Some(cli.version.clone()),
        Err(RenderError::TooOld { found, .. }) => Some(found.clone()),
        Err(_) => None,
    };
    let unconfined = match &found {
        Ok(cli) => cli.sandbox().err().map(str::to_owned),
        Err(RenderError::Unconfined(reason)) => Some(reason.clone()),
        Err(_) => None,
    };
    let install = match &found {
        Ok(_) | Err(RenderError::Unconfined(_)) => None,
        Err(_) => install_command(&DARKTABLE, search),
    };
    Doctor {
        path,
        version,
        oldest: OLDEST,
        supported: found.is_ok(),
        install,
        sandbox: found.as_ref().ok().and_then(|cli| cli.sandbox().ok()).map(ToString::to_string),
        install_sandbox: unconfined.as_ref().and_then(|_| install_command(&BUBBLEWRAP, search)),
        unconfined,
        problem: found.err().map(|error| error.to_string()),
    }
}

/// Package managers, and how each installs darktable.
const DARKTABLE: [(&str, &str); 4] = [
    ("apt-get", "sudo apt-get install darktable"),
    ("dnf", "sudo dnf install darktable"),
    ("pacman", "sudo pacman -S darktable"),
    ("brew", "brew install --cask darktable"),
];
/// The same for bubblewrap.
const BUBBLEWRAP: [(&str, &str); 3] = [
    ("apt-get", "sudo apt-get install bubblewrap"),
    ("dnf", "sudo dnf install bubblewrap"),
    ("pacman", "sudo pacman -S bubblewrap"),
];

/// The command of the first package manager on `search`, a list in the form of `PATH`.
fn install_command(commands: &[(&str, &'static str)], search: &OsStr) -> Option<&'static str> {
    let there = commands.iter().find(|(program, _)| on_path(program, search).is_some());
    there.map(|(_, command)| *command)
}

pub(crate) fn locate() -> Result<PathBuf, RenderError> {
    let named = std::env::var_os(CLI_VARIABLE).filter(|v| !v.is_empty());
    locate_in(named.as_deref(), &std::env::var_os("PATH").unwrap_or_default())
}

/// A named program must be there: falling back to another would render with what nobody asked for.
fn locate_in(named: Option<&OsStr>, search: &OsStr) -> Result<PathBuf, RenderError> {
    match named {
        Some(named) if is_program(Path::new(named)) => Ok(PathBuf::from(named)),
        Some(named) => Err(RenderError::Missing(format!(
            "{CLI_VARIABLE} names {}, which is not a program",
            Path::new(named).display()
        ))),
        None => on_path("darktable-cli", search)
            .ok_or_else(|| RenderError::Missing("no darktable-cli on PATH".to_owned())),
    }
}

/// The first program of that name on `search`, a list in the form of `PATH`; its absolute folders count only.
pub(super) fn on_path(program: &str, search: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// What a darktable said.
pub(crate) struct Answer {
    pub version: Version,
    pub takes_preload: bool,
    /// Where its library is, if that was told.
    pub library: Option<PathBuf>,
}

/// Asks with the library of [`preload`] loaded, which a foreign loader may refuse, and then without.
pub(crate) fn ask(
    path: &Path,
    sandbox: Option<&Sandbox>,
    deadline: &Deadline,
) -> Result<Answer, RenderError> {
    let missing = |why: String| RenderError::Missing(format!("{}: {why}", path.display()));
    let home =
        tempfile::tempdir().map_err(|source| RenderError::Io { path: std::env::temp_dir(), source })?;
    // Where there is no room for it, that is for the first render to say.
    let mut preload = preload::preload(home.path()).unwrap_or_default();
    let ask = |env: &[(&str, &str)]| {
        let job = Job {
            program: path,
            args: arguments(["--version"]),
            home: home.path(),
            temp: home.path(),
            env,
            sandbox,
            reach: SandboxPaths { read: &[], write: &[] },
            memory: process::memory(),
            watch: |_| false,
        };
        job.run(&deadline.at_most(PATIENCE)).map_err(|error| match error {
            RunError::Cut { after, cancelled } if deadline.expired() => {
                RenderError::interrupted(after, cancelled)
            }
            RunError::Cut { after, .. } => missing(format!("--version did not answer in {after:?}")),
            error => missing(error.to_string()),
        })
    };
    if !preload.is_empty() {
        preload.push(TELL_LIBRARY);
        let told = ask(&preload)?.stdout;
        let (library, answer) = match told.strip_prefix("library: ").and_then(|told| told.split_once('\n')) {
            Some((library, answer)) => (Some(PathBuf::from(library)), answer),
            None => (None, told.as_str()),
        };
        if let Some(version) = parse(answer) {
            return Ok(Answer { version, takes_preload: true, library });
        }
    }
    let ended = ask(&[])?;
    match parse(&ended.stdout) {
        Some(version) => Ok(Answer { version, takes_preload: preload.is_empty(), library: None }),
        None => Err(missing(format!("--version answered without a version ({})", ended.status))),
    }
}

/// The version in the answer to `--version`: `this is darktable-cli 4.2.1` up to 4.x, `darktable 5.0.1` after.
fn parse(answer: &str) -> Option<Version> {
    answer.split_whitespace().find_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let v = |s: &str| s.parse::<Version>();
        assert_eq!(
            parse("this is darktable-cli 4.2.1\ncopyright (c) 2012-2023 x").map(|v| v.to_string()),
            Some("4.2.1".into())
        );
        assert_eq!(
            parse("darktable 4.9.0+1049~g3d0f5a\nCopyright (C) 2012-2024").map(|v| v.to_string()),
            Some("4.9.0".into())
        );
        assert_eq!(parse("command not found"), None);
        assert!(v("4.2.0") < Ok(OLDEST_VERSION) && v("4.10.0") > v("4.9.9") && v("5.0.0") > v("4.99.0"));
        assert_eq!(OLDEST.parse(), Ok(OLDEST_VERSION));
    }

    #[test]
    fn a_named_program_is_never_replaced_by_another() {
        let search = std::env::var_os("PATH").unwrap();
        let error = locate_in(Some(OsStr::new("/nowhere/darktable-cli")), &search).unwrap_err();
        assert!(error.to_string().contains(CLI_VARIABLE), "{error}");
        assert_eq!(locate_in(Some(OsStr::new("/bin/sh")), &search).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn a_missing_darktable_comes_with_the_command_that_installs_it() {
        let dir = tempfile::tempdir().unwrap();
        for (manager, words) in
            [("brew", "brew install"), ("dnf", "dnf install"), ("apt-get", "apt-get install")]
        {
            std::os::unix::fs::symlink("/bin/sh", dir.path().join(manager)).unwrap();
            let search = dir.path().as_os_str();
            let report =
                diagnose(locate_in(None, search), Isolation::WherePossible, search, &Deadline::never());
            assert!(!report.supported && report.path.is_none() && report.problem.is_some());
            assert!(report.install.is_some_and(|c| c.contains(words)), "{report:?}");
            assert!(report.sandbox.is_none() && report.unconfined.is_none(), "{report:?}");
        }
    }
}
