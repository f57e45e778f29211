//! The report of a batch as a page: a row of pictures for each photo.

use std::io;

use serde_json::json;

use crate::overnight::record::PlannedSession;
use crate::overnight::report::{BatchReport, Row, problem};
use crate::overnight::share::words;
use crate::review::page::{Gallery, render};
use crate::review::{Group, Remark};

/// The pictures of a batch's page, kept from one writing of it to the next: as many as its sessions may make, and one
/// before each.
pub fn gallery(sessions: &[PlannedSession]) -> Gallery {
    let most = |session: &PlannedSession| usize::try_from(session.budget.max_branches).unwrap_or(0);
    Gallery::of(sessions.iter().map(|session| most(session).saturating_add(1)).fold(0, usize::saturating_add))
}

/// The page.
pub(super) fn page(report: &BatchReport, gallery: &mut Gallery) -> io::Result<String> {
    let groups: Vec<Group> =
        report.sessions.iter().enumerate().map(|(number, row)| group(number, row, gallery)).collect();
    let mut outcomes: Vec<&str> = report.sessions.iter().map(|row| row.result).collect();
    outcomes.sort_unstable();
    outcomes.dedup();
    let mut facts =
        vec![report.tally(), format!("took {}", report.took()), format!("plan {}", report.plan.display())];
    facts.extend(report.money.words().map(|words| format!("tokens: {words}")));
    let context = json!({
        "facts": facts,
        "resume": report.resume_command(),
        "outcomes": outcomes,
        "groups": groups,
    });
    render("batch", &report.name, &format!("Batch {}", report.name), false, &context)
}

fn group(number: usize, row: &Row, gallery: &mut Gallery) -> Group {
    let mut group =
        row.review.as_ref().map_or_else(Group::default, |review| Group::of(review, gallery, false));
    group.id = format!("s{number}");
    group.photo.clone_from(&row.photo);
    group.tags = format!("{},{}", group.tags.split(',').next().unwrap_or_default(), row.result);
    group.next = row.next();
    if row.status != 0 {
        group.problem = format!("{}: {}", row.result, problem(row));
    }
    if group.facts.is_empty() {
        group.facts.push(Remark { text: row.result.into(), tone: "doubt" });
    }
    if let Some(cut_to) = &row.cut_to {
        group
            .facts
            .push(Remark::plain(format!("budget reduced to what the batch had left: {}", words(cut_to))));
    }
    group
}
