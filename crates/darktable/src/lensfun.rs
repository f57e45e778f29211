//! The lenses and cameras that lensfun knows, by whose profiles darktable's `lens` module corrects.
//!
//! darktable says nothing when it does not know a name, takes the nearest one, or finds that the lens does not fit the
//! camera. So names are looked up here, in the files that lensfun itself reads: the newest of those that came with the
//! system and those that `lensfun-update-data` has fetched. The form of the files is that of lensfun's documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use base::error::{Coded, ErrorCode};
use base::files;

/// Bytes of one file. The largest that lensfun has is a tenth of it.
const LARGEST_FILE: u64 = 8 << 20;
/// Files of a folder.
const MOST_FILES: usize = 1000;
/// Elements within elements.
const DEEPEST: usize = 16;
/// Names that are suggested.
const SUGGESTED: usize = 5;
/// Names that are listed when several are meant.
const LISTED: usize = 12;
/// How much a profile may be made on a smaller sensor than the camera's, as lensfun has it.
const SMALLER: f64 = 0.96;
/// How far the crop factor of a substitute camera may be off.
const ALIKE: f64 = 0.06;
/// The maker and the mount of lensfun's cameras that take every lens.
const GENERIC: &str = "Generic";

/// A lens, as a profile describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lens {
    /// Who made it.
    pub maker: String,
    /// Its name.
    pub model: String,
    /// What it is mounted with.
    pub mounts: Vec<String>,
    /// The crop factor of the sensor on which the profile was made.
    pub crop: f64,
    /// Shortest and longest focal length in mm, where they are known.
    pub focal: Option<(f64, f64)>,
    /// Whether the profile says anything of dark corners.
    pub vignetting: bool,
}

/// A camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Camera {
    /// Who made it.
    pub maker: String,
    /// Its name.
    pub model: String,
    /// What its lenses are mounted with.
    pub mount: String,
    /// How many times larger a full-frame sensor is than its own.
    pub crop: f64,
}

/// Everything that lensfun knows by name.
#[derive(Clone, Debug, Default)]
pub struct Lensfun {
    lenses: Vec<Lens>,
    cameras: Vec<Camera>,
    /// The other mounts whose lenses each mount takes.
    compatible: BTreeMap<String, BTreeSet<String>>,
    /// The files that are damaged, which lensfun leaves out too.
    damaged: Vec<PathBuf>,
}

/// A lens on a camera that takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The lens.
    pub lens: Lens,
    /// The camera, or one with the same sensor that takes every lens.
    pub camera: Camera,
}

/// Why there is no such lens.
#[derive(Debug, thiserror::Error)]
pub enum LensfunError {
    /// No folder, or none with a lens in it.
    #[error("lensfun's lens profiles were not found in {}{}", listed(.looked), besides(.damaged))]
    Empty {
        /// Where they were looked for.
        looked: Vec<PathBuf>,
        /// Files there that cannot be read as profiles.
        damaged: Vec<PathBuf>,
    },
    /// No such name.
    #[error("lensfun has no {kind} `{name}`{}{}", meant(.near), besides(.damaged))]
    Unknown {
        /// `lens` or `camera`.
        kind: &'static str,
        /// As given.
        name: String,
        /// What may have been meant.
        near: Vec<String>,
        /// Files that cannot be read as profiles, in which it may be.
        damaged: Vec<PathBuf>,
    },
    /// Several names have these words.
    #[error("`{name}` may be {count} {kind}: {}{}", .some.join("; "), if *.count > .some.len() { "; …" } else { "" })]
    Ambiguous {
        /// `lenses` or `cameras`.
        kind: &'static str,
        /// As given.
        name: String,
        /// How many.
        count: usize,
        /// The first of them.
        some: Vec<String>,
    },
    /// No camera with that sensor takes the lens, or its profile does not reach to the corners.
    #[error("lensfun cannot correct `{lens}` on `{camera}`: {reason}")]
    DoesNotFit {
        /// The lens.
        lens: String,
        /// The camera.
        camera: String,
        /// Why.
        reason: String,
    },
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn besides(files: &[PathBuf]) -> String {
    if files.is_empty() { String::new() } else { format!("; damaged: {}", listed(files)) }
}

fn meant(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean `{}`?", names.join("`, `")) }
}

impl Coded for LensfunError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Empty { .. } => ErrorCode::NotFound,
            Self::Unknown { .. } | Self::Ambiguous { .. } | Self::DoesNotFit { .. } => {
                ErrorCode::InvalidInput
            }
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Empty { .. } => {
                "install lensfun's data (Debian, Ubuntu: liblensfun-data-v1), or name their folder in \
                 CHEMIGRAM_LENSFUN"
                    .into()
            }
            Self::Ambiguous { some, .. } => {
                format!("give the whole name, such as \"{}\"", some.first().map_or("", String::as_str))
            }
            Self::Unknown { .. } | Self::DoesNotFit { .. } => return None,
        })
    }
}

/// Where lensfun's files may lie.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders that hold one set of profiles each, below `version_1` or the like; the newest is taken.
    pub sets: Vec<PathBuf>,
    /// A folder whose files are read besides.
    pub own: Option<PathBuf>,
}

impl Places {
    /// As lensfun has them: of the system's data folders, its own updates, and the person's.
    pub fn find(env: &dyn Fn(&str) -> Option<PathBuf>, program: Option<&Path>) -> Self {
        let absolute = |name: &str| env(name).filter(|path| path.is_absolute());
        if let Some(only) = env("CHEMIGRAM_LENSFUN") {
            return Self { sets: vec![only], own: None };
        }
        let listed = env("XDG_DATA_DIRS").map(PathBuf::into_os_string).unwrap_or_default();
        let listed: Vec<PathBuf> = std::env::split_paths(&listed).filter(|path| path.is_absolute()).collect();
        // Beside the darktable that is installed, wherever that is.
        let real = program.and_then(|program| program.canonicalize().ok());
        let beside = real.as_deref().and_then(|real| Some(real.parent()?.parent()?.join("share")));
        let usual = ["/usr/local/share", "/usr/share", "/opt/homebrew/share"].map(PathBuf::from);
        let mut sets: Vec<PathBuf> = Vec::new();
        for folder in beside.into_iter().chain(listed).chain(usual).map(|folder| folder.join("lensfun")) {
            if !sets.contains(&folder) {
                sets.push(folder);
            }
        }
        sets.push("/var/lib/lensfun-updates".into());
        let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        let own = data.map(|data| data.join("lensfun"));
        sets.extend(own.as_ref().map(|own| own.join("updates")));
        Self { sets, own }
    }

    /// The folder of the newest set. lensfun compares the seconds in their `timestamp.txt`.
    fn newest(&self) -> Option<PathBuf> {
        let versions = |set: &PathBuf| {
            let below = std::fs::read_dir(set).into_iter().flatten().flatten().map(|entry| entry.path());
            let version = |path: &PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("version_"))
            };
            let mut found: Vec<PathBuf> = below.filter(version).take(MOST_FILES).collect();
            found.sort();
            found.push(set.clone());
            found
        };
        let stamp = |folder: &PathBuf| {
            let text = files::read_text(&folder.join("timestamp.txt"), 100).unwrap_or_default();
            text.trim().parse::<f64>().unwrap_or(0.0)
        };
        let found = self.sets.iter().flat_map(versions).filter(|folder| !profiles(folder).is_empty());
        // The first of several that are as new.
        found
            .map(|folder| (stamp(&folder), folder))
            .reduce(|a, b| if b.0 > a.0 { b } else { a })
            .map(|it| it.1)
    }
}

/// The profiles in a folder.
fn profiles(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "xml")).take(MOST_FILES).collect();
    files.sort();
    files
}

impl Lensfun {
    /// Reads every profile. One that is damaged is left out, as lensfun does.
    ///
    /// # Errors
    /// [`LensfunError`] where there is no profile at all.
    pub fn read(places: &Places) -> Result<Self, LensfunError> {
        let mut known = Self::default();
        for folder in places.newest().iter().chain(&places.own) {
            for file in profiles(folder) {
                let read = files::read_text(&file, LARGEST_FILE).ok().and_then(|text| read(&text).ok());
                match read {
                    Some(more) => known.add(more),
                    None => known.damaged.push(file),
                }
            }
        }
        if known.lenses.is_empty() {
            let looked = places.sets.iter().chain(&places.own).cloned().collect();
            return Err(LensfunError::Empty { looked, damaged: known.damaged });
        }
        Ok(known)
    }

    fn add(&mut self, more: Self) {
        self.lenses.extend(more.lenses);
        self.cameras.extend(more.cameras);
        for (mount, others) in more.compatible {
            self.compatible.entry(mount).or_default().extend(others);
        }
    }

    /// The lens of this name, on the camera of that name. Without one, on a full-frame camera, or on one with the
    /// largest sensor for which there is a profile.
    ///
    /// # Errors
    /// [`LensfunError`] for a lens or camera that no profile is of.
    pub fn fit(&self, lens: &str, camera: Option<&str>) -> Result<Fitted, LensfunError> {
        let named = self.named("lens", lens, &self.lenses, |lens| [&lens.maker, &lens.model])?;
        let Some(camera) = camera else {
            let largest = named.iter().map(|lens| lens.crop).fold(f64::INFINITY, f64::min).max(1.0);
            let whole = Camera {
                maker: String::new(),
                model: format!("a camera of crop factor {largest}"),
                mount: String::new(),
                crop: largest,
            };
            return self.mount(&named, &whole);
        };
        let cameras = self.named("camera", camera, &self.cameras, |camera| [&camera.maker, &camera.model])?;
        // A name that several have: the one with the lens's mount.
        let fits = |camera: &&&Camera| named.iter().any(|lens| self.takes(&camera.mount, lens));
        match cameras.iter().find(fits).or(cameras.first()) {
            Some(camera) => self.mount(&named, camera),
            None => Err(self.unknown("camera", camera, Vec::new())),
        }
    }

    /// The profile for this camera, and the camera to name to lensfun.
    fn mount(&self, profiles: &[&Lens], camera: &Camera) -> Result<Fitted, LensfunError> {
        let refused = |reason: String| LensfunError::DoesNotFit {
            lens: profiles.first().map(|lens| lens.model.clone()).unwrap_or_default(),
            camera: camera.model.clone(),
            reason,
        };
        // The nearest among those that were made on a sensor at least as large.
        let large = profiles.iter().filter(|lens| lens.crop * SMALLER <= camera.crop);
        let Some(lens) = large.max_by(|a, b| a.crop.total_cmp(&b.crop)) else {
            let made = profiles.iter().map(|lens| lens.crop).fold(f64::INFINITY, f64::min);
            return Err(refused(format!(
                "its profile was made on a sensor of crop factor {made}, and says nothing of what lies beyond"
            )));
        };
        let found = |camera: &Camera| Fitted { lens: (*lens).clone(), camera: camera.clone() };
        if self.takes(&camera.mount, lens) {
            return Ok(found(camera));
        }
        // An adapter, of which lensfun knows nothing. It needs a camera for the size of the sensor only.
        let off = |other: &Camera| (other.crop / camera.crop).ln().abs();
        let generic = self.cameras.iter().filter(|other| other.mount == GENERIC && off(other) < ALIKE);
        match generic.min_by(|a, b| off(a).total_cmp(&off(b))) {
            None => Err(refused(format!(
                "it knows no camera of crop factor {} that takes every lens",
                camera.crop
            ))),
            Some(other) if self.takes(&other.mount, lens) => Ok(found(other)),
            Some(_) => Err(refused(format!(
                "the lens has the mount `{}`; name a camera that has it too, with --camera",
                lens.mounts.join("`, `")
            ))),
        }
    }

    fn takes(&self, mount: &str, lens: &Lens) -> bool {
        let compatible = self.compatible.get(mount);
        lens.mounts.iter().any(|own| own == mount || compatible.is_some_and(|them| them.contains(own)))
    }

    /// Everything of one name: the very name, or the only one that has all words.
    fn named<'a, T>(
        &self,
        kind: &'static str,
        name: &str,
        all: &'a [T],
        of: impl Fn(&T) -> [&String; 2],
    ) -> Result<Vec<&'a T>, LensfunError> {
        let whole = |item: &T| of(item).map(String::as_str).join(" ");
        let wanted = words(name);
        let matches = |exact: bool| -> Vec<&'a T> {
            let fits = |item: &&T| {
                let [_, model] = of(item);
                let all = words(&whole(item));
                match exact {
                    true => words(model) == wanted || all == wanted,
                    false => !wanted.is_empty() && wanted.iter().all(|word| all.contains(word)),
                }
            };
            all.iter().filter(fits).collect()
        };
        let mut found = matches(true);
        if found.is_empty() {
            found = matches(false);
        }
        let names: BTreeSet<&String> = found.iter().map(|item| of(item)[1]).collect();
        if names.len() > 1 {
            return Err(LensfunError::Ambiguous {
                kind: if kind == "lens" { "lenses" } else { "cameras" },
                name: name.to_owned(),
                count: names.len(),
                some: names.into_iter().take(LISTED).cloned().collect(),
            });
        }
        if found.is_empty() {
            let alike = |item: &T| {
                let likeness = alike(name, of(item)[1]).max(alike(name, &whole(item)));
                (likeness > 0.45).then(|| (likeness, of(item)[1].clone()))
            };
            let mut near: Vec<(f64, String)> = all.iter().filter_map(alike).collect();
            near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            near.dedup_by(|a, b| a.1 == b.1);
            let near = near.into_iter().take(SUGGESTED).map(|(_, name)| name).collect();
            return Err(self.unknown(kind, name, near));
        }
        Ok(found)
    }

    fn unknown(&self, kind: &'static str, name: &str, near: Vec<String>) -> LensfunError {
        LensfunError::Unknown { kind, name: name.to_owned(), near, damaged: self.damaged.clone() }
    }
}

/// Letters and digits in lower case, without what is between them.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let parts = lower.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// How much a name is like what was asked for, 0 to 1, by the pairs of neighbouring letters that both have: mostly which
/// share of those that were asked for, because few write the whole name, and a little which share of all (Dice).
fn alike(asked: &str, name: &str) -> f64 {
    let pairs = |text: &str| -> BTreeSet<(char, char)> {
        let letters: Vec<char> = words(text).concat().chars().collect();
        letters.iter().copied().zip(letters.iter().copied().skip(1)).collect()
    };
    let (asked, name) = (pairs(asked), pairs(name));
    let both = asked.intersection(&name).count() as f64;
    let share = |of: usize| both / of.max(1) as f64;
    0.7 * share(asked.len()) + 0.3 * share((asked.len() + name.len()).div_ceil(2))
}

/// What a profile says of one lens, camera or mount, as it is read.
#[derive(Default)]
struct Entry {
    maker: String,
    /// The name: the first, which is no translation.
    name: String,
    mounts: Vec<String>,
    compatible: BTreeSet<String>,
    crop: Option<f64>,
    focal: Option<(f64, f64)>,
    vignetting: bool,
}

impl Entry {
    /// Takes the text of an element.
    fn text(&mut self, element: &str, text: &str) {
        let text = text.trim();
        let first = |slot: &mut String| {
            if slot.is_empty() {
                text.clone_into(slot);
            }
        };
        match element {
            "maker" => first(&mut self.maker),
            "model" | "name" => first(&mut self.name),
            "mount" => self.mounts.push(text.to_owned()),
            "compat" => drop(self.compatible.insert(text.to_owned())),
            "cropfactor" => {
                self.crop = text.parse().ok().filter(|crop: &f64| *crop > 0.0 && crop.is_finite())
            }
            _ => {}
        }
    }

    /// Takes what an element says by its attributes.
    fn attributes(&mut self, element: &str, start: &BytesStart<'_>) {
        let number = |name: &str| {
            let value = start.try_get_attribute(name).ok().flatten()?;
            value.value.trim().parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite())
        };
        self.vignetting |= element == "vignetting";
        let range = match element {
            "focal" => number("value").map(|at| (at, at)).or_else(|| number("min").zip(number("max"))),
            // What was measured lies within.
            "distortion" | "tca" | "vignetting" => number("focal").map(|at| (at, at)),
            _ => None,
        };
        if let Some((from, to)) = range {
            let (low, high) = self.focal.unwrap_or((from, to));
            self.focal = Some((low.min(from), high.max(to)));
        }
    }
}

/// The focal lengths in a lens's name: `35mm`, `28-70 mm`.
fn focal_of(name: &str) -> Option<(f64, f64)> {
    let before = name.split("mm").next().filter(|before| before.len() < name.len())?.trim_end();
    let number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    let range = before.rsplit(|c: char| !number(c)).next()?;
    let mut parts = range.split('-').filter(|part| !part.is_empty()).map(str::parse::<f64>);
    let first = parts.next()?.ok()?;
    let last = parts.next().map_or(Some(first), Result::ok)?;
    (first > 0.0 && last >= first && parts.next().is_none()).then_some((first, last))
}

/// Reads a profile. What lensfun does not need is passed over; what is no XML is an error.
fn read(text: &str) -> Result<Lensfun, String> {
    let mut known = Lensfun::default();
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut open: Vec<String> = Vec::new();
    let mut entry = Entry::default();
    let mut written = String::new();
    let mut rooted = false;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => {
                if open.len() >= DEEPEST {
                    return Err("too many levels".into());
                }
                let name = start.name().as_ref().to_owned();
                match open.len() {
                    1 => entry = Entry::default(),
                    _ => entry.attributes(&name, &start),
                }
                written.clear();
                rooted = true;
                open.push(name);
            }
            Event::Empty(start) => entry.attributes(start.name().as_ref(), &start),
            Event::Text(part) => written.push_str(&part.xml10_content()),
            Event::CData(part) => written.push_str(&part.xml10_content()),
            Event::GeneralRef(reference) => {
                let char = reference.resolve_char_ref().map_err(|error| error.to_string())?;
                match char {
                    Some(char) => written.push(char),
                    None => {
                        written.push_str(resolve_predefined_entity(&reference.xml10_content()).unwrap_or(""))
                    }
                }
            }
            Event::End(_) => {
                let element = open.pop().unwrap_or_default();
                match open.len() {
                    1 => known.take(&element, std::mem::take(&mut entry)),
                    2 => entry.text(&element, &written),
                    _ => {}
                }
                written.clear();
            }
            Event::Eof if rooted && open.is_empty() => return Ok(known),
            Event::Eof => return Err("it ends before its last element does".into()),
            Event::DocType(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

impl Lensfun {
    fn take(&mut self, element: &str, entry: Entry) {
        let Entry { maker, name, mounts, compatible, crop, focal, vignetting } = entry;
        match (element, mounts.first(), crop) {
            _ if name.is_empty() => {}
            ("mount", ..) => self.compatible.entry(name).or_default().extend(compatible),
            ("camera", Some(mount), Some(crop)) => {
                let mount = mount.clone();
                self.cameras.push(Camera { maker, model: name, mount, crop });
            }
            ("lens", Some(_), Some(crop)) => {
                let focal = focal_of(&name).or(focal);
                self.lenses.push(Lens { maker, model: name, mounts, crop, focal, vignetting });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
