//! Gaps: moves that were missing, written down so that the vocabulary can grow where it hurts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::oplog::time;
use crate::photo::workspace::Workspace;
use crate::photo::writer::Writer;
use base::ids::{Hash, PhotoId, SessionId};

/// Its file in a photo's folder.
pub(super) const FILE: &str = "vocabulary_gaps.jsonl";

/// The longest text of a field, in characters.
const TEXT_LIMIT: usize = 2000;

/// The longest list of a field.
const LIST_LIMIT: usize = 64;

/// What is reported about a missing move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapReport {
    /// What could not be done. Never empty.
    pub description: String,
    /// What was done instead.
    #[serde(default)]
    pub workaround: String,
    /// What it was for.
    #[serde(default)]
    pub intent: Option<String>,
    /// `tone`, `wb`, `color`, `detail`, `local`, `composition`, or another word.
    #[serde(default = "uncategorized")]
    pub intent_category: String,
    /// The capability that would have done it, in a few words.
    #[serde(default)]
    pub missing_capability: Option<String>,
    /// darktable modules that come into it.
    #[serde(default)]
    pub operations_involved: Vec<String>,
    /// Moves that were tried.
    #[serde(default)]
    pub vocabulary_used: Vec<String>,
    /// How well the workaround did: −1 badly, 0 so-so, 1 well.
    #[serde(default)]
    pub satisfaction: Option<i8>,
    /// Anything else.
    #[serde(default)]
    pub notes: String,
}

fn uncategorized() -> String {
    "uncategorized".into()
}

/// A gap as the file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// When (UTC).
    #[serde(with = "time")]
    pub t: jiff::Timestamp,
    /// On which photo.
    pub photo: PhotoId,
    /// In which session; `None` for a person.
    pub session: Option<SessionId>,
    /// The tool call that reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// The commit at hand.
    pub snapshot: Option<Hash>,
    /// What was reported.
    #[serde(flatten)]
    pub report: GapReport,
}

/// Gaps that ask for the same thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedGap {
    /// The missing capability, or the description where none was named, as first reported.
    pub wanted: String,
    /// How often.
    pub count: usize,
    /// On how many photos.
    pub photos: usize,
    /// The mean satisfaction with the workarounds that were rated.
    pub satisfaction: Option<f64>,
    /// The latest description.
    pub example: String,
}

impl Workspace {
    /// The last `limit` gaps, newest first.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn gaps(&self, limit: usize) -> Result<Vec<Gap>, PhotoError> {
        let mut gaps: Vec<Gap> = jsonl::tail(&self.folder().join(FILE), limit)?;
        gaps.reverse();
        Ok(gaps)
    }
}

impl Writer {
    /// Writes a gap down. A correction is a new one. Repeating a call that a crash cut leaves one.
    ///
    /// # Errors
    /// [`PhotoError::Lease`] without a live lease, [`PhotoError::Invalid`] for a report without sense.
    pub fn log_gap(&mut self, report: GapReport, snapshot: Option<&Hash>) -> Result<Gap, PhotoError> {
        self.check_lease()?;
        check(&report)?;
        let path = self.workspace().folder().join(FILE);
        let gap = Gap {
            t: self.now(),
            photo: self.workspace().id().clone(),
            session: self.session().cloned(),
            call: self.call(),
            snapshot: snapshot.cloned(),
            report,
        };
        let recent: Vec<Gap> = jsonl::tail(&path, 8)?;
        let same = |old: &Gap| old.session == gap.session && old.call == gap.call && old.report == gap.report;
        match recent.into_iter().find(|old| gap.call.is_some() && same(old)) {
            Some(old) => Ok(old),
            None => jsonl::append(&path, &gap).map(|()| gap),
        }
    }
}

/// Counts gaps that ask for the same thing (missing capability, else description; case and spacing aside):
/// the most frequent first, the least satisfying first among equals.
pub fn rank(gaps: &[Gap]) -> Vec<RankedGap> {
    let mut groups: BTreeMap<String, Vec<&Gap>> = BTreeMap::new();
    for gap in gaps {
        let key = wanted(gap).split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        groups.entry(key).or_default().push(gap);
    }
    let mut ranked: Vec<RankedGap> = groups
        .into_values()
        .filter_map(|group| {
            let (first, latest) = (group.first()?, group.iter().max_by_key(|g| g.t)?);
            let rated: Vec<f64> = group.iter().filter_map(|g| g.report.satisfaction).map(f64::from).collect();
            let mut photos: Vec<&PhotoId> = group.iter().map(|g| &g.photo).collect();
            photos.sort();
            photos.dedup();
            Some(RankedGap {
                wanted: wanted(first).trim().to_owned(),
                count: group.len(),
                photos: photos.len(),
                #[allow(clippy::cast_precision_loss)] // A count of lines.
                satisfaction: (!rated.is_empty()).then(|| rated.iter().sum::<f64>() / rated.len() as f64),
                example: latest.report.description.clone(),
            })
        })
        .collect();
    let unsatisfied = |gap: &RankedGap| gap.satisfaction.unwrap_or(0.0);
    ranked.sort_by(|a, b| b.count.cmp(&a.count).then(unsatisfied(a).total_cmp(&unsatisfied(b))));
    ranked
}

fn wanted(gap: &Gap) -> &str {
    gap.report
        .missing_capability
        .as_deref()
        .filter(|c| !c.trim().is_empty())
        .unwrap_or(&gap.report.description)
}

fn check(report: &GapReport) -> Result<(), PhotoError> {
    let invalid = |message: String| Err(PhotoError::Invalid(message));
    if report.description.trim().is_empty() {
        return invalid("a gap needs a description: what could not be done".into());
    }
    if report.satisfaction.is_some_and(|s| !(-1..=1).contains(&s)) {
        return invalid("satisfaction is -1, 0 or 1".into());
    }
    let lists = [&report.operations_involved, &report.vocabulary_used];
    let texts = [&report.description, &report.workaround, &report.intent_category, &report.notes];
    let long = texts
        .into_iter()
        .chain(&report.intent)
        .chain(&report.missing_capability)
        .chain(lists.into_iter().flatten())
        .any(|text| text.chars().count() > TEXT_LIMIT);
    if long || lists.iter().any(|list| list.len() > LIST_LIMIT) {
        return invalid(format!(
            "a text of a gap has at most {TEXT_LIMIT} characters, a list {LIST_LIMIT} entries"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photo::testing::TestPhoto;
    use base::error::{Coded, ErrorCode};

    fn gap(capability: Option<&str>, description: &str, satisfaction: Option<i8>) -> GapReport {
        GapReport {
            description: description.into(),
            missing_capability: capability.map(str::to_owned),
            satisfaction,
            ..GapReport::default()
        }
    }

    #[test]
    fn a_gap_reads_back_and_a_repeated_call_leaves_one() {
        let photo = TestPhoto::new();
        let (mut writer, _) = photo.session();
        writer.set_call(Some(3));
        let at = photo.workspace.baseline().clone();
        let report = gap(Some("tone curve"), "no S-curve", Some(-1));
        let first = writer.log_gap(report.clone(), Some(&at)).unwrap();
        assert_eq!(writer.log_gap(report.clone(), Some(&at)).unwrap().call, Some(3));
        writer.set_call(Some(4));
        writer.log_gap(report, Some(&at)).unwrap();
        let gaps = photo.workspace.gaps(10).unwrap();
        assert_eq!(gaps.len(), 2);
        assert_eq!(
            (&gaps[1].report, &gaps[1].session, &gaps[1].snapshot),
            (&first.report, &first.session, &Some(at))
        );
        assert_eq!(photo.workspace.gaps(1).unwrap()[0].call, Some(4));
        let line: serde_json::Value = serde_json::from_str(photo.read(FILE).lines().next().unwrap()).unwrap();
        assert_eq!(line["missing_capability"], "tone curve");
    }

    #[test]
    fn a_gap_without_sense_is_refused() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let long = "x".repeat(TEXT_LIMIT + 1);
        for bad in [gap(None, " ", None), gap(None, "x", Some(2)), gap(None, &long, None)] {
            assert_eq!(writer.log_gap(bad, None).unwrap_err().code(), ErrorCode::InvalidInput);
        }
    }

    #[test]
    fn the_most_wanted_comes_first_and_the_worst_served_among_equals() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        for report in [
            gap(Some("dodge"), "a", Some(1)),
            gap(Some("Tone  Curve"), "b", Some(-1)),
            gap(None, "grain by zone", None),
            gap(Some("tone curve"), "c", Some(0)),
            gap(Some(" "), "Grain by zone", Some(-1)),
        ] {
            writer.log_gap(report, None).unwrap();
        }
        let mut gaps = photo.workspace.gaps(10).unwrap();
        gaps.reverse();
        let ranked = rank(&gaps);
        let order: Vec<_> = ranked.iter().map(|r| (r.wanted.as_str(), r.count, r.satisfaction)).collect();
        assert_eq!(
            order,
            [("grain by zone", 2, Some(-1.0)), ("Tone  Curve", 2, Some(-0.5)), ("dodge", 1, Some(1.0))]
        );
        assert_eq!((ranked[1].photos, ranked[1].example.as_str()), (1, "c"));
    }
}
