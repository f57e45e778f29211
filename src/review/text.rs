//! The review as text: narrow enough for a terminal, complete enough to decide by.

use crate::budget::usd;
use crate::review::model::{BranchReview, ReviewModel};
use crate::review::plain::{count, line, wrap};
use crate::session::listing::{Condition, Summary};
use crate::tools::Measured;
use crate::transcript::{Flag, JudgmentSource, Outcome};
use pixels::metrics::check::Verdict;

/// How a text is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether escape sequences for colour are wanted.
    pub color: bool,
    /// Columns.
    pub width: usize,
}

/// Colours by meaning.
#[derive(Clone, Copy)]
enum Tone {
    Strong,
    Good,
    Doubt,
    Bad,
    Faint,
}

impl Style {
    fn paint(self, tone: Tone, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Strong => "1",
            Tone::Good => "32",
            Tone::Doubt => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Lines of a review, wrapped under their labels.
struct Page {
    style: Style,
    text: String,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// `label: text`, wrapped, its further lines indented below the text.
    fn field(&mut self, indent: usize, label: &str, text: &str) {
        let head = format!("{}{label}: ", " ".repeat(indent));
        let hang = indent + 2;
        // The first line is shorter by its label, which is put in front of the text and taken off again.
        let width = self.style.width.saturating_sub(hang).max(20);
        let shown = format!("{label}: {text}");
        let mut lines = wrap(&shown, width).into_iter();
        let first = lines.next().unwrap_or_default();
        let rest_of_first = first.strip_prefix(&format!("{label}:")).unwrap_or(&first).trim_start();
        self.line(&format!("{}{rest_of_first}", self.style.paint(Tone::Faint, &head)));
        for further in lines {
            self.line(&format!("{}{further}", " ".repeat(hang)));
        }
    }
}

/// The whole review.
pub fn text(model: &ReviewModel, style: Style) -> String {
    let mut page = Page { style, text: String::new() };
    head(&mut page, model);
    for branch in &model.branches {
        page.blank();
        branch_text(&mut page, branch);
    }
    if !model.not_made.is_empty() {
        page.blank();
        let names: Vec<&str> = model.not_made.iter().map(|name| name.as_str()).collect();
        page.field(0, "Planned, not made", &names.join(", "));
    }
    foot(&mut page, model);
    page.text
}

fn head(page: &mut Page, model: &ReviewModel) {
    let short = model.session.rsplit('-').next().unwrap_or(&model.session);
    let title = format!(
        "Session {short} — {} — {} / {} / {}",
        model.photo,
        minutes(model.elapsed_ms),
        count(model.spent.iterations, "iteration"),
        count(model.spent.branches, "branch")
    );
    page.line(&page.style.paint(Tone::Strong, &title));
    page.line(&format!("Baseline: {} ({})", line(&model.baseline_ref), model.baseline.short()));
    if let Some(preview) = &model.baseline_preview {
        page.line(&format!("  Preview: {}", line(&preview.display().to_string())));
    }
    let by = format!("{} {}, prompt {}", line(&model.provider), line(&model.model), line(&model.prompt));
    page.line(&format!("By: {by}"));
    if let Some(other) = &model.went_on {
        let (tokens, cost) = (count(other.tokens, "token"), usd(other.cost_micro_usd));
        let what = format!("{} {} ({tokens}, {cost} USD): {}", other.provider, other.model, other.reason);
        page.field(0, "Went on with", &what);
    }
    if let Some(protocol) = &model.protocol {
        let (name, version) = (line(&protocol.name), protocol.version);
        page.line(&format!("Protocol: {name} (version {version}, {})", protocol.sha256.short()));
    }
    if let Some(referee) = &model.referee {
        page.line(&format!("Referee: {} {}", line(&referee.provider), line(&referee.model)));
    } else if model.protocol.is_some() {
        page.line("Referee: none");
    }
    let outcome = outcome(page.style, model);
    page.line(&format!("Outcome: {outcome}"));
    if let Some(question) = &model.question {
        page.field(0, "Question", question);
    }
    if !model.summary.is_empty() {
        page.field(0, "Summary", &model.summary);
    }
}

fn outcome(style: Style, model: &ReviewModel) -> String {
    let word = model.condition.word();
    let tone = match model.condition.outcome() {
        Some(Outcome::Completed) => Tone::Good,
        None | Some(Outcome::BudgetExhausted | Outcome::NeedsClarification | Outcome::Cancelled) => {
            Tone::Doubt
        }
        Some(_) => Tone::Bad,
    };
    let mut text = style.paint(tone, word);
    let reason = match (&model.condition, &model.cap) {
        (Condition::Interrupted, _) => {
            "it did not end properly: it was killed, or the machine went down".into()
        }
        (Condition::Running { pid }, _) => format!("process {pid}"),
        (_, Some(cap)) => cap.clone(),
        _ => model.reason.clone(),
    };
    if !reason.is_empty() {
        text.push_str(&format!(" ({})", line(&reason)));
    }
    text
}

fn branch_text(page: &mut Page, branch: &BranchReview) {
    let style = page.style;
    let gone = if branch.stands { "" } else { ", since moved or deleted" };
    let name = style.paint(Tone::Strong, branch.branch.as_str());
    page.line(&format!("{name} ({}{gone})", branch.commit.short()));
    if let Some(vector) = &branch.vector {
        let intensity = vector.intensity.as_ref().map(|i| format!(" ({i})")).unwrap_or_default();
        page.field(2, "Asked", &format!("{}{intensity}", vector.direction));
    }
    page.line(&format!("  {}", score(style, branch)));
    if !branch.judged_reasoning.is_empty() {
        page.field(2, "Reasoning", &branch.judged_reasoning);
    }
    for (name, answer) in &branch.criteria {
        page.field(2, &line(name), &line(answer));
    }
    if let Some(opinion) = &branch.second_opinion {
        let reason = line(&opinion.reason);
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        page.field(2, "Referee", &format!("{}{reason}", opinion.verdict));
    }
    let key_moves = match (branch.key_moves.is_empty(), branch.flags.contains(&Flag::Abandoned)) {
        (false, _) => branch.key_moves.join(", "),
        (true, true) => "(none — all attempts abandoned)".into(),
        (true, false) if branch.moves.is_empty() => "(none)".into(),
        (true, false) => branch.moves.join(", "),
    };
    page.field(2, "Key moves", &key_moves);
    if let Some(measured) = &branch.measured {
        page.line(&format!("  Measured: {}", measures(style, measured)));
        for warning in &measured.vector.warnings {
            page.field(4, "Warning", &warning_words(warning));
        }
    }
    if !branch.tried.is_empty() {
        page.field(2, "Tried", &branch.tried.join("; "));
    }
    if let Some(preview) = &branch.preview {
        let same = if branch.flags.contains(&Flag::IdenticalToBaseline) {
            " (identical to the baseline)"
        } else {
            ""
        };
        page.line(&format!("  Preview: {}{same}", line(&preview.display().to_string())));
    }
}

fn score(style: Style, branch: &BranchReview) -> String {
    let Some(score) = branch.judged_score else { return "Score: not judged".into() };
    let tone = match score {
        4.. => Tone::Good,
        3 => Tone::Doubt,
        _ => Tone::Bad,
    };
    let mut text = format!("Score: {}", style.paint(tone, &format!("{score}/5")));
    if branch.source == Some(JudgmentSource::EngineDefault) {
        text.push_str(&style.paint(Tone::Doubt, "  [not judged by the model]"));
    }
    if branch.source == Some(JudgmentSource::Protocol) {
        text.push_str(&style.paint(Tone::Doubt, "  [abandoned by the protocol]"));
    }
    for flag in &branch.flags {
        let tone = match flag {
            Flag::Strong => Tone::Good,
            Flag::Weak | Flag::ClaimsNotSupported | Flag::Disputed => Tone::Bad,
            Flag::IdenticalToBaseline | Flag::Abandoned | Flag::Unmeasured | Flag::Unrefereed => Tone::Doubt,
        };
        let words = flag_words(*flag);
        text.push_str(&style.paint(tone, &format!("  [{words}]")));
    }
    if !branch.comparable_to_baseline {
        text.push_str(&style.paint(Tone::Doubt, "  [not comparable to the baseline]"));
    }
    text
}

/// A remark on a branch in words.
pub fn flag_words(flag: Flag) -> &'static str {
    match flag {
        Flag::Weak => "weak",
        Flag::Strong => "strong",
        Flag::IdenticalToBaseline => "identical to the baseline",
        Flag::ClaimsNotSupported => "claims not supported by the measurements",
        Flag::Abandoned => "abandoned",
        Flag::Unmeasured => "not measured",
        Flag::Disputed => "disputed by the referee",
        Flag::Unrefereed => "no second opinion",
    }
}

/// A warning as a person reads it; the model's wording of it is part of the transcript.
pub(super) fn warning_words(warning: &str) -> String {
    warning.replace("nobody will see this edit: mean ΔE is", "no visible change: mean ΔE is")
}

fn measures(style: Style, measured: &Measured) -> String {
    let vector = measured.check();
    let place = if measured.there.is_some() { " where it changed" } else { "" };
    let steps = format!("{:+.1} steps{place}", vector.moved);
    let direction = match vector.direction {
        Verdict::Met => style.paint(Tone::Good, &format!("direction ✓ {steps}")),
        Verdict::Missed => style.paint(Tone::Bad, &format!("direction ✗ {steps}")),
        Verdict::NotApplicable => "direction not measurable".into(),
    };
    let leakage = vector.leakage.map(|l| format!(" · leakage {l:.1}")).unwrap_or_default();
    format!(
        "ΔE {:.1} (95 %: {:.1}) · {direction}{leakage} · clipping {:+.1} % high, {:+.1} % low",
        measured.delta_e_mean, measured.delta_e_p95, measured.clip_high_change, measured.clip_low_change
    )
}

fn foot(page: &mut Page, model: &ReviewModel) {
    page.blank();
    if !model.gaps.is_empty() {
        page.line("Missing moves:");
        for gap in &model.gaps {
            page.field(2, "·", gap);
        }
    }
    if !model.proposals.is_empty() {
        page.line("Open proposals:");
        for proposal in &model.proposals {
            page.field(2, &format!("{} ({})", proposal.id, proposal.target), &proposal.text);
        }
    }
    let used: Vec<String> = model.budget.iter().map(|cap| cap.words.clone()).collect();
    page.field(0, "Budget", &used.join(", "));
    if let Some(words) = model.money.words() {
        page.field(0, "Tokens", &words);
    }
    let time = format!("model {}, darktable {}", minutes(model.model_ms), minutes(model.render_ms));
    page.field(0, "Time", &time);
    if !model.next.is_empty() {
        page.blank();
        page.line("Next:");
        let wide = model.next.iter().map(|step| step.command.chars().count()).max().unwrap_or(0);
        for step in &model.next {
            let command = line(&step.command);
            if wide + step.why.len() + 8 <= page.style.width {
                page.line(&format!(
                    "  {command:wide$}  {}",
                    page.style.paint(Tone::Faint, &format!("# {}", step.why))
                ));
            } else {
                page.line(&format!("  {}", page.style.paint(Tone::Faint, &format!("# {}", step.why))));
                page.line(&format!("  {command}"));
            }
        }
    }
}

/// A session as one line of a list.
pub fn summary_line(summary: &Summary, style: Style) -> String {
    let id = summary.session.short();
    let word = format!("{:18}", summary.condition.word());
    let word = match summary.condition.outcome() {
        Some(Outcome::Completed) => style.paint(Tone::Good, &word),
        Some(Outcome::Interrupted) => style.paint(Tone::Bad, &word),
        _ => style.paint(Tone::Doubt, &word),
    };
    match (&summary.overview, &summary.condition) {
        (Some(told), _) => format!(
            "{id}  {word}  {:.0}  {}  {} / {} / {}, {} judged  {} {}",
            told.started,
            summary.photo,
            minutes(told.elapsed_ms),
            count(told.spent.iterations, "iteration"),
            count(told.branches, "branch"),
            told.judged,
            line(&told.provider),
            line(&told.model)
        ),
        (None, Condition::Damaged { line: Some(number), reason }) => {
            format!("{id}  {word}  {}  line {number}: {}", summary.photo, line(reason))
        }
        (None, Condition::Damaged { reason, .. }) => {
            format!("{id}  {word}  {}  {}", summary.photo, line(reason))
        }
        (None, _) => format!("{id}  {word}  {}", summary.photo),
    }
}

/// A session in a few lines: the line of a list, and what is left of its caps.
pub fn status_lines(summary: &Summary, style: Style) -> String {
    let mut text = format!("{}\n", summary_line(summary, style));
    let Some(told) = &summary.overview else { return text };
    let budget = &told.budget;
    let left = |name: &str| told.budget_remaining.get(name).copied();
    let rows = [
        ("time", left("time_seconds").map(|s| minutes(s * 1000)), minutes(budget.time_seconds * 1000)),
        ("iterations", left("iterations").map(|n| n.to_string()), budget.max_iterations.to_string()),
        ("branches", left("branches").map(|n| n.to_string()), budget.max_branches.to_string()),
        ("tokens", left("tokens").map(|n| n.to_string()), budget.max_tokens.unwrap_or_default().to_string()),
        (
            "cost",
            left("cost_micro_usd").map(usd),
            format!("{} USD", usd(budget.max_cost_micro_usd.unwrap_or_default())),
        ),
        (
            "renders",
            left("renders").map(|n| n.to_string()),
            budget.max_renders.unwrap_or_default().to_string(),
        ),
    ];
    let rows: Vec<String> =
        rows.into_iter().filter_map(|(name, left, of)| Some(format!("{name} {} of {of}", left?))).collect();
    text.push_str(&format!("  left: {}\n", rows.join(", ")));
    if let Some(branch) = &told.current_branch {
        text.push_str(&format!("  branch: {branch}\n"));
    }
    text.push_str(&format!("  last line: {} ago\n", minutes(told.last_line_ms_ago)));
    text
}

/// Milliseconds as `28 min`, or `45 s` below two minutes.
fn minutes(ms: u64) -> String {
    let seconds = (ms + 500) / 1000;
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}
