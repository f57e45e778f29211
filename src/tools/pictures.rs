//! How tools get pictures and their numbers: from the cache, begun ahead, or rendered under a permit.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::budget::Amounts;
use crate::gate::Permit;
use crate::tools::context::{RenderKey, ResolvedRef, ToolContext, millis};
use crate::transcript::Event;
use base::error::{ErrorCode, Fault};
use base::ids::RefName;
use darktable::render::{Quality, RenderError, RenderRequest, Rendered, Renderer};
use darktable::state::EditState;
use pixels::metrics::axes::Axis;
use pixels::metrics::check::VectorCheck;
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

/// What is reserved for a picture that is asked for.
const ONE_RENDER: Amounts =
    Amounts { iterations: 0, branches: 0, renders: 1, model_calls: 0, tokens: 0, cost_micro_usd: 0 };

impl ToolContext<'_> {
    /// The picture of a state, if it is there already and was asked for before.
    pub fn looked_at(&self, state: &EditState, long_edge: u32, quality: Quality) -> Option<Rendered> {
        // What was begun ahead is no one's picture until it is paid for.
        let unpaid =
            self.view.ahead.contains_key(&RenderKey::new(&state.hash(), long_edge, quality.as_str()));
        let request = RenderRequest { raw: &self.engine.raw, state, long_edge, quality };
        (!unpaid).then(|| self.engine.renderer.cached(&request)).flatten()
    }

    /// The picture of a state: from the cache, or rendered under a permit.
    pub fn render(&mut self, state: &EditState, long_edge: u32, quality: Quality) -> Result<Rendered, Fault> {
        let rendered = self.render_all(&[state], long_edge, quality)?;
        rendered.into_iter().next().ok_or_else(|| Fault::new(ErrorCode::StateError, "no picture came back"))
    }

    /// The pictures of several states, in order: those that are not in the cache are rendered under a permit
    /// each, as many at once as the session has renderers.
    pub fn render_all(
        &mut self,
        states: &[&EditState],
        long_edge: u32,
        quality: Quality,
    ) -> Result<Vec<Rendered>, Fault> {
        let mut pictures: Vec<Option<Rendered>> = Vec::new();
        let mut permits: Vec<(&EditState, Permit)> = Vec::new();
        for state in states {
            let found = self.looked_at(state, long_edge, quality);
            match &found {
                Some(found) => self.note_render(None, state, long_edge, quality, Ok(found), found.elapsed)?,
                // The same picture twice is rendered once.
                None if states.iter().take(pictures.len()).any(|earlier| earlier == state) => {}
                None => match self.admit(state, long_edge, quality) {
                    Ok(permit) => permits.push((*state, permit)),
                    Err(fault) => {
                        for (state, permit) in permits {
                            self.give_back(permit, state, long_edge, quality)?;
                        }
                        return Err(fault);
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
            self.note_troubles()?;
            let mut failed = None;
            for (at, ((state, seq), result)) in wanted.into_iter().zip(results).enumerate() {
                // Rendered side by side, they are waited for once.
                let waited = if at == 0 { took } else { Duration::ZERO };
                self.note_render(Some(seq), state, long_edge, quality, result.as_ref(), waited)?;
                match result {
                    Ok(rendered) => drop(fresh.insert(state.hash(), rendered)),
                    Err(error) => drop(failed.get_or_insert(error)),
                }
            }
            if let Some(error) = failed {
                return Err(match (&error, self.gate.check(&Amounts::default())) {
                    (RenderError::Cut { cancelled: false, .. }, Err(exhausted)) => exhausted.into(),
                    _ => Fault::from(&error),
                });
            }
        }
        // Every state was found, or rendered without a failure.
        let all = states.iter().zip(pictures);
        Ok(all.filter_map(|(state, found)| found.or_else(|| fresh.get(&state.hash()).cloned())).collect())
    }

    /// Leave for one render that is asked for.
    fn admit(&mut self, state: &EditState, long_edge: u32, quality: Quality) -> Result<Permit, Fault> {
        let joins = self.view.ahead.remove(&RenderKey::new(&state.hash(), long_edge, quality.as_str()));
        let estimate = self.estimate(long_edge, quality).filter(|_| joins.is_none());
        let intent = Event::RenderIntent {
            state: state.hash(),
            long_edge,
            quality: quality.as_str().into(),
            reserved: ONE_RENDER,
            ahead: false,
            joins,
            estimate_ms: estimate.map(millis),
        };
        self.gate.admit(intent).map_err(|e| Fault::from(&e).fatal())
    }

    /// Writes down that a render which was let through is not begun.
    fn give_back(
        &mut self,
        permit: Permit,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
    ) -> Result<(), Fault> {
        let event = Event::Render {
            intent: Some(permit.seq()),
            state: state.hash(),
            long_edge,
            quality: quality.as_str().into(),
            pixel_hash: None,
            settled: Amounts::default(),
            error: Some("not begun: there was no room for the others".into()),
            ms: 0,
        };
        self.gate.record(event).map_err(|e| Fault::from(&e).fatal())?;
        Ok(())
    }

    /// Begins the preview of the state where the session stands, so that it is there when the model asks for it.
    /// It takes nothing from the cap until then, and is not begun where it could not be paid or end in time.
    pub fn render_ahead(&mut self) -> Result<(), Fault> {
        let (long_edge, quality) = (self.view.start.preview_edge, Quality::Preview);
        let place = self.place(None)?;
        let look = RenderKey::new(&place.state_hash, long_edge, quality.as_str());
        let request = RenderRequest { raw: &self.engine.raw, state: &place.state, long_edge, quality };
        let estimate = self.estimate(long_edge, quality);
        if self.view.ahead.contains_key(&look)
            || self.gate.check_render(&ONE_RENDER, estimate).is_err()
            || self.engine.renderer.cached(&request).is_some()
        {
            return Ok(());
        }
        let against = self.seen_before(&place, long_edge, quality)?;
        let intent = Event::RenderIntent {
            state: place.state_hash,
            long_edge,
            quality: quality.as_str().into(),
            reserved: Amounts::default(),
            ahead: true,
            joins: None,
            estimate_ms: estimate.map(millis),
        };
        let permit = self.gate.admit(intent).map_err(|e| Fault::from(&e).fatal())?;
        // What a look tells beside the picture is measured ahead as well.
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

    /// Writes down that renders which were begun ahead came to nothing.
    pub fn close_ahead(&mut self, which: impl Fn(u64) -> bool, why: &str) -> Result<(), Fault> {
        for (look, seq) in self.view.ahead.clone() {
            if which(seq) {
                self.view.ahead.remove(&look);
                let RenderKey { state, long_edge, quality } = look;
                let event = Event::Render {
                    intent: Some(seq),
                    state,
                    long_edge,
                    quality,
                    pixel_hash: None,
                    settled: Amounts::default(),
                    error: Some(why.into()),
                    ms: 0,
                };
                self.gate.record(event).map_err(|e| Fault::from(&e).fatal())?;
            }
        }
        Ok(())
    }

    fn estimate(&self, long_edge: u32, quality: Quality) -> Option<Duration> {
        self.engine.renderer.estimate(&self.engine.raw.sha256, long_edge, quality)
    }

    /// Runs the renderer, for which the permits are used up.
    fn develop(
        &self,
        permits: Vec<(&EditState, Permit)>,
        long_edge: u32,
        quality: Quality,
    ) -> Vec<Result<Rendered, RenderError>> {
        let raw = &self.engine.raw;
        let requests: Vec<RenderRequest<'_>> =
            permits.iter().map(|(state, _)| RenderRequest { raw, state, long_edge, quality }).collect();
        self.engine.renderer.render_all(&requests, &self.gate.deadline())
    }

    /// Writes down what went wrong behind the pictures and was made good.
    fn note_troubles(&mut self) -> Result<(), Fault> {
        for text in self.engine.renderer.take_notes() {
            let note = Event::Note { text, details: serde_json::Map::new() };
            self.gate.record(note).map_err(|e| Fault::from(&e).fatal())?;
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

    fn note_render(
        &mut self,
        intent: Option<u64>,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
        result: Result<&Rendered, &RenderError>,
        took: Duration,
    ) -> Result<(), Fault> {
        let event = Event::Render {
            intent,
            state: state.hash(),
            long_edge,
            quality: quality.as_str().into(),
            pixel_hash: result.ok().map(|r| r.pixel_hash.clone()),
            settled: Amounts { renders: u64::from(intent.is_some()), ..Amounts::default() },
            error: result.err().map(ToString::to_string),
            ms: millis(took),
        };
        self.gate.record(event).map(|_| ()).map_err(|e| Fault::from(&e).fatal())
    }

    /// The numbers of a picture against the baseline's: the difference, and whether the vector's way was taken.
    pub fn versus_baseline(
        &mut self,
        branch: Option<&RefName>,
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
        Ok(Comparison { difference, check, axes, base_stats, base })
    }
}

/// A picture held against the baseline's.
pub struct Comparison {
    /// How far apart.
    pub difference: Difference,
    /// Whether the asked direction moved.
    pub check: VectorCheck,
    /// The axes that were asked for.
    pub axes: Vec<(Axis, i8)>,
    /// The baseline's numbers.
    pub base_stats: ImageStats,
    /// The baseline's picture.
    pub base: Rendered,
}

impl Comparison {
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
