//! A person's picks: saved by a page as `picks.json`, imported into the photos' folders, and held against the scores.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::review::count;
use crate::session::listing;
use crate::transcript::SessionStart;
use base::durable;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::{Hash, PhotoId, RefName, SessionId};
use engine::photo::{Library, Workspace};

/// The version of the file.
const FORMAT: u32 = 1;
/// What the file says that it is.
const KIND: &str = "chemigram picks";
/// The file in a photo's folder: a line a pick, the last one of a commit holds.
pub const FILE: &str = "picks.jsonl";

/// What a page saves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PicksFile {
    format: u32,
    kind: String,
    /// The photos with at least one pick.
    pub photos: Vec<PhotoPicks>,
}

/// The picks of one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhotoPicks {
    /// The photo.
    pub photo: PhotoId,
    /// The session.
    pub session: SessionId,
    /// The commit that the branches were held against.
    pub baseline: Hash,
    /// The picks.
    pub picks: Vec<Pick>,
}

/// What a person said of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// The branch.
    pub branch: RefName,
    /// Its commit.
    pub commit: Hash,
    /// Picked or rejected.
    pub verdict: Option<Verdict>,
    /// 1 to 5.
    pub stars: Option<u8>,
    /// In the person's words.
    #[serde(default)]
    pub note: String,
    /// Whether names and scores were hidden.
    #[serde(default)]
    pub blind: bool,
}

/// Picked or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Picked.
    Pick,
    /// Rejected.
    Reject,
}

/// A pick in a photo's folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// When it was imported.
    pub t: jiff::Timestamp,
    /// The session.
    pub session: SessionId,
    /// The pick.
    #[serde(flatten)]
    pub pick: Pick,
}

impl Pick {
    /// Higher is better: rejected, nothing, picked; stars decide among equals.
    pub(super) fn rank(&self) -> (i8, u8) {
        let verdict = match self.verdict {
            Some(Verdict::Pick) => 1,
            None => 0,
            Some(Verdict::Reject) => -1,
        };
        (verdict, self.stars.unwrap_or(0))
    }
}

/// Reads a file that a page saved.
///
/// # Errors
/// `INVALID_INPUT` with the place at fault.
pub fn read(path: &Path) -> Result<PicksFile, Fault> {
    let bad = |why: String| {
        Fault::new(ErrorCode::InvalidInput, format!("{} is not a file of picks: {why}", path.display()))
            .with("remedy", "use the file that `Save picks` of a review page wrote")
    };
    let text = files::read_text(path, files::LARGEST_LIST).map_err(|e| {
        let code = if e.kind() == std::io::ErrorKind::NotFound {
            ErrorCode::NotFound
        } else {
            ErrorCode::InvalidInput
        };
        Fault::new(code, format!("cannot read {}: {e}", path.display()))
    })?;
    let file: PicksFile = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    if file.kind != KIND || file.format != FORMAT {
        return Err(bad(format!("kind `{}`, format {}", file.kind, file.format)));
    }
    let all = || file.photos.iter().flat_map(|photo| &photo.picks);
    if let Some(pick) = all().find(|pick| pick.stars.is_some_and(|stars| !(1..=5).contains(&stars))) {
        return Err(bad(format!("{} has a number of stars that is not 1 to 5", pick.branch)));
    }
    Ok(file)
}

/// The picks in a photo's folder, the last one of each commit.
///
/// # Errors
/// `VERSIONING_ERROR` with the line at fault.
pub fn of_photo(workspace: &Workspace) -> Result<Vec<Kept>, Fault> {
    let path = workspace.folder().join(FILE);
    let text = match files::read_text(&path, files::LARGEST_LIST) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read
            .map_err(|e| Fault::new(ErrorCode::StateError, format!("cannot read {}: {e}", path.display())))?,
    };
    let mut kept: BTreeMap<(String, Hash), Kept> = BTreeMap::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_str::<Kept>(line) {
            Ok(one) => drop(kept.insert((one.session.to_string(), one.pick.commit.clone()), one)),
            // A crash tears the line that it is writing.
            Err(e) if e.is_eof() => {}
            Err(e) => {
                let message = format!("{} line {}: {e}", path.display(), number + 1);
                return Err(Fault::new(ErrorCode::VersioningError, message)
                    .with("remedy", "correct or delete the line"));
            }
        }
    }
    Ok(kept.into_values().collect())
}

/// Imports one session's picks into its photo's folder and returns how many are new. Importing a file again changes
/// nothing. The caller holds the photo's lock.
///
/// # Errors
/// A commit that the photo does not have, or a file that cannot be written.
pub fn import(workspace: &Workspace, picks: &PhotoPicks, now: jiff::Timestamp) -> Result<usize, Fault> {
    let known = of_photo(workspace)?;
    for pick in &picks.picks {
        workspace.commit(&pick.commit).map_err(|e| Fault::from(&e))?;
    }
    let mut new = 0;
    for pick in &picks.picks {
        if known.iter().any(|one| one.session == picks.session && one.pick == *pick) {
            continue;
        }
        let kept = Kept { t: now, session: picks.session.clone(), pick: pick.clone() };
        let line = serde_json::to_string(&kept).unwrap_or_default();
        let path = workspace.folder().join(FILE);
        durable::append_line(&path, &line).map_err(|e| {
            Fault::new(ErrorCode::StateError, format!("cannot write {}: {e}", path.display()))
        })?;
        new += 1;
    }
    Ok(new)
}

/// How often scores and a person prefer the same branch of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Pairs of which the person prefers one.
    pub pairs: usize,
    /// Of these, the score prefers the same.
    pub same: usize,
    /// Of these, the score prefers the other.
    pub other: usize,
}

impl Agreement {
    /// Adds the pairs of one session: what a person said, and the score.
    pub fn add(&mut self, session: &[(&Pick, u8)]) {
        for (at, (one, score)) in session.iter().enumerate() {
            for (other, other_score) in session.iter().skip(at + 1) {
                let (person, scores) = (one.rank().cmp(&other.rank()), score.cmp(other_score));
                if person.is_eq() {
                    continue;
                }
                self.pairs += 1;
                self.same += usize::from(person == scores);
                self.other += usize::from(person == scores.reverse() && scores.is_ne());
            }
        }
    }
}

impl Agreement {
    /// Adds the pairs of the sessions of a photo that are wanted. A session that cannot be read has none.
    pub fn add_photo(&mut self, photo: &Workspace, kept: &[Kept], wanted: impl Fn(&SessionStart) -> bool) {
        let sessions: BTreeSet<&str> = kept.iter().map(|one| one.session.as_str()).collect();
        for id in sessions {
            let of_session: Vec<&Kept> = kept.iter().filter(|one| one.session.as_str() == id).collect();
            let Some(session) = of_session.first().and_then(|one| listing::read(photo, &one.session).ok())
            else {
                continue;
            };
            if !wanted(&session.state.start) {
                continue;
            }
            // A branch that nobody marked was passed over.
            let judged = session.state.branches.iter().filter_map(|branch| branch.judgment.as_ref());
            let said = judged.map(|judgment| {
                let mark = of_session.iter().find(|one| one.pick.commit == judgment.hash);
                let unmarked = || Pick {
                    branch: judgment.branch.clone(),
                    commit: judgment.hash.clone(),
                    verdict: None,
                    stars: None,
                    note: String::new(),
                    blind: false,
                };
                (mark.map_or_else(unmarked, |one| one.pick.clone()), judgment.judged_score)
            });
            let said: Vec<(Pick, u8)> = said.collect();
            let scores: Vec<(&Pick, u8)> = said.iter().map(|(pick, score)| (pick, *score)).collect();
            self.add(&scores);
        }
    }

    /// In a sentence; `None` where the person prefers nothing.
    pub fn words(&self) -> Option<String> {
        let Self { pairs, same, other } = *self;
        let tied = pairs.saturating_sub(same + other);
        let of = count(pairs as u64, "pair");
        (pairs > 0).then(|| {
            format!(
                "Of {of} of branches in which you prefer one, the scores prefer the same in {same}, the other in {other}, neither in {tied}."
            )
        })
    }
}

/// The photos of a library with picks, each with them.
///
/// # Errors
/// As [`of_photo`].
pub fn of_library(library: &Library) -> Result<Vec<(Workspace, Vec<Kept>)>, Fault> {
    let mut found = Vec::new();
    for id in library.photos().map_err(|e| Fault::from(&e))? {
        let Ok(workspace) = library.open(&id) else { continue };
        let kept = of_photo(&workspace)?;
        if !kept.is_empty() {
            found.push((workspace, kept));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(verdict: Option<Verdict>, stars: Option<u8>) -> Pick {
        let commit = Hash::of("x");
        Pick { branch: "b".parse().unwrap(), commit, verdict, stars, note: String::new(), blind: false }
    }

    #[test]
    fn a_pair_counts_where_the_person_prefers_one() {
        let (yes, no) = (pick(Some(Verdict::Pick), None), pick(Some(Verdict::Reject), Some(5)));
        let mut agreement = Agreement::default();
        agreement.add(&[(&yes, 4), (&no, 2), (&no, 4)]);
        // Picked against both rejected ones; these two are alike.
        assert_eq!(agreement, Agreement { pairs: 2, same: 1, other: 0 });
        agreement.add(&[(&pick(None, Some(1)), 5), (&pick(None, Some(4)), 3)]);
        assert_eq!(agreement, Agreement { pairs: 3, same: 1, other: 1 });
    }

    #[test]
    fn a_file_that_is_no_picks_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("picks.json");
        for text in ["", "{}", r#"{"format":2,"kind":"chemigram picks","photos":[]}"#] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap_err().code, ErrorCode::InvalidInput, "{text}");
        }
        std::fs::write(&path, r#"{"format":1,"kind":"chemigram picks","photos":[]}"#).unwrap();
        assert!(read(&path).unwrap().photos.is_empty());
    }
}
