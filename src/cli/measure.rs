//! `measure`: the colours of places on a picture, beside the baseline's.

use clap::Args;
use serde_json::{Map, Value, json};

use super::args::point;
use super::edit::{MEASURED_EDGE, mask_spec};
use super::failure::Failure;
use super::setup::{App, interactive_deadline, text};
use super::sought;
use crate::tools::measure::{Place, Plan, number};
use base::ids::PhotoId;
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use pixels::metrics::region::RegionStats;

pub(super) const MEASURE_EXAMPLES: &str = "\
Examples:
  chemigram measure iguana --point 0.42,0.6 --point 0.7,0.3
  chemigram measure iguana --at branch_b_tone --mask '{\"named\":\"sky\"}'

L*, a*, b* and C* are CIELAB means; a point is a disc with a radius of 1 % of the picture's shorter side. Masks are \
drawn on the baseline, so that both rows are of the same pixels.";

#[derive(Args, Debug)]
pub struct MeasureArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The edit to measure
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub at: String,
    /// A mask: JSON, or @FILE; repeatable, up to 8
    #[arg(long, value_name = "JSON|@FILE", required_unless_present = "points")]
    pub mask: Vec<String>,
    /// A point, as fractions (0 to 1) of the picture's width and height; repeatable, up to 16
    #[arg(long = "point", value_name = "X,Y", value_parser = point)]
    pub points: Vec<[f64; 2]>,
}

/// Measures, and prints a table.
pub fn measure(app: &App, args: &MeasureArgs) -> Result<(), Failure> {
    let masks = args.mask.iter().map(|mask| mask_spec(&text(mask)?)).collect::<Result<Vec<_>, Failure>>()?;
    let workspace = app.photo(&args.photo)?;
    let commit = workspace.resolve(&args.at)?;
    let (state, facts) = (workspace.state_of(&commit)?, workspace.facts(&commit)?);
    let baseline = workspace.state_of(workspace.baseline())?;
    let (vocabulary, layouts) = (app.vocabulary()?, app.layouts());
    let found = |mask| sought::find(app, &workspace, &state, &facts, mask);
    let masks = masks.into_iter().map(found).collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::new((&masks, &args.points), (&state, &baseline), &vocabulary, &facts, &layouts)?;
    let (renderer, raw) = (app.steady_renderer()?, workspace.raw());
    let look = |state| {
        let request = RenderRequest { raw: &raw, state, long_edge: MEASURED_EDGE, quality: Quality::Preview };
        renderer.render(&request, &interactive_deadline(), &ByHand).map(|rendered| rendered.picture)
    };
    let pictures = plan.states().into_iter().map(look).collect::<Result<Vec<_>, _>>()?;
    let pictures: Vec<&Picture> = pictures.iter().map(|picture| &**picture).collect();
    let places = plan.read(&pictures)?;
    let result = json!({
        "commit": commit,
        "compared": plan.compared(),
        "places": places.iter().map(to_json).collect::<Vec<_>>(),
    });
    app.output.result(&result, || table(&places, plan.compared()))
}

/// The difference of two figures, rounded as they are.
fn difference(now: &RegionStats, baseline: &RegionStats) -> Map<String, Value> {
    let values = |stats: &RegionStats| match json!(stats) {
        Value::Object(values) => values,
        _ => Map::new(),
    };
    let baseline = values(baseline);
    let changed = values(now).into_iter().filter_map(|(name, now)| {
        let change = now.as_f64()? - baseline.get(&name)?.as_f64()?;
        // Across the full circle the hue goes the shorter way.
        let change = if name == "hue" { (change + 540.0).rem_euclid(360.0) - 180.0 } else { change };
        Some((name, json!((change * 1e3).round() / 1e3 + 0.0)))
    });
    changed.filter(|(name, _)| name != "covered_pct").collect()
}

fn to_json(place: &Place) -> Value {
    let both = place.now.as_ref().zip(place.baseline.as_ref());
    json!({
        "place": place.name,
        "kind": place.kind,
        "now": place.now,
        "baseline": place.baseline,
        "difference": both.map(|(now, baseline)| difference(now, baseline)),
        "delta_e_mean": place.delta_e.map(|delta_e| (delta_e * 1e3).round() / 1e3),
    })
}

/// A row of the table: its name and eight columns, 78 characters in all.
fn row(name: &str, cells: [String; 8]) -> String {
    let [covered, l, a, b, chroma, hue, range, clipped] = cells;
    let text =
        format!("  {name:<10}{covered:>9}{l:>7}{a:>7}{b:>7}{chroma:>7}{hue:>6}{range:>9}{clipped:>14}",);
    format!("{}\n", text.trim_end())
}

fn table(places: &[Place], compared: &str) -> String {
    let heads = ["covered", "L*", "a*", "b*", "C*", "hue", "L* 5–95", "clipped % l/h"];
    let mut text = row("", heads.map(str::to_owned));
    for place in places {
        text += &format!("{}\n", place.name);
        let Some(now) = &place.now else {
            text += "  covers nothing\n";
            continue;
        };
        let cells = |stats: &RegionStats, covered: String| {
            [
                covered,
                number(stats.l, 1),
                number(stats.a, 1),
                number(stats.b, 1),
                number(stats.chroma, 1),
                stats.hue.map(|hue| format!("{}°", number(hue, 0))).unwrap_or_default(),
                format!("{}–{}", number(stats.p5, 0), number(stats.p95, 0)),
                format!("{}/{}", number(stats.clip_low_pct, 1), number(stats.clip_high_pct, 1)),
            ]
        };
        let covered = match place.kind {
            "mask" => format!("{} %", number(now.covered_pct, 1)),
            _ => String::new(),
        };
        text += &row("now", cells(now, covered));
        let Some(baseline) = &place.baseline else { continue };
        text += &row("baseline", cells(baseline, String::new()));
        let signed = |change: f64| match number(change, 1) {
            text if change > 0.0 && text != "0.0" => format!("+{text}"),
            text => text,
        };
        let delta_e = place.delta_e.map(|delta_e| format!("ΔE {}", number(delta_e, 2)));
        let changes =
            [now.l - baseline.l, now.a - baseline.a, now.b - baseline.b, now.chroma - baseline.chroma];
        let [l, a, b, chroma] = changes.map(signed);
        let last = delta_e.unwrap_or_default();
        text += &row("difference", [String::new(), l, a, b, chroma, String::new(), String::new(), last]);
    }
    if compared.starts_with("with") {
        text += &format!("compared {compared}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_a_terminal_and_has_what_changed() {
        let stats = |code: u8| {
            let picture = Picture { width: 2, height: 1, rgb: vec![code, code, 255, code, code, 255] };
            RegionStats::of(&picture, [(0, 1.0), (1, 1.0)]).unwrap()
        };
        let place =
            |now, baseline| Place { name: "sky".into(), kind: "mask", now, baseline, delta_e: Some(3.0) };
        let all = [place(Some(stats(200)), Some(stats(0))), place(None, None)];
        let text = table(&all, "baseline→now");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[2][..4], ["now", "100.0", "%", "82.3"]);
        assert_eq!(rows[3][..2], ["baseline", "32.3"]);
        assert_eq!(rows[4][..2], ["difference", "+50.0"]);
        assert_eq!(rows[4][5..], ["ΔE", "3.00"]);
        assert!(text.ends_with("sky\n  covers nothing\n"), "{text}");
        let turned = difference(
            &RegionStats { hue: Some(10.0), ..stats(9) },
            &RegionStats { hue: Some(350.0), ..stats(9) },
        );
        assert_eq!((turned["hue"].as_f64(), turned["l"].as_f64()), (Some(20.0), Some(0.0)));
    }
}
