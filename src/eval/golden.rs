//! A golden set: scenarios that were shipped together and no longer change, so that figures of last year and
//! of today are about the same thing.
//!
//! `manifest.json` names every other file of the set by its SHA-256. Whoever changed a file and the manifest
//! with it would go unnoticed: so the manifests of the sets that come with the program are named by their own
//! hash here, in the sources. An improvement is a new set; an old one stays as it was and can still be run.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::eval::file::FileError;
use crate::eval::metrics::{METRICS, metric};
use crate::eval::scenario::{SCENARIO_FILE, Scenario, ScenarioError};
use base::assets;
use base::durable;
use base::error::{Coded, ErrorCode};
use base::files;
use base::hint::{did_you_mean, nearest};
use base::ids::Hash;

/// The file that makes a folder a golden set.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Sets that were shipped, with the SHA-256 of their manifests. A line is added with a set and never changed.
const SHIPPED: &[(&str, &str)] = &[
    ("golden_v1", "cf507b499daf15579a724512e48967a36113c42a4f4f231f46a52c7eb523a717"),
    ("golden_v2", "6c91ab854e47b1c0d2b6e778299d7c9b66796357bdf6891e44c2ff900a4df1ca"),
];

/// What `manifest.json` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The set's name, `golden_vN`, which is its folder's.
    pub version: String,
    /// When it was frozen.
    pub shipped: Date,
    /// The metric that decides; named before anything is run.
    pub primary: String,
    /// What the weighted score is made of, by metric.
    pub weights: BTreeMap<String, f64>,
    /// What a reader should know of the set.
    #[serde(default)]
    pub notes: String,
    /// Every other file, by its path within the set, with its SHA-256.
    pub files: BTreeMap<String, Hash>,
}

/// How a file of a set differs from what was shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    /// Its bytes are others.
    Changed,
    /// It is gone.
    Missing,
    /// It is not of the set.
    Added,
}

/// One file that is not as it was shipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its path within the set.
    pub file: String,
    /// How it differs.
    pub problem: Problem,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let problem = match self.problem {
            Problem::Changed => "was changed",
            Problem::Missing => "is missing",
            Problem::Added => "does not belong to the set",
        };
        write!(f, "{} {problem}", self.file)
    }
}

/// A golden set that is as it was shipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    /// Its folder.
    pub folder: PathBuf,
    /// Its manifest.
    pub manifest: Manifest,
    /// SHA-256 of the manifest's file: the identity of the whole set.
    pub sha256: Hash,
    /// Its scenarios, by id.
    pub scenarios: Vec<Scenario>,
}

/// Why a set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// A file that the system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no such set.
    #[error("there is no golden set `{name}`{hint}")]
    Unknown {
        /// As given.
        name: String,
        /// `; did you mean …?`, or where it was looked for.
        hint: String,
    },
    /// The folder has no manifest.
    #[error("{path} is not frozen: it has no manifest.json")]
    NotFrozen {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has one already.
    #[error("{path} is frozen already")]
    Frozen {
        /// The folder.
        path: PathBuf,
    },
    /// The manifest does not say what it has to.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The set is not as it was shipped.
    #[error("{version} was changed after it was frozen: {}", summary(.findings))]
    Changed {
        /// The set.
        version: String,
        /// What differs.
        findings: Vec<Finding>,
    },
    /// One of its scenarios.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The first few findings, on one line.
fn summary(findings: &[Finding]) -> String {
    const MOST: usize = 5;
    let mut parts: Vec<String> = findings.iter().take(MOST).map(Finding::to_string).collect();
    if findings.len() > MOST {
        parts.push(format!("{} more", findings.len() - MOST));
    }
    parts.join("; ")
}

impl Coded for GoldenError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Unknown { .. } => ErrorCode::NotFound,
            Self::NotFrozen { .. } | Self::Frozen { .. } => ErrorCode::StateError,
            Self::Invalid { .. } => ErrorCode::InvalidInput,
            Self::Changed { .. } => ErrorCode::VersioningError,
            Self::Scenario(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::NotFrozen { path } => {
                Some(format!("freeze it with `chemigram eval freeze {}`", path.display()))
            }
            Self::Changed { .. } => Some("restore the files; put improvements into a new set".into()),
            Self::Frozen { .. } => Some("create the next version in its own folder".into()),
            Self::Unknown { .. } => Some(
                "golden_v1 and golden_v2 are in the program; for a set of your own, give its folder".into(),
            ),
            Self::Scenario(error) => error.remedy(),
            _ => None,
        }
    }
}

impl Golden {
    /// The folder of a set: `name` is a folder, or a set's name in one of `roots` (`golden_v1`, or `v1` in
    /// short). The first root that has it counts.
    pub fn find(name: &str, roots: &[PathBuf]) -> Result<PathBuf, GoldenError> {
        let as_folder = Path::new(name);
        if as_folder.is_dir() {
            return Ok(as_folder.to_owned());
        }
        let full = if name.starts_with("golden_") { name.to_owned() } else { format!("golden_{name}") };
        let found = roots.iter().map(|root| root.join(&full)).find(|folder| folder.is_dir());
        found.ok_or_else(|| {
            let sets: Vec<String> = roots.iter().flat_map(|root| sets(root)).collect();
            let near = nearest(&full, sets.iter().map(String::as_str));
            let places: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            let hint = match near {
                Some(near) => format!("; did you mean `{near}`?"),
                None => format!(", neither as a folder nor in {}", places.join(" or ")),
            };
            GoldenError::Unknown { name: name.to_owned(), hint }
        })
    }

    /// [`Self::find`], and where it finds nothing, the set of this name that is in the program: it is written into
    /// `unpacked` once, and is then a folder as any other.
    ///
    /// # Errors
    /// [`GoldenError::Unknown`], or a file that cannot be written.
    pub fn find_or_unpack(name: &str, roots: &[PathBuf], unpacked: &Path) -> Result<PathBuf, GoldenError> {
        let missing = match Self::find(name, roots) {
            Ok(folder) => return Ok(folder),
            Err(error) => error,
        };
        let full = if name.starts_with("golden_") { name.to_owned() } else { format!("golden_{name}") };
        let Some((_, sha256)) = SHIPPED.iter().find(|(shipped, _)| *shipped == full) else {
            let near = nearest(&full, assets::golden_sets());
            return Err(match (missing, near) {
                (GoldenError::Unknown { name, .. }, Some(near)) => {
                    GoldenError::Unknown { name, hint: format!("; did you mean `{near}`?") }
                }
                (missing, _) => missing,
            });
        };
        // By its hash, so that the set of another build of the program is another folder.
        let place = unpacked.join(sha256.get(..12).unwrap_or(sha256));
        let folder = place.join(&full);
        if folder.join(MANIFEST_FILE).is_file() {
            return Ok(folder);
        }
        // Whole or not at all: it is written beside its place and then moved there. Who comes second finds it.
        std::fs::create_dir_all(&place).map_err(FileError::at("make", &place))?;
        let beside = tempfile::tempdir_in(&place).map_err(FileError::at("make", &place))?;
        let written = beside.path().join(&full);
        if !assets::unpack_golden_set(&full, &written).map_err(FileError::at("write", &written))? {
            return Err(missing);
        }
        match std::fs::rename(&written, &folder) {
            Err(_) if folder.join(MANIFEST_FILE).is_file() => Ok(folder),
            moved => Ok(moved.map(|()| folder.clone()).map_err(FileError::at("move", &folder))?),
        }
    }

    /// Compares every file with what was shipped; nothing found means that the set is frozen.
    pub fn verify(folder: &Path) -> Result<Vec<Finding>, GoldenError> {
        let (manifest, sha256) = manifest(folder)?;
        findings(folder, &manifest, &sha256)
    }

    /// Reads a set. One that is not as it was shipped is refused, with the files named.
    pub fn load(folder: &Path) -> Result<Self, GoldenError> {
        let (manifest, sha256) = manifest(folder)?;
        let findings = findings(folder, &manifest, &sha256)?;
        if !findings.is_empty() {
            return Err(GoldenError::Changed { version: manifest.version, findings });
        }
        let scenarios = scenarios(folder)?;
        Ok(Self { folder: folder.to_owned(), manifest, sha256, scenarios })
    }

    /// One scenario of a set, of which nothing else need be there.
    pub(super) fn part(folder: &Path, id: &str) -> Result<Self, GoldenError> {
        let (manifest, sha256) = manifest(folder)?;
        let scenario = Scenario::load(&folder.join(id))?;
        let file = format!("{id}/{SCENARIO_FILE}");
        if manifest.files.get(&file) != Some(&scenario.sha256) {
            let findings = vec![Finding { file, problem: Problem::Changed }];
            return Err(GoldenError::Changed { version: manifest.version, findings });
        }
        Ok(Self { folder: folder.to_owned(), manifest, sha256, scenarios: vec![scenario] })
    }

    /// Freezes a folder of scenarios as it is now: writes its manifest. The weights are the primary metric
    /// alone unless given.
    pub fn freeze(
        folder: &Path,
        primary: &str,
        weights: BTreeMap<String, f64>,
        notes: &str,
        today: Date,
    ) -> Result<Self, GoldenError> {
        let path = folder.join(MANIFEST_FILE);
        if path.exists() {
            return Err(GoldenError::Frozen { path: folder.to_owned() });
        }
        let scenarios = scenarios(folder)?;
        let version = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let weights = if weights.is_empty() { [(primary.to_owned(), 1.0)].into() } else { weights };
        let manifest = Manifest {
            version,
            shipped: today,
            primary: primary.to_owned(),
            weights,
            notes: notes.to_owned(),
            files: hashes(folder)?,
        };
        let invalid = |reason: String| GoldenError::Invalid { path: path.clone(), reason };
        manifest.check(folder).map_err(invalid)?;
        if scenarios.is_empty() {
            return Err(invalid("the folder contains no scenario".into()));
        }
        let text = serde_json::to_string_pretty(&manifest).map_err(|e| invalid(e.to_string()))? + "\n";
        durable::write(&path, text.as_bytes()).map_err(FileError::at("write", &path))?;
        Ok(Self { folder: folder.to_owned(), manifest, sha256: Hash::of(&text), scenarios })
    }
}

impl Manifest {
    fn check(&self, folder: &Path) -> Result<(), String> {
        let name = std::path::absolute(folder).ok();
        let name = name.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        if name.is_some_and(|name| name != self.version) {
            return Err(format!(
                "version is `{}`, the folder is `{}`",
                self.version,
                name.unwrap_or_default()
            ));
        }
        for name in self.weights.keys().chain([&self.primary]) {
            if metric(name).is_none() {
                let hint = did_you_mean(name, METRICS.iter().map(|metric| metric.name));
                return Err(format!("`{name}` is not a metric{hint}"));
            }
        }
        match self.weights.values().all(|weight| weight.is_finite() && *weight > 0.0) {
            true => Ok(()),
            false => Err("every weight must be positive".into()),
        }
    }
}

/// The names of the sets in a folder.
fn sets(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let names = entries.filter(|entry| entry.path().join(MANIFEST_FILE).is_file());
    names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The manifest of a set and its hash.
fn manifest(folder: &Path) -> Result<(Manifest, Hash), GoldenError> {
    let path = folder.join(MANIFEST_FILE);
    let text = match files::read_text(&path, files::LARGEST_LIST) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
            return Err(GoldenError::NotFrozen { path: folder.to_owned() });
        }
        Err(error) => return Err(FileError::at("read", &path)(error).into()),
    };
    let sha256 = Hash::of(&text);
    let parsed: Result<Manifest, String> = serde_json::from_str(&text).map_err(|e| e.to_string());
    match parsed.and_then(|manifest| manifest.check(folder).map(|()| manifest)) {
        Ok(manifest) => Ok((manifest, sha256)),
        Err(reason) => Err(GoldenError::Invalid { path, reason }),
    }
}

fn findings(folder: &Path, manifest: &Manifest, sha256: &Hash) -> Result<Vec<Finding>, GoldenError> {
    let mut findings = Vec::new();
    let mut find = |file: &str, problem| findings.push(Finding { file: file.to_owned(), problem });
    let shipped = SHIPPED.iter().find(|(version, _)| *version == manifest.version);
    if shipped.is_some_and(|(_, shipped)| *shipped != sha256.as_str()) {
        find(MANIFEST_FILE, Problem::Changed);
    }
    let there = hashes(folder)?;
    for (file, hash) in &manifest.files {
        match there.get(file) {
            None => find(file, Problem::Missing),
            Some(now) if now != hash => find(file, Problem::Changed),
            Some(_) => {}
        }
    }
    for file in there.keys().filter(|file| !manifest.files.contains_key(*file)) {
        find(file, Problem::Added);
    }
    Ok(findings)
}

/// Every file below `folder` but the manifest, by its `/`-separated path, with its hash. A link is as good as the file
/// of the set that it leads to.
fn hashes(folder: &Path) -> Result<BTreeMap<String, Hash>, GoldenError> {
    fn walk(top: &Path, folder: &Path, found: &mut BTreeMap<String, Hash>) -> Result<(), GoldenError> {
        for entry in std::fs::read_dir(folder).map_err(FileError::at("list", folder))? {
            let path = entry.map_err(FileError::at("list", folder))?.path();
            let about = std::fs::symlink_metadata(&path).map_err(FileError::at("read", &path))?;
            if about.is_dir() {
                walk(top, &path, found)?;
                continue;
            }
            let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
            if name != MANIFEST_FILE {
                let stays = about.is_file() || path.canonicalize().is_ok_and(|file| file.starts_with(top));
                let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the set");
                let hash = if stays { files::hash(&path) } else { Err(outside()) };
                found.insert(name, hash.map_err(FileError::at("read", &path))?.0);
            }
        }
        Ok(())
    }
    let mut found = BTreeMap::new();
    let top = folder.canonicalize().map_err(FileError::at("list", folder))?;
    walk(&top, &top, &mut found)?;
    Ok(found)
}

/// The scenarios of a set: every folder with a `scenario.toml`.
fn scenarios(folder: &Path) -> Result<Vec<Scenario>, GoldenError> {
    let io = || FileError::at("list", folder);
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io())? {
        let path = entry.map_err(io())?.path();
        if path.join(SCENARIO_FILE).is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    folders.iter().map(|folder| Ok(Scenario::load(folder)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::scenario::tests::TEXT;

    fn day() -> Date {
        jiff::civil::date(2026, 11, 22)
    }

    fn made(root: &Path) -> PathBuf {
        let folder = root.join("golden_v9");
        std::fs::create_dir_all(folder.join("001_cup")).unwrap();
        std::fs::write(folder.join("001_cup").join(SCENARIO_FILE), TEXT).unwrap();
        folder
    }

    #[test]
    fn a_set_is_frozen_once_and_then_holds() {
        let root = tempfile::tempdir().unwrap();
        let folder = made(root.path());
        assert!(matches!(Golden::load(&folder), Err(GoldenError::NotFrozen { .. })));
        let frozen = Golden::freeze(&folder, "recovery", BTreeMap::new(), "", day()).unwrap();
        assert_eq!(frozen, Golden::load(&folder).unwrap());
        assert_eq!(frozen.manifest.weights, [("recovery".to_owned(), 1.0)].into());
        let again = Golden::freeze(&folder, "recovery", BTreeMap::new(), "", day());
        assert!(matches!(again, Err(GoldenError::Frozen { .. })));
        std::fs::write(folder.join("001_cup/notes.md"), "x").unwrap();
        let error = Golden::load(&folder).unwrap_err();
        assert_eq!(
            error.to_string(),
            "golden_v9 was changed after it was frozen: 001_cup/notes.md does not belong to the set"
        );
        assert_eq!(error.code(), ErrorCode::VersioningError);
    }

    #[test]
    fn a_link_out_of_a_set_is_not_followed_and_one_within_it_is() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let folder = made(root.path());
        let link = folder.join("link");
        let refused = |error: GoldenError| {
            assert_eq!(error.code(), ErrorCode::InvalidInput, "{error}");
            std::error::Error::source(&error).unwrap().to_string()
        };
        std::fs::write(root.path().join("secret"), "x").unwrap();
        for outside in ["../secret", "/dev/zero", "/etc", "nowhere"] {
            symlink(outside, &link).unwrap();
            assert!(refused(hashes(&folder).unwrap_err()).contains("out of the set"), "{outside}");
            std::fs::remove_file(&link).unwrap();
        }
        // A folder that leads to itself is not walked for ever.
        symlink(".", &link).unwrap();
        assert!(hashes(&folder).is_err());
        std::fs::remove_file(&link).unwrap();
        symlink("001_cup/scenario.toml", &link).unwrap();
        let found = hashes(&folder).unwrap();
        assert_eq!(found["link"], found["001_cup/scenario.toml"]);
    }

    #[test]
    fn a_metric_that_is_none_is_no_primary() {
        let root = tempfile::tempdir().unwrap();
        let folder = made(root.path());
        let error = Golden::freeze(&folder, "recovry", BTreeMap::new(), "", day()).unwrap_err();
        assert!(
            error.to_string().ends_with("`recovry` is not a metric; did you mean `recovery`?"),
            "{error}"
        );
        let weights = [("cost".to_owned(), 0.0)].into();
        let error = Golden::freeze(&folder, "recovery", weights, "", day()).unwrap_err();
        assert!(error.to_string().contains("every weight must be positive"), "{error}");
        assert!(!folder.join(MANIFEST_FILE).exists());
    }

    #[test]
    fn a_set_is_found_by_its_name_its_short_name_and_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = made(root.path());
        Golden::freeze(&folder, "recovery", BTreeMap::new(), "", day()).unwrap();
        let roots = [PathBuf::from("/nowhere"), root.path().to_owned()];
        for name in ["golden_v9", "v9", folder.to_str().unwrap()] {
            assert_eq!(Golden::find(name, &roots).unwrap(), folder, "{name}");
        }
        let error = Golden::find("goldn_v9", &roots).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound);
        let error = Golden::find("v7", &roots).unwrap_err();
        assert!(error.to_string().contains("did you mean `golden_v9`?"), "{error}");
    }
}
