//! Layers: what camera and lens call for, and a look to start from, as one step before any move.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::photo::op::Operation;
use crate::vocabulary::bindings::{Binding, Bound};
use crate::vocabulary::{ApplyRequest, PhotoFacts, Vocabulary, VocabularyError};
use darktable::baseline::FileFacts;
use darktable::layout::Layouts;
use darktable::state::EditState;

/// Which layers are bound.
#[derive(Clone, Debug, PartialEq)]
pub enum Layers {
    /// Both, as the bindings say.
    Bound,
    /// Camera and lens only.
    CameraLens,
    /// A look or a style by name, whatever the bindings say.
    Look {
        /// Its name.
        name: String,
        /// 0…1; its default if absent.
        strength: Option<f64>,
    },
}

/// What applying layers works with.
#[derive(Clone, Copy)]
pub struct LayerContext<'a> {
    /// Moves, looks, styles and bindings.
    pub vocabulary: &'a Vocabulary,
    /// The photo, as seen from the edit.
    pub facts: &'a PhotoFacts,
    /// darktable's parameters.
    pub layouts: &'a Layouts,
    /// Which darktable.
    pub darktable: &'a str,
}

/// What came of binding layers.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundLayers {
    /// The new state.
    pub state: EditState,
    /// What was done; `None` when nothing was to be done.
    pub operation: Option<Operation>,
    /// The same for a reader.
    pub report: LayerReport,
}

/// What matched, and by which words a binding would.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerReport {
    /// EXIF's camera model.
    pub camera: Option<String>,
    /// EXIF's lens model.
    pub lens: Option<String>,
    /// What was applied, in order.
    pub applied: Vec<String>,
    /// The requested layers for which nothing fits.
    pub nothing_for: Vec<&'static str>,
}

/// Applies the layers to a state. Doing it again changes nothing.
///
/// # Errors
/// [`VocabularyError`] as for each move.
pub fn bind_layers(
    layers: &Layers,
    state: &EditState,
    file: &FileFacts,
    tools: LayerContext<'_>,
) -> Result<BoundLayers, VocabularyError> {
    let (camera, lens) = (file.model.as_deref(), file.lens.as_deref());
    let bound = |layer: u8| {
        let fitting = tools.vocabulary.bindings_for(layer, camera, lens);
        fitting.into_iter().flat_map(|binding: &Binding| binding.apply.clone()).collect::<Vec<Bound>>()
    };
    let wanted = match layers {
        Layers::Bound => vec![("camera and lens", bound(1)), ("look", bound(2))],
        Layers::CameraLens => vec![("camera and lens", bound(1))],
        Layers::Look { name, strength } => {
            vec![("look", vec![Bound::Look { look: name.clone(), strength: *strength }])]
        }
    };
    let mut new = state.clone();
    let mut steps = Vec::new();
    for one in wanted.iter().flat_map(|(_, bounds)| bounds) {
        let (next, step) = apply(one, &new, tools)?;
        new = next;
        steps.push(step);
    }
    let report = LayerReport {
        camera: file.model.clone(),
        lens: file.lens.clone(),
        applied: steps.iter().map(ToString::to_string).collect(),
        nothing_for: wanted.iter().filter(|(_, bounds)| bounds.is_empty()).map(|(name, _)| *name).collect(),
    };
    let operation = (!steps.is_empty()).then_some(Operation::BindLayers { steps });
    Ok(BoundLayers { state: new, operation, report })
}

fn apply(
    bound: &Bound,
    state: &EditState,
    tools: LayerContext<'_>,
) -> Result<(EditState, Operation), VocabularyError> {
    let LayerContext { vocabulary, facts, layouts, darktable } = tools;
    let (name, values) = match bound {
        Bound::Move { name, values } => (name, values.clone()),
        Bound::Look { look, strength } => {
            (look, strength.iter().map(|s| ("strength".to_owned(), *s)).collect::<BTreeMap<_, _>>())
        }
    };
    let request = ApplyRequest { move_name: name, values: &values, mask: None };
    Operation::apply(&request, vocabulary, state, facts, layouts, darktable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;
    use darktable::frame::{Orientation, StoredSize};
    use darktable::state::{Module, Params};

    const BINDINGS: &str = r#"
[[binding]]
camera = "X-T4"
layer = 1
apply = [{ move = "chroma", values = { amount = 0.1 } }, { move = "sharpen" }]

[[binding]]
camera = "X-T4"
lens = "XF35mm"
layer = 1
apply = [{ move = "chroma", values = { amount = 0.3 } }]

[[binding]]
layer = 2
apply = [{ move = "shadows_lift" }]
"#;

    #[test]
    fn layers_are_one_step_that_changes_nothing_the_second_time() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bindings")).unwrap();
        std::fs::write(folder.path().join("bindings/mine.toml"), BINDINGS).unwrap();
        let assets = Overlay::vocabulary(Some(folder.path().to_owned()));
        let (vocabulary, layouts) = (Vocabulary::load(&assets).unwrap(), Layouts::new(assets));
        let gamma = layouts.module("gamma").unwrap().unwrap();
        let gamma = Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion: 1,
            name: String::new(),
            op: "gamma".into(),
            params: Params::Fields(darktable::params::defaults(gamma.lowest().unwrap())),
        };
        let baseline = EditState { modules: vec![gamma], ..EditState::default() };
        let facts = PhotoFacts {
            baseline,
            size: StoredSize { width: 600, height: 400 },
            orientation: Orientation::default(),
            shot: crate::vocabulary::Shot::default(),
        };
        let tools =
            LayerContext { vocabulary: &vocabulary, facts: &facts, layouts: &layouts, darktable: "4.2.1" };
        let camera = |model: &str, lens: Option<&str>| FileFacts {
            model: Some(model.into()),
            lens: lens.map(Into::into),
            ..FileFacts::default()
        };
        let bind =
            |layers: &Layers, state: &EditState, file: &FileFacts| bind_layers(layers, state, file, tools);

        let fuji = camera("X-T4", Some("XF35mm"));
        let both = bind(&Layers::Bound, &facts.baseline, &fuji).unwrap();
        assert_eq!(
            both.report.applied,
            [
                "chroma amount=0.10",
                "sharpen amount=0.60",
                "chroma amount=0.30",
                "shadows_lift amount=0.80 EV"
            ]
        );
        assert_eq!(bind(&Layers::Bound, &both.state, &fuji).unwrap().state, both.state);
        let words = both.operation.unwrap().to_string();
        assert!(words.starts_with("layers: chroma amount=0.10; sharpen"), "{words}");
        let first = bind(&Layers::CameraLens, &facts.baseline, &camera("X-T4", None)).unwrap();
        assert_eq!(first.report.applied.len(), 2);

        let other = bind(&Layers::CameraLens, &facts.baseline, &camera("x-t4", None)).unwrap();
        assert_eq!((other.operation, other.state), (None, facts.baseline.clone()));
        assert_eq!(
            (other.report.camera.as_deref(), &other.report.nothing_for[..]),
            (Some("x-t4"), &["camera and lens"][..])
        );
        let look = Layers::Look { name: "shadow_lift".into(), strength: None };
        let error = bind(&look, &facts.baseline, &fuji).unwrap_err().to_string();
        assert!(error.contains("shadows_lift"), "{error}");
    }
}
