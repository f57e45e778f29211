//! The folder that one run of darktable works in, and the command line it runs with.
//!
//! darktable reads any sidecar that lies beside a picture, resolves symbolic links in some versions, expands
//! `$(…)` in output names and renames instead of overwriting. So the photograph appears in a fresh folder, the output
//! goes to another fresh folder, and every path is absolute. It keeps its own name where that does no harm, because
//! grain depends on it: see [`name_of`].
//!
//! A sandbox knows folders. The photograph is a link to the user's own file, so it and its sidecar lie apart
//! from what darktable may write in:
//!
//! ```text
//! base/config-…        darktable's configuration      written by darktable
//! base/home            its HOME                       written by darktable
//! base/given/render-…  photograph and sidecar         read by darktable
//! base/scratch/render-… its working folder, and `out`  written by darktable
//! elsewhere            the folders of the LUTs and of the own lens profiles, read by darktable
//! ```

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::checks;
use crate::export::{Profile, Settings};
use crate::live::Live;
use crate::luts;
use crate::preload;
use crate::probe::DarktableCli;
use crate::process::{self, Ended, Job, RunError, arguments};
use crate::render::{Quality, RenderError};
use crate::sandbox::SandboxPaths;
use crate::state::EditState;
use base::clock::Deadline;
use base::files;

/// The name of the picture that darktable writes.
pub const PICTURE: &str = "picture.png";
/// The name of the picture that a darktable that stays alive writes: not packed, which saves both sides a
/// twentieth of a second.
pub const SERVED: &str = "picture.tif";
/// Its name when it is to carry the history that made it.
pub const CARRIER: &str = "picture.jpg";
/// The largest long edge that is requested; darktable never enlarges, so this means full size.
pub const LARGEST_EDGE: u32 = 30_000;
const PREFIX: &str = "render-";
/// A photograph's name of more bytes is not kept: sidecars add to it.
const LONGEST_NAME: usize = 200;
/// A scratch folder this old was left behind by a process that was killed.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// A private base folder: darktable's configuration, its home, and the scratch folders.
#[derive(Clone, Debug)]
pub struct Base {
    folder: PathBuf,
    luts: Option<PathBuf>,
    lenses: Option<PathBuf>,
}

impl Base {
    /// Uses `folder`, and makes it if need be (mode 0700). Scratch folders that killed processes left there
    /// more than a day ago are removed.
    ///
    /// # Errors
    /// [`RenderError`], if `folder` cannot be made or written.
    pub fn new(folder: &Path) -> Result<Self, RenderError> {
        let folder = std::path::absolute(folder).map_err(at(folder))?;
        let base = Self { folder, luts: None, lenses: None };
        for folder in [base.given(), base.scratch(), base.home()] {
            make_private(&folder)?;
        }
        base.sweep();
        Ok(base)
    }

    /// The same with the folder of the LUTs that edits may name, which is made if need be.
    pub(super) fn with_luts(self, folder: &Path) -> Self {
        // A folder that cannot be made has no LUTs, and an edit that needs one is refused.
        let _ = fs::create_dir_all(folder);
        Self { luts: std::path::absolute(folder).ok(), ..self }
    }

    /// The same with the person's own lens profiles. lensfun looks for them at one place below the home that it is
    /// given, where a link leads to them.
    pub(super) fn with_lenses(self, folder: &Path) -> Self {
        let link = self.home().join(".local/share/lensfun");
        let lenses = std::path::absolute(folder).ok().filter(|folder| folder.is_dir());
        if fs::read_link(&link).ok() != lenses {
            // Only ever a link; a folder of darktable's own would stay.
            let _ = fs::remove_file(&link);
            let made = || {
                fs::create_dir_all(link.parent()?).ok()?;
                std::os::unix::fs::symlink(lenses.as_ref()?, &link).ok()
            };
            // Without the link there are no profiles but lensfun's own, and a lens among them is not corrected.
            let _ = made();
        }
        Self { lenses, ..self }
    }

    /// The folders elsewhere that darktable reads.
    fn elsewhere(&self) -> impl Iterator<Item = &Path> {
        self.luts.iter().chain(&self.lenses).map(PathBuf::as_path)
    }

    /// Whether the LUTs of a state are there, as they were imported.
    pub(super) fn check_luts(&self, state: &EditState) -> Result<(), RenderError> {
        Ok(luts::check(state, self.luts.as_deref())?)
    }

    /// The setting by which darktable finds LUTs.
    fn lut_setting(&self) -> Vec<OsString> {
        let setting = |folder: &PathBuf| {
            let mut setting = OsString::from(format!("{}=", luts::FOLDER_SETTING));
            setting.push(folder);
            vec![OsString::from("--conf"), setting]
        };
        self.luts.as_ref().map(setting).unwrap_or_default()
    }

    fn given(&self) -> PathBuf {
        self.folder.join("given")
    }

    fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// One configuration folder a version: they refuse each other's.
    fn config(&self, cli: &DarktableCli) -> PathBuf {
        self.folder.join(format!("config-{}", cli.version()))
    }

    fn sweep(&self) {
        let entries = [self.given(), self.scratch()].into_iter().flat_map(fs::read_dir).flatten();
        for entry in entries.flatten() {
            let age =
                entry.metadata().and_then(|m| m.modified()).map(|t| SystemTime::now().duration_since(t));
            if let Ok(Ok(age)) = age
                && age > STALE
                && entry.file_name().to_string_lossy().starts_with(PREFIX)
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl Base {
    /// A folder for a process that stays alive; gone when dropped.
    pub(super) fn scratch_folder(&self) -> io::Result<TempDir> {
        fresh(&self.scratch())
    }

    /// Starts a darktable-cli that exports `boot.png` in `folder` and runs the Lua script of that name there.
    pub(super) fn start_server(
        &self,
        cli: &DarktableCli,
        folder: &Path,
        script: &str,
        quality: Quality,
        watch: fn(&str) -> bool,
    ) -> Result<Live, RunError> {
        let hq = hq(quality);
        // Apart from the one-shot's: darktable may write its settings at its end.
        let config = self.folder.join(format!("config-{}-server-{}", cli.version(), quality.as_str()));
        make_private(&config).map_err(|error| RunError::Watch(io::Error::other(error)))?;
        let mut args = arguments(["boot.png", "booted.png", "--width", "8", "--height", "8", "--hq", hq]);
        args.extend(arguments(["--icc-type", LOOKING.icc_type()]));
        args.extend(arguments(CORE));
        args.push(config.as_os_str().to_owned());
        args.extend(arguments(ALONE));
        let resampling = format!("plugins/lighttable/export/high_quality_processing={hq}");
        args.extend(arguments(["--conf", "write_sidecar_files=never", "--conf", &resampling]));
        for setting in ["bpp=8", "pixelformat=0", "compress=0", "shortfile=0"] {
            args.extend(arguments(["--conf", &format!("plugins/imageio/format/tiff/{setting}")]));
        }
        // The working directory is `folder`.
        args.extend(arguments(["--luacmd", &format!("dofile(\"{script}\")")]));
        args.extend(self.lut_setting());
        let given = self.given();
        let readable: Vec<&Path> = self.elsewhere().chain([given.as_path()]).collect();
        let mut env = preload::repeatable(cli, folder).map_err(RunError::Watch)?;
        env.push(preload::WITHOUT_EXIF);
        // Pictures of full quality are few, and their buffers some gigabytes.
        if quality == Quality::Preview {
            env.push(preload::KEEPS_BUFFERS);
        }
        Live::start(&Job {
            program: cli.path(),
            args,
            home: &self.home(),
            temp: folder,
            env: &env,
            sandbox: cli.sandbox().ok(),
            // Whatever it will have to render.
            reach: SandboxPaths { read: &readable, write: &[&self.scratch(), &config] },
            memory: process::memory(),
            watch,
        })
    }
}

/// The colour space of previews.
const LOOKING: Profile = Profile::Srgb;

fn fresh(parent: &Path) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)
}

/// What every darktable-cli is started with, up to the folder of its configuration. Measured on 4.2.1:
/// `--apply-custom-presets false` keeps darktable off its preset database, which otherwise admits one process at a
/// time.
const CORE: [&str; 4] = ["--apply-custom-presets", "false", "--core", "--configdir"];
/// And after it: no library, no GPU, and pictures that are decoded at once and thrown away. Without a result of its
/// processor benchmark, 4.2.1 takes one at its first start with a configuration folder: 0.35 s of work, to be
/// compared with a GPU that is not used.
const ALONE: [&str; 9] = [
    "--library",
    ":memory:",
    "--disable-opencl",
    "--conf",
    "dt_cpubenchmark=1",
    "--conf",
    "plugins/imageio/format/png/bpp=8",
    "--conf",
    "plugins/imageio/format/png/compression=1",
];

fn hq(quality: Quality) -> &'static str {
    match quality {
        Quality::Preview => "false",
        Quality::Judge => "true",
    }
}

/// One run's folders; gone when dropped.
#[derive(Debug)]
pub struct Scratch {
    /// Where darktable works and writes.
    dir: TempDir,
    /// What it is given, unless that lies in `dir` too.
    given: Option<TempDir>,
    home: PathBuf,
    input: PathBuf,
}

/// What one run is to render.
#[derive(Clone, Copy, Debug)]
pub struct RenderJob<'a> {
    /// The sidecar, or `None` for darktable's own defaults.
    pub sidecar: Option<&'a Path>,
    /// The longest side in pixels.
    pub long_edge: u32,
    /// The level.
    pub quality: Quality,
    /// Whether the history that was applied is wanted too.
    pub history: History,
    /// A file to export, rather than an 8-bit sRGB PNG to look at.
    pub export: Option<&'a Settings>,
    /// A Lua script in the working folder that darktable runs at its start.
    pub script: Option<&'a str>,
}

/// Where darktable is to write the history that it applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Nowhere.
    Unsaid,
    /// Beside the (linked) input.
    Beside,
    /// In the picture, which is a JPEG named [`CARRIER`] then.
    Inside,
}

impl Scratch {
    /// Makes fresh folders and puts the photograph into one under a plain name: a hard link, or a copy where a
    /// link cannot be made (another file system, another owner). darktable cannot write there.
    ///
    /// # Errors
    /// [`RenderError`], if a folder cannot be made, or the photograph neither linked nor copied.
    pub fn new(base: &Base, raw: &Path) -> Result<Self, RenderError> {
        let given = fresh(&base.given()).map_err(at(&base.given()))?;
        let folder = given.path().to_owned();
        Self::make(base, raw, Some(given), &folder, |from, to| {
            fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
        })
    }

    /// [`Self::new`] for a darktable that is to write a sidecar beside the photograph, which is always a copy.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn writable(base: &Base, raw: &Path) -> Result<Self, RenderError> {
        Self::make(base, raw, None, Path::new("in"), |from, to| fs::copy(from, to).map(drop))
    }

    /// `folder` is where the photograph comes, if need be under the working folder.
    fn make(
        base: &Base,
        raw: &Path,
        given: Option<TempDir>,
        folder: &Path,
        put: fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<Self, RenderError> {
        check_raw(raw)?;
        let dir = fresh(&base.scratch()).map_err(at(&base.scratch()))?;
        let folder = dir.path().join(folder);
        let input = folder.join(name_of(raw));
        let scratch = Self { home: base.home(), input, given, dir };
        for folder in [folder, scratch.output()] {
            fs::create_dir_all(&folder).map_err(at(&folder))?;
        }
        // The link must be to the file itself: a hard link to a symbolic link would be one.
        let source = fs::canonicalize(raw).map_err(|e| unreadable(raw, &e))?;
        put(&source, &scratch.input).map_err(at(&scratch.input))?;
        Ok(scratch)
    }

    /// Where the linked or copied photograph is.
    pub fn input(&self) -> &Path {
        &self.input
    }

    /// The folder that the picture appears in.
    pub fn output(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// The folder that darktable works in, and may write in.
    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the sidecar of the edit, under a name that darktable does not look for by itself.
    ///
    /// # Errors
    /// [`RenderError`], if it cannot be written.
    pub fn write_sidecar(&self, text: &str) -> Result<PathBuf, RenderError> {
        self.write(text, "-edit.xmp")
    }

    /// Writes the sidecar of the edit where darktable finds it by itself when it imports the photograph.
    ///
    /// # Errors
    /// [`RenderError`], if it cannot be written.
    pub fn write_sidecar_beside(&self, text: &str) -> Result<(), RenderError> {
        self.write(text, ".xmp").map(drop)
    }

    /// Writes a file that is called as the photograph and so on.
    fn write(&self, text: &str, ending: &str) -> Result<PathBuf, RenderError> {
        let mut name = self.input.clone().into_os_string();
        name.push(ending);
        let path = PathBuf::from(name);
        fs::write(&path, text).map_err(at(&path))?;
        Ok(path)
    }

    /// Runs darktable-cli once.
    ///
    /// # Errors
    /// [`RenderError`], if it cannot be started, or its time is over.
    pub fn run(
        &self,
        cli: &DarktableCli,
        base: &Base,
        order: &RenderJob<'_>,
        deadline: &Deadline,
    ) -> Result<Ended, RenderError> {
        let config = base.config(cli);
        make_private(&config)?;
        let given = self.given.as_ref().map(TempDir::path);
        let readable: Vec<&Path> = base.elsewhere().chain(given).collect();
        let mut args = self.command_line(order, &config);
        args.extend(base.lut_setting());
        let env = preload::repeatable(cli, self.dir.path()).map_err(at(self.dir.path()))?;
        let job = Job {
            program: cli.path(),
            args,
            home: &self.home,
            temp: self.dir.path(),
            env: &env,
            sandbox: cli.sandbox().ok(),
            reach: SandboxPaths { read: &readable, write: &[&config] },
            memory: process::memory(),
            watch: checks::is_telling,
        };
        job.run(deadline).map_err(|error| match error {
            RunError::Cut { after, cancelled } => RenderError::interrupted(after, cancelled),
            RunError::Start { .. } => RenderError::Missing(error.to_string()),
            RunError::Watch(source) => RenderError::Io { path: cli.path().to_owned(), source },
        })
    }

    /// Measured on 4.2.1: `--hq` defaults to true, sidecar writing to the user's taste.
    fn command_line(&self, order: &RenderJob<'_>, config: &Path) -> Vec<OsString> {
        let edge = order.long_edge.min(LARGEST_EDGE).to_string();
        let (sidecars, picture) = match order.history {
            History::Unsaid => ("write_sidecar_files=never", PICTURE),
            History::Beside => ("write_sidecar_files=on import", PICTURE),
            History::Inside => ("write_sidecar_files=never", CARRIER),
        };
        let picture = order.export.map_or(picture.to_owned(), |export| export.format.file_name());
        let profile = order.export.map_or(LOOKING, |export| export.profile);
        let mut args = arguments([self.input.as_os_str()]);
        args.extend(order.sidecar.map(|path| path.as_os_str().to_owned()));
        args.push(self.output().join(picture).into_os_string());
        // With a limit, even a large one, darktable scales: a straightened picture then has other pixels, and a
        // column or a row more. Without one it does not.
        if order.export.is_none_or(|export| export.long_edge.is_some()) {
            args.extend(arguments(["--width", &edge, "--height", &edge]));
        }
        args.extend(arguments(["--hq", hq(order.quality)]));
        args.extend(arguments(["--icc-type", profile.icc_type()]));
        args.extend(arguments(CORE));
        args.push(config.as_os_str().to_owned());
        args.extend(arguments(ALONE));
        args.extend(arguments(["--conf", sidecars]));
        if let Some(script) = order.script {
            args.extend(arguments(["--luacmd", &format!("dofile(\"{script}\")")]));
        }
        // The last word on a setting counts.
        for setting in order.export.iter().flat_map(|export| export.format.settings()) {
            args.extend(arguments(["--conf", &setting]));
        }
        args
    }
}

/// What a photograph is called before darktable: as it is, because that name is where darktable's grain begins, so that
/// a picture has the grain that it has in the photographer's own darktable, and each photo another one. A name that
/// somebody on the way could take for more than a name (a pattern, a variable, the end of a line) becomes a plain one.
pub fn name_of(raw: &Path) -> String {
    let harmless = |name: &&str| {
        let letter = |c: char| match c {
            ' ' | '_' | '-' | '+' | '=' | ',' | '.' | '(' | ')' | '@' | '&' | '\'' | '!' | '#' => true,
            c if c.is_ascii() => c.is_ascii_alphanumeric(),
            c => !c.is_control(),
        };
        name.len() <= LONGEST_NAME && !name.starts_with(['.', ' ']) && name.chars().all(letter)
    };
    let own = raw.file_name().and_then(|name| name.to_str()).filter(harmless);
    own.map_or_else(|| format!("photo.{}", extension(raw).unwrap_or_default()), str::to_owned)
}

/// The extension by which darktable knows what a file is, in lower case.
fn extension(raw: &Path) -> Option<String> {
    raw.extension()
        .and_then(|e| e.to_str())
        .filter(|e| !e.is_empty() && e.len() <= 8 && e.bytes().all(|b| b.is_ascii_alphanumeric()))
        .map(str::to_ascii_lowercase)
}

/// Whether `raw` is a readable, non-empty file, with an extension.
fn check_raw(raw: &Path) -> Result<(), RenderError> {
    let refuse = |reason: &str| RenderError::Raw { path: raw.to_owned(), reason: reason.to_owned() };
    let about = files::open(raw).and_then(|f| f.metadata()).map_err(|e| unreadable(raw, &e))?;
    if about.len() == 0 {
        return Err(refuse("it is empty"));
    }
    match extension(raw) {
        Some(_) => Ok(()),
        None => Err(refuse("its name has no extension that says what kind of picture it is")),
    }
}

fn unreadable(raw: &Path, error: &io::Error) -> RenderError {
    RenderError::Raw { path: raw.to_owned(), reason: error.to_string() }
}

/// Names the file that an I/O error is about.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> RenderError {
    move |source| RenderError::Io { path: path.to_owned(), source }
}

fn make_private(folder: &Path) -> Result<(), RenderError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(at(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_unless_they_could_be_more_than_names() {
        let long = format!("{}.dng", "x".repeat(LONGEST_NAME - 4));
        for kept in ["IMG_1234.CR2", "-1 (2), \u{f6} o\u{308} & 'co'.Nef", &long] {
            assert_eq!(name_of(Path::new("/raw").join(kept).as_path()), kept);
        }
        let odd = [
            "a\tb",
            "a\nb",
            "a\u{85}b",
            "$(FILE_NAME)",
            "a*",
            "a?",
            "a[1]",
            "a%d",
            "a:b",
            "a\\b",
            ".a",
            "`a`",
        ];
        for odd in odd.map(|name| format!("{name}.DNG")).into_iter().chain([format!("x{long}")]) {
            assert_eq!(name_of(Path::new(&odd)), "photo.dng", "{odd:?}");
        }
        use std::os::unix::ffi::OsStrExt as _;
        assert_eq!(name_of(Path::new(std::ffi::OsStr::from_bytes(b"a\xff.Raf"))), "photo.raf");
    }

    #[test]
    fn odd_names_become_plain_and_no_sidecar_comes_along() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base::new(&dir.path().join("base")).unwrap();
        let raw = dir.path().join("-x $(FILE_NAME) \u{202e};'\".DNG");
        fs::write(&raw, "pixels").unwrap();
        fs::write(dir.path().join("-x $(FILE_NAME) \u{202e};'\".DNG.xmp"), "foreign").unwrap();
        let link = dir.path().join("link.nef");
        std::os::unix::fs::symlink(&raw, &link).unwrap();
        for (path, name) in [(&raw, "photo.dng"), (&link, "link.nef")] {
            let scratch = Scratch::new(&base, path).unwrap();
            assert_eq!(scratch.input().file_name().unwrap(), name);
            assert_eq!(fs::read(scratch.input()).unwrap(), b"pixels");
            assert!(!fs::symlink_metadata(scratch.input()).unwrap().is_symlink());
            assert_eq!(fs::read_dir(scratch.input().parent().unwrap()).unwrap().count(), 1);
        }
        assert_eq!(fs::read_dir(base.scratch()).unwrap().count(), 0, "scratch folders stay behind");
    }

    #[test]
    fn what_is_no_picture_file_is_refused_before_darktable_runs() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base::new(dir.path()).unwrap();
        fs::write(dir.path().join("empty.dng"), "").unwrap();
        fs::write(dir.path().join("none"), "x").unwrap();
        fs::write(dir.path().join("odd.a b"), "x").unwrap();
        fs::create_dir(dir.path().join("folder.dng")).unwrap();
        for (name, word) in [
            ("missing.dng", "No such file"),
            ("empty.dng", "empty"),
            ("folder.dng", "not a file"),
            ("none", "extension"),
            ("odd.a b", "extension"),
        ] {
            let error = Scratch::new(&base, &dir.path().join(name)).unwrap_err();
            assert!(matches!(error, RenderError::Raw { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn folders_that_a_killed_process_left_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base::new(dir.path()).unwrap();
        let [old, new] = ["render-old", "render-new"].map(|n| base.scratch().join(n));
        fs::create_dir(&old).unwrap();
        fs::create_dir(&new).unwrap();
        let long_ago = SystemTime::now() - 2 * STALE;
        fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
        Base::new(dir.path()).unwrap();
        assert!(!old.exists() && new.exists());
    }
}
