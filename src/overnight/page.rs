//! The report of a batch as one HTML page. Every text from elsewhere (a model, a plan, a file's name) goes through
//! [`text`].

use std::fmt::Write as _;
use std::path::Path;

use crate::overnight::report::{BatchReport, Row, figures, problem};
use crate::overnight::share::words;
use crate::review::html::{head, text, thumbnail};
use crate::review::{BranchReview, ReviewModel, flag_words};
use crate::transcript::JudgmentSource;
use pixels::metrics::check::Verdict;

/// Longest side of a picture in pixels.
const THUMBNAIL: u32 = 420;

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:90rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem 1rem .2rem 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.row{display:flex;gap:1rem;overflow-x:auto}figure{margin:0 0 1rem;min-width:16rem;max-width:27rem;overflow-wrap:anywhere}
figure img{display:block;border-radius:3px;max-width:100%}figcaption{font-size:14px}figcaption p{margin:.3rem 0}
.good{color:#27824a}.bad{color:#c0392b}.faint{opacity:.7}.brief{white-space:pre-wrap}
h2{border-top:1px solid;padding-top:1rem;margin-top:2.5rem}pre{overflow-x:auto;font-size:13px}";

/// The page.
pub(super) fn page(report: &BatchReport) -> String {
    let mut page = head(&format!("Batch {}", report.name), STYLE);
    let _ = writeln!(page, "<p>{}.<br>Took {}.</p>", text(&report.tally()), text(&report.took()));
    page.push_str(
        "<table><tr><th>photo</th><th>result</th><th class=n>branches</th><th class=n>best</th>\
         <th class=n>USD</th><th class=n>time</th><th></th></tr>\n",
    );
    for (number, row) in report.sessions.iter().enumerate() {
        let [branches, best, cost, time] = figures(row).map(|figure| text(&figure));
        let (class, why) = match row.status {
            0 => ("good", String::new()),
            _ => ("bad", text(&problem(row))),
        };
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#s{number}\">{}</a></td><td class={class}>{}</td><td class=n>{branches}</td>\
             <td class=n>{best}</td><td class=n>{cost}</td><td class=n>{time}</td><td>{why}</td></tr>",
            text(&row.photo),
            text(row.result)
        );
    }
    page.push_str("</table>\n");
    for (number, row) in report.sessions.iter().enumerate() {
        let _ = writeln!(page, "<h2 id=\"s{number}\">{}</h2>", text(&row.photo));
        session(&mut page, row);
    }
    let bad: Vec<&Row> = report.sessions.iter().filter(|row| row.status != 0).collect();
    if !bad.is_empty() {
        page.push_str("<h2>Problems</h2>\n<ul>\n");
        for row in bad {
            let _ = writeln!(page, "<li>{}: {}</li>", text(&row.photo), text(&problem(row)));
        }
        page.push_str("</ul>\n");
    }
    if let Some(command) = report.resume_command() {
        let _ = writeln!(page, "<p>To resume:</p>\n<pre>{}</pre>", text(&command));
    }
    let _ = writeln!(page, "<p class=faint>Plan: {}</p>", text(&report.plan.display().to_string()));
    page.push_str("</body></html>\n");
    page
}

fn session(page: &mut String, row: &Row) {
    if row.status != 0 {
        let _ = writeln!(page, "<p class=bad>{}: {}</p>", text(row.result), text(&problem(row)));
    }
    if let Some(cut_to) = &row.cut_to {
        let _ = writeln!(page, "<p>Budget reduced to what the batch had left: {}.</p>", text(&words(cut_to)));
    }
    let Some(review) = &row.review else { return };
    if !review.brief.trim().is_empty() {
        let _ = writeln!(page, "<p class=brief>{}</p>", text(review.brief.trim()));
    }
    if let Some(question) = &review.question {
        let _ = writeln!(page, "<p>Question: {}</p>", text(question));
    }
    if !review.summary.is_empty() {
        let _ = writeln!(page, "<p>{}</p>", text(&review.summary));
    }
    pictures(page, row, review);
    if !review.not_made.is_empty() {
        let names: Vec<&str> = review.not_made.iter().map(|name| name.as_str()).collect();
        let _ = writeln!(page, "<p>Planned, not made: {}.</p>", text(&names.join(", ")));
    }
    for gap in &review.gaps {
        let _ = writeln!(page, "<p>Missing move: {}</p>", text(gap));
    }
    for proposal in &review.proposals {
        let what = format!("Proposed for your {} ({}): {}", proposal.target, proposal.id, proposal.text);
        let _ = writeln!(page, "<p>{}</p>", text(&what));
    }
    let used: Vec<&str> = review.budget.iter().map(|cap| cap.words.as_str()).collect();
    let by = format!("{} {}; {}", review.provider, review.model, used.join(", "));
    let _ = writeln!(page, "<p class=faint>{}</p>\n<pre>", text(&by));
    for step in row.next() {
        let _ = writeln!(page, "{}   <span class=faint># {}</span>", text(&step.command), text(&step.why));
    }
    page.push_str("</pre>\n");
}

/// The baseline and the branches, side by side.
fn pictures(page: &mut String, row: &Row, review: &ReviewModel) {
    page.push_str("<div class=row>\n<figure>");
    image(page, review.baseline_preview.as_deref());
    let _ =
        writeln!(page, "<figcaption><b>before</b> ({})</figcaption></figure>", text(&review.baseline_ref));
    let best = row.best().map(|best| &best.branch);
    for branch in &review.branches {
        page.push_str("<figure>");
        image(page, branch.preview.as_deref());
        page.push_str("<figcaption>");
        caption(page, branch, best == Some(&branch.branch));
        page.push_str("</figcaption></figure>\n");
    }
    page.push_str("</div>\n");
}

fn image(page: &mut String, path: Option<&Path>) {
    match path.and_then(|path| thumbnail(path, THUMBNAIL)) {
        Some(uri) => _ = write!(page, "<img src=\"{uri}\" alt=\"\">"),
        None => page.push_str("<p class=faint>no picture</p>"),
    }
}

fn caption(page: &mut String, branch: &BranchReview, best: bool) {
    let score = branch.judged_score.map_or_else(|| "not judged".to_owned(), |score| format!("{score}/5"));
    let mut remarks: Vec<&str> = branch.flags.iter().map(|flag| flag_words(*flag)).collect();
    match branch.source {
        Some(JudgmentSource::EngineDefault) => remarks.insert(0, "not judged by the model"),
        Some(JudgmentSource::Protocol) => remarks.insert(0, "abandoned by the protocol"),
        Some(JudgmentSource::Agent) | None => {}
    }
    if !branch.comparable_to_baseline {
        remarks.push("not comparable to the baseline");
    }
    if !branch.stands {
        remarks.push("since moved or deleted");
    }
    if best {
        remarks.insert(0, "best candidate");
    }
    let _ = write!(page, "<b>{}</b> {}", text(branch.branch.as_str()), text(&score));
    if !remarks.is_empty() {
        let _ = write!(page, " <span class=faint>{}</span>", text(&remarks.join(", ")));
    }
    if let Some(vector) = &branch.vector {
        let intensity = vector.intensity.as_ref().map(|i| format!(" ({i})")).unwrap_or_default();
        let _ = write!(page, "<p>Asked: {}{}</p>", text(&vector.direction), text(&intensity));
    }
    if !branch.judged_reasoning.is_empty() {
        let _ = write!(page, "<p>{}</p>", text(&branch.judged_reasoning));
    }
    let moves = if branch.key_moves.is_empty() { &branch.moves } else { &branch.key_moves };
    if !moves.is_empty() {
        let _ = write!(page, "<p class=faint>{}</p>", text(&moves.join(", ")));
    }
    if let Some(measured) = &branch.measured {
        let mut measures = format!("ΔE {:.1}", measured.delta_e_mean);
        if measured.direction() != Verdict::NotApplicable {
            let _ = write!(measures, ", {:+.1} steps in the asked direction", measured.check().moved);
        }
        let _ = write!(page, "<p class=faint>{}</p>", text(&measures));
    }
}
