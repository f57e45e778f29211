//! What is known of a photo's file, where it was learnt, and correcting what an earlier build took for it.
//!
//! Format 1 of `photo.json` held what a reader of Exif data found. It knew nothing of many raws, and its stored width
//! and height were used as those of the picture on show: on a photo that is turned a quarter for display, shapes,
//! spots and straightening went by the wrong sides. Format 2 holds what darktable says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::ingest::kind_of;
use crate::photo::lock::Lock;
use crate::photo::objects::Kind;
use crate::photo::op::Operation;
use crate::photo::workspace::{FORMAT, PHOTO_FILE, Photo, Workspace};
use base::durable;
use base::ids::Hash;
use darktable::baseline::{FileFacts, Untouched};
use darktable::frame::{Orientation, StoredSize};
use darktable::state::{EditState, Params};

/// Sides that differ by less than this share differ by the margins of a sensor only.
const MARGINS: f64 = 0.02;

/// Exif data as format 1 of `photo.json` held them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct OldExif {
    make: Option<String>,
    model: Option<String>,
    lens: Option<String>,
    iso: Option<u32>,
    exposure_seconds: Option<f64>,
    aperture: Option<f64>,
    focal_mm: Option<f64>,
    captured: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
    #[serde(default)]
    orientation: u16,
}

impl OldExif {
    /// The same as facts; an unknown size is 0x0.
    pub(super) fn facts(self) -> FileFacts {
        let size = StoredSize { width: self.width.unwrap_or(0), height: self.height.unwrap_or(0) };
        FileFacts {
            size,
            orientation: if (1..=8).contains(&self.orientation) { self.orientation } else { 1 },
            maker: self.make,
            model: self.model,
            lens: self.lens,
            iso: self.iso,
            exposure_seconds: self.exposure_seconds,
            aperture: self.aperture,
            focal_mm: self.focal_mm,
            captured: self.captured,
            as_shot: None,
        }
    }
}

/// What an earlier build of this program took for the facts of a photo, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// When it was corrected.
    pub at: Timestamp,
    /// Columns and rows that shapes were placed by, as those of the picture on show; 0x0 if they were not known.
    pub placed_by: StoredSize,
    /// Commits whose shapes, spots or straightening were placed by them. They look as they always did, but not as
    /// they were meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misplaced: Vec<Hash>,
}

/// Where each of [`FileFacts`] comes from, in words.
pub(super) fn sources(darktable: &str, facts: &FileFacts) -> BTreeMap<String, String> {
    let image = format!("darktable {darktable}, its image object");
    let seen = format!("darktable {darktable}, a test render");
    let history = format!("darktable {darktable}, its default edit");
    let mut sources = BTreeMap::from([
        ("width".to_owned(), image.clone()),
        ("height".to_owned(), image.clone()),
        ("orientation".to_owned(), seen),
    ]);
    let mut told = |name: &str, known: bool, source: &str| {
        if known {
            sources.insert(name.to_owned(), source.to_owned());
        }
    };
    told("maker", facts.maker.is_some(), &image);
    told("model", facts.model.is_some(), &image);
    told("lens", facts.lens.is_some(), &image);
    told("iso", facts.iso.is_some(), &image);
    told("exposure_seconds", facts.exposure_seconds.is_some(), &image);
    told("aperture", facts.aperture.is_some(), &image);
    told("focal_mm", facts.focal_mm.is_some(), &image);
    told("captured", facts.captured.is_some(), &image);
    told("as_shot", facts.as_shot.is_some(), &history);
    sources
}

impl Workspace {
    /// Whether the facts are those of an earlier build, which [`Self::correct_facts`] corrects.
    pub fn needs_facts(&self) -> bool {
        self.photo().format < FORMAT
    }

    /// Writes down what darktable says of the file in place of what an earlier build read from its Exif data, and
    /// lists the commits that were placed by the wrong sides. No commit, branch or tag changes.
    ///
    /// # Errors
    /// [`PhotoError::Busy`] while somebody else holds the photo, [`PhotoError::Io`] where it cannot be written.
    pub fn correct_facts(&self, told: &Untouched) -> Result<Self, PhotoError> {
        let _lock = Lock::take(self.folder(), "correcting its facts", Timestamp::now())?;
        let placed_by = self.photo().facts.size;
        let misplaced = if agree(placed_by, &told.facts) { Vec::new() } else { self.placed_by_facts()? };
        let photo = Photo {
            format: FORMAT,
            kind: kind_of(&self.raw().path),
            facts: told.facts.clone(),
            facts_from: sources(&told.darktable, &told.facts),
            corrected: Some(Correction { at: Timestamp::now(), placed_by, misplaced }),
            ..self.photo().clone()
        };
        let path = self.folder().join(PHOTO_FILE);
        durable::write(&path, photo.text()?.as_bytes()).map_err(PhotoError::io("write", &path))?;
        Ok(self.with_photo(photo))
    }

    /// The commits with geometry of our own making. What came from a sidecar was placed by darktable.
    fn placed_by_facts(&self) -> Result<Vec<Hash>, PhotoError> {
        let (hashes, _) = self.objects().list(Kind::Commit)?;
        let (mut imported, mut placed) = (Vec::new(), Vec::new());
        for hash in hashes {
            // A damaged commit is for `fsck` to report.
            let Ok(commit) = self.commit(&hash) else { continue };
            let Ok(state) = self.state(&commit.state) else { continue };
            match commit.op {
                Operation::ImportSidecar { .. } => imported.extend(geometry(&state)),
                _ => placed.push((hash, geometry(&state))),
            }
        }
        placed.retain(|(_, geometry)| geometry.iter().any(|one| !imported.contains(one)));
        Ok(placed.into_iter().map(|(hash, _)| hash).collect())
    }
}

/// What of an edit depends on the sides of the picture: forms, and the parameters of `ashift`.
fn geometry(state: &EditState) -> Vec<Params> {
    let forms = state.masks.iter().map(|form| Params::Opaque(format!("{:?} {:?}", form.shape, form.source)));
    let tilt = state.module("ashift", 0).filter(|module| module.enabled);
    forms.chain(tilt.map(|module| module.params.clone())).collect()
}

/// Whether the sides that an earlier build took for those of the picture on show are those.
fn agree(taken: StoredSize, facts: &FileFacts) -> bool {
    let stored = [f64::from(facts.size.width), f64::from(facts.size.height)];
    let shown = Orientation::from_exif(facts.orientation.into()).turned(stored);
    let close = |taken: u32, is: f64| (f64::from(taken) - is).abs() <= MARGINS * is;
    close(taken.width, shown[0]) && close(taken.height, shown[1])
}
