//! The files that travel inside the binary, so that an installed `chemigram` needs no checkout.
//!
//! A user's own files of the same relative name take precedence: see [`Overlay`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};

static PROMPTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../prompts");
static PROVIDERS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../providers");
static VOCABULARY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../vocabulary");
static PROTOCOLS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../protocols");
static DEMO: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios/demo");
static GOLDEN_V1: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios/golden_v1");
static GOLDEN_V2: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scenarios/golden_v2");

/// The golden sets, by name.
static GOLDEN_SETS: [(&str, &Dir<'_>); 2] = [("golden_v1", &GOLDEN_V1), ("golden_v2", &GOLDEN_V2)];

/// The names of the golden sets in the binary.
pub fn golden_sets() -> impl Iterator<Item = &'static str> {
    GOLDEN_SETS.iter().map(|(name, _)| *name)
}

/// Writes a golden set out of the binary into `folder`, which is made; whether there is a set of this name.
///
/// # Errors
/// What the system says of a file that cannot be written.
pub fn unpack_golden_set(name: &str, folder: &Path) -> io::Result<bool> {
    let Some((_, set)) = GOLDEN_SETS.iter().find(|(known, _)| *known == name) else { return Ok(false) };
    std::fs::create_dir_all(folder)?;
    set.extract(folder)?;
    Ok(true)
}

/// One embedded folder, optionally extended by a folder on disk.
#[derive(Clone)]
pub struct Overlay {
    embedded: &'static Dir<'static>,
    user: Option<PathBuf>,
}

impl Overlay {
    /// `prompts/`.
    pub fn prompts(user: Option<PathBuf>) -> Self {
        Self { embedded: &PROMPTS, user }
    }

    /// `providers/`.
    pub fn providers(user: Option<PathBuf>) -> Self {
        Self { embedded: &PROVIDERS, user }
    }

    /// `vocabulary/`.
    pub fn vocabulary(user: Option<PathBuf>) -> Self {
        Self { embedded: &VOCABULARY, user }
    }

    /// `protocols/`.
    pub fn protocols(user: Option<PathBuf>) -> Self {
        Self { embedded: &PROTOCOLS, user }
    }

    /// The demo scenario.
    pub fn demo() -> Self {
        Self { embedded: &DEMO, user: None }
    }

    /// The bytes of `path` (relative, `/`-separated), the user's file first.
    pub fn read(&self, path: &str) -> Option<Cow<'static, [u8]>> {
        if let Some(bytes) = self
            .user
            .as_ref()
            .and_then(|dir| crate::files::read(&dir.join(path), crate::files::LARGEST_TEXT).ok())
        {
            return Some(Cow::Owned(bytes));
        }
        self.embedded.get_file(path).map(|file| Cow::Borrowed(file.contents()))
    }

    /// [`Self::read`] as text; `None` also for what is not UTF-8.
    pub fn text(&self, path: &str) -> Option<Cow<'static, str>> {
        match self.read(path)? {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }

    /// The names of the files directly in `folder` (`""` for the top) that end in `suffix`, sorted,
    /// each with where it comes from.
    pub fn list(&self, folder: &str, suffix: &str) -> BTreeMap<String, Origin> {
        let mut found = BTreeMap::new();
        let dir = if folder.is_empty() { Some(self.embedded) } else { self.embedded.get_dir(folder) };
        for file in dir.into_iter().flat_map(|d| d.files()) {
            if let Some(name) = file.path().file_name().and_then(|n| n.to_str())
                && name.ends_with(suffix)
            {
                found.insert(name.to_owned(), Origin::Embedded);
            }
        }
        let entries = self.user.as_ref().and_then(|dir| std::fs::read_dir(dir.join(folder)).ok());
        for entry in entries.into_iter().flatten().flatten() {
            if let Some(name) = entry.file_name().to_str()
                && name.ends_with(suffix)
            {
                found.insert(name.to_owned(), Origin::User(entry.path()));
            }
        }
        found
    }
}

/// Where a file was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Inside the binary.
    Embedded,
    /// In the user's own folder.
    User(PathBuf),
}
