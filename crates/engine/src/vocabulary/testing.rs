//! A photo as darktable 4.2.1 opens it, for the tests of this crate.
#![allow(
    missing_docs,
    clippy::new_without_default,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "it is for tests"
)]

use crate::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, Vocabulary};
use base::assets::Overlay;
use darktable::frame::{Orientation, StoredSize};
use darktable::layout::Layouts;
use darktable::state::{EditState, Module, Params, Value};
use darktable::{order, params};

pub struct Photo {
    pub vocabulary: Vocabulary,
    pub layouts: Layouts,
    pub facts: PhotoFacts,
    pub state: EditState,
}

impl Photo {
    /// Landscape, 300 by 200.
    pub fn new() -> Self {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let module =
            |op: &str, modversion: u32, fields: &[(&str, f64)]| module(&layouts, op, modversion, fields);
        let modules = vec![
            module("temperature", 3, &[("red", 2.0), ("green", 1.0), ("blue", 1.6)]),
            module("flip", 2, &[("orientation", 0.0)]),
            module("exposure", 6, &[("exposure", 0.7), ("black", -0.000_244_140_63)]),
            module("filmicrgb", 6, &[("white_point_source", 4.56)]),
        ];
        let mut baseline = EditState { modules, ..EditState::default() };
        order::sort(&mut baseline);
        let facts = PhotoFacts {
            baseline: baseline.clone(),
            size: StoredSize { width: 300, height: 200 },
            orientation: Orientation::default(),
            shot: crate::vocabulary::Shot::default(),
        };
        Self {
            vocabulary: Vocabulary::load(&Overlay::vocabulary(None)).unwrap(),
            layouts,
            facts,
            state: baseline,
        }
    }

    /// Turned clockwise for display: 200 by 300.
    pub fn upright(mut self) -> Self {
        self.set_base("flip", "orientation", Value::Int(5));

        self
    }

    /// Sets a field of the untouched photo, and begins from there.
    pub fn set_base(&mut self, op: &str, field: &str, value: Value) {
        let module = self.facts.baseline.module_mut(op, 0).unwrap();
        let Params::Fields(fields) = &mut module.params else { panic!("fields") };
        assert!(fields.insert(field.to_owned(), value).is_some(), "{op}.{field}");
        self.state = self.facts.baseline.clone();
    }

    pub fn apply(&mut self, name: &str, values: &[(&str, f64)], mask: Option<&str>) {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        self.state =
            self.vocabulary.apply(&request, &self.state, &self.facts, &self.layouts, "4.2.1").unwrap().state;
    }
}

/// An instance 0 at darktable's defaults, but for these fields.
pub fn module(layouts: &Layouts, op: &str, modversion: u32, fields: &[(&str, f64)]) -> Module {
    let known = layouts.module(op).unwrap().unwrap();
    let layout = known.version(modversion).unwrap();
    let mut values = params::defaults(layout);
    for (name, value) in fields {
        let number = params::number(layout, layout.field(name).unwrap(), *value).unwrap();
        values.insert((*name).to_owned(), number);
    }
    Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion,
        name: String::new(),
        op: op.to_owned(),
        params: Params::Fields(values),
    }
}

pub fn float(module: &Module, field: &str) -> f32 {
    let Params::Fields(fields) = &module.params else { panic!("fields") };
    let Value::Float(value) = fields[field] else { panic!("{field}") };
    value
}
