use std::collections::BTreeMap;

use super::*;
use crate::photo::Setting;
use crate::vocabulary::testing::{Photo, float};
use base::error::{Coded as _, ErrorCode};

const A: &str = r#"{"shape":"circle","center":[0.2,0.5],"radius":0.1}"#;
const B: &str = r#"{"shape":"circle","center":[0.8,0.5],"radius":0.1}"#;
const C: &str = r#"{"shape":"ellipse","center":[0.5,0.5],"radius":[0.1,0.2]}"#;

/// A photo with its history.
struct Bench {
    photo: Photo,
    standing: Standing,
    /// Every state with what stood there.
    passed: Vec<(EditState, Standing)>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { photo: Photo::new(), standing: Standing::default(), passed: Vec::new() };
        let state = bench.photo.state.clone();
        bench.record(state, Operation::Ingest { raw: Hash::of(b"raw") });
        bench
    }

    fn record(&mut self, state: EditState, op: Operation) -> Operation {
        let commit =
            Commit { label: String::new(), op: op.clone(), parents: Vec::new(), state: state.hash() };
        self.standing.step(&commit, &state, &self.photo.vocabulary);
        self.photo.state = state.clone();
        self.passed.push((state, self.standing.clone()));
        op
    }

    fn with<T>(&self, change: impl FnOnce(&Standing, &EditState, LayerContext<'_>) -> T) -> T {
        let Photo { vocabulary, layouts, facts, state } = &self.photo;
        change(&self.standing, state, LayerContext { vocabulary, facts, layouts, darktable: "4.2.1" })
    }

    fn try_apply(
        &self,
        name: &str,
        values: &[(&str, f64)],
        mask: Option<&str>,
    ) -> Result<(EditState, Operation), VocabularyError> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        self.with(|standing, state, with| standing.apply(&request, state, with))
    }

    /// The ids of what was made.
    fn apply(&mut self, name: &str, values: &[(&str, f64)], mask: Option<&str>) -> Vec<String> {
        let (state, op) = self.try_apply(name, values, mask).unwrap();
        let before = self.standing.clone();
        self.record(state, op.clone());
        self.standing.made(&op, &before).iter().map(ToString::to_string).collect()
    }

    fn replace(&mut self, id: &str, mask: &str) -> Operation {
        let mask: MaskSpec = serde_json::from_str(mask).unwrap();
        let (state, op) =
            self.with(|standing, state, with| standing.replace_mask(id, &mask, state, with)).unwrap();
        self.record(state, op)
    }

    fn remove(&mut self, name: &str) -> Operation {
        let (state, op) =
            self.with(|standing, state, with| standing.remove(name, None, state, with)).unwrap();
        self.record(state, op)
    }

    fn ids(&self) -> Vec<String> {
        self.standing.moves().iter().map(|one| one.id.to_string()).collect()
    }

    fn ev(&self, id: &str) -> f32 {
        let placed = self.standing.find(&MoveId::parse(id).unwrap()).unwrap();
        float(self.photo.state.module(placed.module(), placed.instance).unwrap(), "exposure")
    }

    fn gains(&self) -> [f32; 3] {
        ["red", "green", "blue"].map(|name| float(self.photo.state.module("temperature", 0).unwrap(), name))
    }
}

#[test]
fn an_id_stays_with_its_instance_whatever_comes_and_goes() {
    let mut bench = Bench::new();
    assert_eq!(bench.apply("exposure", &[("ev", 0.5)], Some(A)), ["exposure#1"]);
    assert_eq!(bench.apply("exposure", &[("ev", -0.5)], Some(B)), ["exposure#2"]);
    // darktable's numbers go by the mask, and here the other way round.
    let instance = |bench: &Bench, at: usize| bench.standing.moves()[at].instance;
    assert_eq!([instance(&bench, 0), instance(&bench, 1)], [2, 1]);
    assert_eq!((bench.ev("exposure#1"), bench.ev("exposure#2")), (0.5, -0.5));
    // Again with the same mask it is the same one; other moves count for themselves.
    assert_eq!(bench.apply("exposure", &[("ev", 0.7)], Some(A)), ["exposure#1"]);
    assert_eq!(bench.apply("saturation", &[], Some(A)), ["saturation#1"]);
    assert_eq!(bench.apply("exposure", &[("ev", 0.1)], None), ["exposure#0"]);
    bench.remove("exposure#1");
    assert_eq!(bench.ids(), ["exposure#2", "saturation#1"]);
    assert_eq!(bench.ev("exposure#2"), -0.5);
    // A number is not given twice, and a way back brings the old ones.
    assert_eq!(bench.apply("exposure", &[("ev", 0.2)], Some(C)), ["exposure#3"]);
    let (state, was) = bench.passed[2].clone();
    bench.record(state, Operation::Rollback { to: Hash::of(b"some commit") });
    assert_eq!(bench.standing.moves(), was.moves());
}

#[test]
fn a_whole_move_goes_with_all_its_instances_and_number_nought_alone() {
    let mut bench = Bench::new();
    bench.apply("exposure", &[("ev", 0.4)], None);
    bench.apply("exposure", &[("ev", 0.5)], Some(A));
    bench.apply("exposure", &[("ev", -0.5)], Some(B));
    let all = bench.photo.state.clone();
    let op = bench.remove("exposure#0");
    assert_eq!(op.to_string(), "remove exposure#0");
    assert_eq!(bench.ids(), ["exposure#1", "exposure#2"]);
    assert_eq!(bench.photo.state.module("exposure", 0), bench.photo.facts.baseline.module("exposure", 0));
    bench.record(all, Operation::Snapshot);
    bench.remove("exposure");
    assert_eq!(bench.ids(), [""; 0]);
    assert_eq!(bench.photo.state.hash(), bench.photo.facts.baseline.hash());
}

#[test]
fn a_mask_is_replaced_in_one_step_and_the_values_stay() {
    let mut bench = Bench::new();
    bench.apply("exposure", &[("ev", 0.5)], Some(A));
    bench.apply("exposure", &[("ev", -0.5)], Some(B));
    let op = bench.replace("exposure#1", C);
    assert_eq!(op.to_string(), "exposure#1 mask replaced: on ellipse at 0.50, 0.50");
    assert_eq!(serde_json::from_value::<Operation>(serde_json::to_value(&op).unwrap()).unwrap(), op);
    // As if it had been made there from the start, with nothing left of the old mask.
    let mut fresh = Bench::new();
    fresh.apply("exposure", &[("ev", 0.5)], Some(C));
    fresh.apply("exposure", &[("ev", -0.5)], Some(B));
    assert_eq!(bench.photo.state.hash(), fresh.photo.state.hash());
    assert_eq!(bench.ids(), ["exposure#1", "exposure#2"]);
    let words = |bench: &Bench| -> Vec<String> {
        bench.standing.moves().iter().map(|one| bench.standing.words(one.applied.as_ref().unwrap())).collect()
    };
    assert_eq!(
        words(&bench),
        ["exposure#1 ev=0.50 EV on ellipse at 0.50, 0.50", "exposure#2 ev=-0.50 EV on circle at 0.80, 0.50"]
    );
    // Its old place is free, and its new one taken.
    assert_eq!(bench.apply("exposure", &[("ev", 0.5)], Some(A)), ["exposure#3"]);
    let mask: MaskSpec = serde_json::from_str(C).unwrap();
    let refused = bench.with(|standing, state, with| standing.replace_mask("exposure#2", &mask, state, with));
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("another `exposure` has it already"), "{refused}");
    // A move that is placed once needs no number; the same mask again changes nothing.
    bench.apply("saturation", &[], Some(A));
    bench.replace("saturation", B);
    let state = bench.photo.state.hash();
    bench.replace("saturation#1", B);
    assert_eq!(bench.photo.state.hash(), state);
}

#[test]
fn a_placed_move_gets_other_values_where_it_is() {
    let mut bench = Bench::new();
    bench.apply("exposure", &[("ev", 0.5)], Some(A));
    bench.apply("graduated_filter", &[], None);
    // Cropped since: the same mask would be another place.
    bench.apply("crop_left", &[("margin", 0.3)], None);
    let before = bench.photo.state.masks.clone();
    assert_eq!(bench.apply("exposure#1", &[("ev", -0.25)], None), ["exposure#1"]);
    assert_eq!((bench.ev("exposure#1"), &bench.photo.state.masks), (-0.25, &before));
    // A parameter that is not named stays as it is, not at its default.
    bench.apply("tint_all", &[("hue", 200.0), ("strength", 0.03)], Some(B));
    bench.apply("tint_all#1", &[("strength", 0.01)], None);
    let applied =
        bench.standing.moves().iter().find(|one| one.id.name == "tint_all").unwrap().applied.clone();
    let values: BTreeMap<String, f64> =
        applied.unwrap().values.into_iter().map(|(name, Setting { value, .. })| (name, value)).collect();
    assert_eq!((values["hue"], values["strength"]), (200.0, 0.01));
    // At its neutral value it is gone.
    bench.apply("exposure#1", &[("ev", 0.0)], None);
    assert_eq!(bench.ids(), ["tint_all#1"]);
    let unknown = bench.try_apply("exposure#1", &[("ev", 1.0)], None).unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::NotFound);
    assert!(
        unknown.to_string().contains("there is: tint_all#1 hue=200.00 degrees strength=0.01"),
        "{unknown}"
    );
    let masked = bench.try_apply("tint_all#1", &[], Some(A)).unwrap_err();
    assert!(masked.to_string().contains("keeps the mask"), "{masked}");
}

#[test]
fn a_value_at_another_opacity_keeps_the_strength_of_its_mask() {
    let faint = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.1,"opacity":0.5}"#;
    let name = Photo::new()
        .vocabulary
        .moves()
        .find(|m| {
            m.opacity.is_some() && m.strength().is_some() && {
                let mut photo = Bench::new();
                photo.try_apply(&m.name, &[], Some(faint)).map(|(state, op)| photo.record(state, op)).is_ok()
            }
        })
        .unwrap()
        .name
        .clone();
    let mut bench = Bench::new();
    bench.apply(&name, &[], Some(faint));
    let strength = bench.photo.vocabulary.get(&name).unwrap().strength().unwrap();
    let (parameter, half) = (strength.0.to_owned(), strength.1.default / 2.0);
    bench.apply(&format!("{name}#1"), &[(&parameter, half)], None);
    let mut fresh = Bench::new();
    fresh.apply(&name, &[(&parameter, half)], Some(faint));
    assert_eq!(bench.photo.state.hash(), fresh.photo.state.hash(), "{name}");
}

#[test]
fn warmth_shifts_what_is_there_whatever_set_it() {
    let mut bench = Bench::new();
    bench.apply("warmth", &[("shift", 20.0)], None);
    let warm = bench.gains();
    bench.apply("warmth", &[("shift", 10.0)], None);
    bench.apply("warmth", &[("shift", 20.0)], None);
    assert_eq!(bench.gains(), warm, "it is set, not added");
    let card: &[(&str, f64)] = &[("red", 0.5), ("green", 1.0), ("blue", 2.0)];
    bench.apply("white_balance_gains", card, None);
    assert_eq!(bench.gains(), [1.0, 1.0, 3.2], "the card takes the place of the shift");
    bench.apply("warmth", &[("shift", 20.0)], None);
    let [red, green, blue] = bench.gains();
    assert!((red / (0.5 * warm[0]) - 1.0).abs() < 1e-5 && (blue / (2.0 * warm[2]) - 1.0).abs() < 1e-5);
    assert_eq!(green, 1.0);
    // Again it is set and not added, tint goes along, and both go without the card.
    bench.apply("tint", &[("magenta", 10.0)], None);
    bench.apply("warmth", &[("shift", 20.0)], None);
    assert!((bench.gains()[1] - 0.9).abs() < 1e-6 && bench.gains()[0] == red);
    bench.remove("warmth");
    assert_eq!([bench.gains()[0], bench.gains()[2]], [1.0, 3.2]);
    bench.apply("tint", &[("magenta", 0.0)], None);
    assert_eq!(bench.gains(), [1.0, 1.0, 3.2]);
    bench.apply("warmth", &[("shift", 20.0)], None);
    bench.remove("temperature");
    assert_eq!(bench.photo.state.hash(), bench.photo.facts.baseline.hash());
    bench.apply("warmth", &[("shift", 20.0)], None);
    assert_eq!(bench.gains(), warm, "without the card it starts from the camera's own again");
}

#[test]
fn a_long_history_is_shared_by_its_commits_and_ends_without_a_deep_stack() {
    let mut passed = Passed::default();
    let mut at_each = Vec::new();
    for n in 0..100_000 {
        let state = Hash::of(format!("{}", n % 1_000));
        let moves = Arc::new(Vec::new());
        passed = Passed(Some(Arc::new(Pass { state, moves, balance: None, before: passed })));
        at_each.push(passed.clone());
    }
    let last = passed.at(&Hash::of("7")).unwrap();
    assert!(Arc::ptr_eq(&last, at_each[99_007].0.as_ref().unwrap()), "the latest pass of a state");
    assert!(passed.at(&Hash::of("1000")).is_none());
    // One owner here, and one in the pass after it: none has a copy of its own.
    assert_eq!(Arc::strong_count(at_each[50_000].0.as_ref().unwrap()), 2);
    drop(at_each);
    drop(last);
    drop(passed);
}
