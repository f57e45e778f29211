//! How tools get pictures and their numbers: from the cache, begun ahead, or rendered under a permit.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::budget::Amounts;
use crate::gate::{Permit, Render};
use crate::tools::context::{RenderKey, ResolvedRef, ToolContext, millis};
use crate::transcript::{Event, RenderIntent};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, RefName};
use darktable::render::{Quality, RenderError, RenderRequest, Rendered, Renderer};
use darktable::state::EditState;
use pixels::metrics::axes::Axis;
use pixels::metrics::check::VectorCheck;
use pixels::metrics::difference::{Difference, changed};
use pixels::metrics::stats::ImageStats;

/// What is reserved for a picture that is asked for.
const ONE_RENDER: Amounts =
    Amounts { iterations: 0, branches: 0, renders: 1, model_calls: 0, tokens: 0, cost_micro_usd: 0 };

/// Why there is no picture.
#[derive(Debug)]
pub enum NoPicture {
    /// The gate refused, or nothing could be written down.
    Refused(Fault),
    /// The renderer failed.
    Failed(RenderError),
}

impl From<Fault> for NoPicture {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl From<NoPicture> for Fault {
    fn from(reason: NoPicture) -> Self {
        match reason {
            NoPicture::Refused(fault) => fault,
            NoPicture::Failed(error) => Self::from(&error),
        }
    }
}

impl ToolContext<'_> {
    /// The picture of a state, if it is there already and was asked for before.
    pub fn looked_at(&self, state: &EditState, long_edge: u32, quality: Quality) -> Option<Rendered> {
        // A picture that was begun ahead is not available until it is paid for.
        let unpaid = self.view.ahead.contains_key(&RenderKey::new(&state.hash(), long_edge, quality));
        let request = RenderRequest { raw: &self.engine.raw, state, long_edge, quality };
        (!unpaid).then(|| self.engine.renderer.cached(&request)).flatten()
    }

    /// The picture of a state: from the cache, or rendered under a permit.
    pub fn render(
        &mut self,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Rendered, NoPicture> {
        let rendered = self.render_all(&[state], long_edge, quality)?;
        let missing = || Fault::new(ErrorCode::StateError, "no picture came back");
        Ok(rendered.into_iter().next().ok_or_else(missing)?)
    }

    /// The pictures of several states, in order: those that are not in the cache are rendered under a permit
    /// each, as many at once as the session has renderers.
    pub fn render_all(
        &mut self,
        states: &[&EditState],
        long_edge: u32,
        quality: Quality,
    ) -> Result<Vec<Rendered>, NoPicture> {
        let key = |state: &EditState| RenderKey::new(&state.hash(), long_edge, quality);
        let mut pictures: Vec<Option<Rendered>> = Vec::new();
        let mut permits: Vec<(&EditState, Permit<Render>)> = Vec::new();
        for state in states {
            let found = self.looked_at(state, long_edge, quality);
            match &found {
                Some(found) => self.record_render(None, key(state), Ok(found), found.elapsed)?,
                // The same picture twice is rendered once.
                None if states.iter().take(pictures.len()).any(|earlier| earlier == state) => {}
                None => match self.admit(state, long_edge, quality) {
                    Ok(permit) => permits.push((*state, permit)),
                    Err(fault) => {
                        for (state, permit) in permits {
                            let why = "not begun: there was no room for the others";
                            self.not_rendered(permit.seq(), key(state), why)?;
                        }
                        return Err(fault.into());
                    }
                },
            }
            pictures.push(found);
        }
        let mut fresh = HashMap::new();
        if !permits.is_empty() {
            (self.on_render)(quality.as_str());
            let started = self.gate.elapsed();
            let wanted: Vec<(&EditState, u64)> =
                permits.iter().map(|(state, permit)| (*state, permit.seq())).collect();
            let results = self.develop(permits, long_edge, quality);
            let took = self.gate.elapsed().saturating_sub(started);
            self.note_repairs()?;
            let mut failed = None;
            for (at, ((state, seq), result)) in wanted.into_iter().zip(results).enumerate() {
                // Rendered side by side, they are waited for once.
                let waited = if at == 0 { took } else { Duration::ZERO };
                self.record_render(Some(seq), key(state), result.as_ref(), waited)?;
                match result {
                    Ok(rendered) => drop(fresh.insert(state.hash(), rendered)),
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            if let Some(error) = failed {
                return Err(match (&error, self.gate.check(&Amounts::default())) {
                    (RenderError::TimedOut { .. }, Err(exhausted)) => NoPicture::Refused(exhausted.into()),
                    _ => NoPicture::Failed(error),
                });
            }
        }
        // Every state was found, or rendered without a failure.
        let all = states.iter().zip(pictures);
        Ok(all.filter_map(|(state, found)| found.or_else(|| fresh.get(&state.hash()).cloned())).collect())
    }

    /// The permit of a render that is asked for.
    fn admit(
        &mut self,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Permit<Render>, Fault> {
        let key = RenderKey::new(&state.hash(), long_edge, quality);
        let joins = self.view.ahead.remove(&key);
        let estimate = self.estimate(long_edge, quality).filter(|_| joins.is_none());
        let intent = RenderIntent { joins, ..intent(key, ONE_RENDER, estimate) };
        self.permit(intent)
    }

    fn permit(&mut self, intent: RenderIntent) -> Result<Permit<Render>, Fault> {
        let admitted = self.gate.admit(intent).map_err(|e| Fault::from(&e).fatal())?;
        admitted.map_err(|exhausted| Fault::new(ErrorCode::BudgetExhausted, exhausted.to_string()).fatal())
    }

    /// Begins the preview of the session's present state, so that it is ready when the model asks for it. Until then it
    /// takes nothing from the cap; it is not begun where it could not be paid for or end in time.
    pub fn render_ahead(&mut self) -> Result<(), Fault> {
        let (long_edge, quality) = (self.view.start.preview_edge, Quality::Preview);
        let place = self.place(None)?;
        let look = RenderKey::new(&place.state_hash, long_edge, quality);
        let request = RenderRequest { raw: &self.engine.raw, state: &place.state, long_edge, quality };
        let estimate = self.estimate(long_edge, quality);
        if self.view.ahead.contains_key(&look)
            || self.gate.check_render(&ONE_RENDER, estimate).is_err()
            || self.engine.renderer.cached(&request).is_some()
        {
            return Ok(());
        }
        let against = self.seen_before(&place, long_edge, quality)?;
        let intent = RenderIntent { ahead: true, ..intent(look, Amounts::default(), estimate) };
        let permit = self.permit(intent)?;
        // The measurements that go with a look are made ahead as well.
        let measures = self.engine.measures.clone();
        let finish = move |rendered: &Rendered| measures.measure(rendered, &against);
        let dropped = self.engine.renderer.ahead(permit, &request, &self.gate.deadline(), finish);
        self.close_ahead(|seq| dropped.contains(&seq), "dropped: a newer state was made before it began")
    }

    /// The baseline's picture and that of the step before, where they were looked at.
    fn seen_before(
        &self,
        place: &ResolvedRef,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Vec<Rendered>, Fault> {
        let baseline = self.place(Some("baseline"))?;
        let parent = self.commit(&place.commit)?.parents.first().cloned();
        let parent = parent.map(|parent| self.place(Some(parent.as_str()))).transpose()?;
        let states = [Some(baseline.state), parent.map(|parent| parent.state)];
        let seen = states.iter().flatten().filter_map(|state| self.looked_at(state, long_edge, quality));
        Ok(seen.collect())
    }

    /// Records that renders begun ahead were not used.
    pub fn close_ahead(&mut self, which: impl Fn(u64) -> bool, why: &str) -> Result<(), Fault> {
        for (look, seq) in self.view.ahead.clone() {
            if which(seq) {
                self.view.ahead.remove(&look);
                self.not_rendered(seq, look, why)?;
            }
        }
        Ok(())
    }

    fn estimate(&self, long_edge: u32, quality: Quality) -> Option<Duration> {
        self.engine.renderer.estimate(&self.engine.raw.sha256, long_edge, quality)
    }

    /// Runs the renderer, which uses up the permits.
    fn develop(
        &self,
        permits: Vec<(&EditState, Permit<Render>)>,
        long_edge: u32,
        quality: Quality,
    ) -> Vec<Result<Rendered, RenderError>> {
        let raw = &self.engine.raw;
        let request = |(state, permit)| (RenderRequest { raw, state, long_edge, quality }, permit);
        self.engine.renderer.render_all(permits.into_iter().map(request).collect(), &self.gate.deadline())
    }

    /// Records failures behind the pictures that were recovered from.
    fn note_repairs(&mut self) -> Result<(), Fault> {
        for text in self.engine.renderer.take_notes() {
            self.record(Event::Note { text, details: serde_json::Map::new() })?;
        }
        Ok(())
    }

    /// The numbers of a picture, measured once.
    pub fn stats(&self, rendered: &Rendered) -> ImageStats {
        self.engine.measures.stats(rendered)
    }

    /// The difference of two pictures, measured once.
    pub fn difference(&self, a: &Rendered, b: &Rendered) -> Result<Difference, Fault> {
        self.engine.measures.difference(a, b)
    }

    fn record_render(
        &mut self,
        intent: Option<u64>,
        key: RenderKey,
        result: Result<&Rendered, &RenderError>,
        took: Duration,
    ) -> Result<(), Fault> {
        let settled = Amounts { renders: u64::from(intent.is_some()), ..Amounts::default() };
        let pixel_hash = result.ok().map(|rendered| rendered.pixel_hash.clone());
        let error = result.err().map(ToString::to_string);
        let RenderKey { state, long_edge, quality } = key;
        let ms = millis(took);
        self.record(Event::Render { intent, state, long_edge, quality, pixel_hash, settled, error, ms })
    }

    /// Records that an admitted render was not made.
    fn not_rendered(&mut self, intent: u64, key: RenderKey, why: &str) -> Result<(), Fault> {
        let RenderKey { state, long_edge, quality } = key;
        let (intent, settled, error) = (Some(intent), Amounts::default(), Some(why.into()));
        let (pixel_hash, ms) = (None, 0);
        self.record(Event::Render { intent, state, long_edge, quality, pixel_hash, settled, error, ms })
    }

    fn record(&mut self, event: Event) -> Result<(), Fault> {
        self.gate.record(event).map(|_| ()).map_err(|e| Fault::from(&e).fatal())
    }

    /// Compares a commit's picture with the baseline's: the difference, and the movement in the vector's direction.
    pub fn versus_baseline(
        &mut self,
        (branch, commit): (Option<&RefName>, &Hash),
        rendered: &Rendered,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Comparison, Fault> {
        let baseline = self.place(Some("baseline"))?;
        let base = self.render(&baseline.state, long_edge, quality)?;
        let base_stats = self.stats(&base);
        let stats = self.stats(rendered);
        let difference = self.difference(&base, rendered)?;
        let axes = self.view.axes(branch);
        let check = VectorCheck::of(&axes, &base_stats, &stats, &difference);
        let moves = self.moves(commit)?;
        let local = !axes.is_empty() && !moves.is_empty() && moves.iter().all(|made| made.mask.is_some());
        let there = local.then(|| There::of((&base, &base_stats), (rendered, &stats))).flatten();
        Ok(Comparison { difference, check, there, axes, base_stats, base })
    }
}

/// A pixel has changed that is this far from what it was, in CIEDE2000.
pub const CHANGED: f32 = 0.5;
/// The least share of a picture that is a place.
const PLACE: f64 = 0.0005;

/// The numbers of the place that moves under masks changed, before and after.
///
/// Where a mask has an effect that can be seen, the picture changed, so that no mask must be rendered for this.
pub struct There {
    /// Of the baseline.
    pub before: ImageStats,
    /// Now.
    pub now: ImageStats,
}

impl There {
    /// `None` where hardly anything changed.
    fn of(
        (base, base_stats): (&Rendered, &ImageStats),
        (now, stats): (&Rendered, &ImageStats),
    ) -> Option<Self> {
        let places = changed(&base.picture, &now.picture, CHANGED);
        if (places.len() as f64) < PLACE * (now.picture.rgb.len() / 3) as f64 {
            return None;
        }
        let before = base_stats.of_part(&base.picture, &places);
        Some(Self { before, now: stats.of_part(&now.picture, &places) })
    }

    /// Judges the way there, as [`VectorCheck::of`] does that of the whole frame.
    fn check(&self, axes: &[(Axis, i8)], difference: &Difference) -> VectorCheck {
        VectorCheck::of(axes, &self.before, &self.now, difference)
    }
}

fn intent(key: RenderKey, reserved: Amounts, estimate: Option<Duration>) -> RenderIntent {
    let RenderKey { state, long_edge, quality } = key;
    let estimate_ms = estimate.map(millis);
    RenderIntent { state, long_edge, quality, reserved, ahead: false, joins: None, estimate_ms }
}

/// A picture compared with the baseline's.
pub struct Comparison {
    /// How far apart.
    pub difference: Difference,
    /// Whether the whole frame moved in the requested direction.
    pub check: VectorCheck,
    /// If every move in effect has a mask, the place that they changed.
    pub there: Option<There>,
    /// The axes that were asked for.
    pub axes: Vec<(Axis, i8)>,
    /// The baseline's numbers.
    pub base_stats: ImageStats,
    /// The baseline's picture.
    pub base: Rendered,
}

impl Comparison {
    /// The judgment that counts: that of the place, if there is one, with the warnings about the whole frame.
    pub fn local(&self) -> VectorCheck {
        let warnings = self.check.warnings.clone();
        match &self.there {
            Some(there) => VectorCheck { warnings, ..there.check(&self.axes, &self.difference) },
            None => self.check.clone(),
        }
    }

    /// As the model reads it.
    pub fn to_json(&self) -> Value {
        let axes: Vec<Value> = self
            .axes
            .iter()
            .map(|(axis, sign)| json!({"axis": axis.name(), "asked": if *sign < 0 { "-" } else { "+" }}))
            .collect();
        json!({ "difference": self.difference, "vector": self.check, "axes": axes })
    }
}
