//! What darktable's `lens` module needs beyond what moves say: a lens by its name, wherever not everything is to be as
//! the file has it.
//!
//! Measured on darktable 4.2.1. While `modified` (`has_been_set` in 5.x) is 0 every other field counts for nothing: camera, lens, focal length
//! and aperture are the file's, and distortion, dark corners and fringes are all corrected. At 1 every field counts,
//! but:
//!
//! - The names must be lensfun's, and the camera must take the lens; its crop factor is that of its entry, not `crop`.
//! - Without focal length, aperture and distance (in mm, as an f-number, in m) dark corners stay.
//! - `scale` 0 lets lensfun fit the picture, as darktable itself does for the file's lens; 1 leaves empty edges.
//! - `target_geom` 0 leaves a fisheye picture one; 1 makes it rectilinear.
//! - `cor_dist_ft` and `cor_vig_ft` are for corrections that a camera embeds. Here they hold what is to be corrected at all, and
//!   `modify_flags` is worked out from them.
//! - Fringes that are set by hand need a lens, but no profile: one that bends and darkens nothing will do.

use std::collections::BTreeMap;

use darktable::baseline::FileFacts;
use darktable::state::Value;

type Fields = BTreeMap<String, Value>;

/// darktable's bits of what is corrected.
const FRINGES: i64 = 1;
const VIGNETTING: i64 = 2;
const DISTORTION: i64 = 4;
const ALL: i64 = 7;

/// lensfun's camera and lens without any fault.
const FAULTLESS: [&str; 2] = ["Crop-factor 1.0 (Full Frame)", "Rectilinear 10-1000mm f/1.0"];
/// What it is taken to be set to: mm and f-number.
const FAULTLESS_AT: [f32; 2] = [50.0, 8.0];
/// A distance in m that is as good as infinite.
pub(crate) const FAR: f32 = 1000.0;

/// What the file says of camera and lens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shot {
    /// Camera model.
    pub camera: Option<String>,
    /// Lens.
    pub lens: Option<String>,
    /// Focal length in mm.
    pub focal: Option<f64>,
    /// f-number.
    pub aperture: Option<f64>,
}

impl Shot {
    /// Of a file.
    pub fn of(facts: &FileFacts) -> Self {
        Self {
            camera: facts.model.clone(),
            lens: facts.lens.clone(),
            focal: facts.focal_mm,
            aperture: facts.aperture,
        }
    }
}

/// Works out, after a move has set its fields, what is corrected, and by which lens. `base` is the baseline's own
/// instance, if it is on.
pub(crate) fn settle(fields: &mut Fields, base: Option<&Fields>, shot: &Shot) {
    if is_named(fields) && float(fields, "crop") == 0.0 {
        forget(fields);
    }
    let by_hand = ["tca_r", "tca_b"].iter().any(|name| float(fields, name) != 1.0);
    let (bent, dark) = (float(fields, "cor_dist_ft") != 0.0, float(fields, "cor_vig_ft") != 0.0);
    let flags = whole(fields, "modify_flags");
    let extra = if by_hand { FRINGES } else { 0 };
    let (flags, told) = match base {
        Some(base) => {
            let own = whole(base, "modify_flags");
            let alone = flags == own | FRINGES;
            (if alone { own } else { flags } | extra, whole(base, "tca_override"))
        }
        None => {
            let on = flags & (DISTORTION | VIGNETTING) != 0 || flags & FRINGES != 0 && !bent && !dark;
            let wanted = [(true, FRINGES), (dark, VIGNETTING), (bent, DISTORTION)];
            let all = wanted.iter().filter(|(wanted, _)| on && *wanted).map(|(_, flag)| flag).sum::<i64>();
            (all | extra, 0)
        }
    };
    fields.insert("modify_flags".into(), Value::Int(flags));
    fields.insert("tca_override".into(), Value::Int(if by_hand { 1 } else { told }));
    if is_named(fields) {
        // A lens that was chosen. What was not said of it is the file's.
        for (name, told) in [("focal", shot.focal), ("aperture", shot.aperture)] {
            if base.is_none() && float(fields, name) == 0.0 {
                fields.insert(name.into(), Value::Float(told.unwrap_or(0.0) as f32));
            }
        }
    } else if by_hand || ![0, ALL].contains(&flags) {
        let profile = flags & (DISTORTION | VIGNETTING) != 0 || !by_hand;
        match (&shot.camera, &shot.lens) {
            (Some(camera), Some(lens)) if profile => {
                let at = [shot.focal, shot.aperture].map(|told| told.unwrap_or(0.0) as f32);
                name(fields, [camera, lens], at);
            }
            _ => {
                name(fields, FAULTLESS, FAULTLESS_AT);
                // Nothing is bent, and nothing has to be fitted: the frame stays as it is to the pixel.
                fields.insert("scale".into(), Value::Float(1.0));
            }
        }
    }
}

/// Takes out the lens that was named, so that the file's counts again.
pub(crate) fn forget(fields: &mut Fields) {
    name(fields, ["", ""], [0.0, 0.0]);
    for (field, value) in [("distance", 0.0), ("scale", 1.0), ("crop", 0.0)] {
        fields.insert(field.into(), Value::Float(value));
    }
    for (field, value) in [(switch(fields), 0), ("target_geom", 1)] {
        fields.insert(field.into(), Value::Int(value));
    }
}

/// Whether nothing is corrected.
pub(crate) fn at_rest(fields: &Fields) -> bool {
    whole(fields, "modify_flags") == 0
}

/// Whether the lens is named here, and not by the file.
fn is_named(fields: &Fields) -> bool {
    whole(fields, switch(fields)) == 1
}

/// The field that says whether the others count.
fn switch(fields: &Fields) -> &'static str {
    if fields.contains_key("has_been_set") { "has_been_set" } else { "modified" }
}

/// Names a lens, without the crop factor that comes with one that somebody has chosen.
fn name(fields: &mut Fields, [camera, lens]: [&str; 2], [focal, aperture]: [f32; 2]) {
    for (field, text) in [("camera", camera), ("lens", lens)] {
        fields.insert(field.into(), Value::Text(short(text)));
    }
    for (field, value) in [("focal", focal), ("aperture", aperture), ("distance", FAR), ("scale", 0.0)] {
        fields.insert(field.into(), Value::Float(value));
    }
    for (field, value) in [(switch(fields), 1), ("target_geom", 0)] {
        fields.insert(field.into(), Value::Int(value));
    }
}

/// As much of a name as darktable has room for, with a final NUL.
fn short(text: &str) -> String {
    let room = |(at, c): &(usize, char)| at + c.len_utf8() < 128;
    text.char_indices().take_while(room).map(|(_, c)| c).filter(|c| *c != '\0').collect()
}

fn whole(fields: &Fields, name: &str) -> i64 {
    match fields.get(name) {
        Some(Value::Int(value)) => *value,
        _ => 0,
    }
}

fn float(fields: &Fields, name: &str) -> f32 {
    match fields.get(name) {
        Some(Value::Float(value)) => *value,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::made;
    use crate::vocabulary::testing::Photo;
    use crate::vocabulary::{PhotoEdit, Selection, Selector, Vocabulary};
    use base::assets::Overlay;
    use darktable::lensfun::{Camera, Fitted, Lens};
    use darktable::state::{EditState, Params};

    fn fitted(lens: &str, focal: (f64, f64)) -> Fitted {
        let (maker, mounts) = (String::new(), vec![String::new()]);
        let model = lens.to_owned();
        let lens = Lens { maker, model, mounts, crop: 1.0, focal: Some(focal), vignetting: true };
        let (maker, mount) = (String::new(), String::new());
        Fitted { lens, camera: Camera { maker, model: "A camera".into(), mount, crop: 1.5 } }
    }

    /// A photo whose file names its lens, with the moves of two other lenses.
    fn photo() -> Photo {
        let folder = tempfile::tempdir().unwrap();
        made::lens("sun", &fitted("Sun 58mm", (58.0, 58.0)), None, Some(2.0)).save(folder.path()).unwrap();
        made::lens("zoom", &fitted("A zoom", (18.0, 55.0)), None, None).save(folder.path()).unwrap();
        let mut photo = Photo::new();
        photo.vocabulary = Vocabulary::load(&Overlay::vocabulary(Some(folder.path().to_owned()))).unwrap();
        photo.facts.shot = Shot {
            camera: Some("Its camera".into()),
            lens: Some("Its lens".into()),
            focal: Some(35.0),
            aperture: Some(5.6),
        };
        photo
    }

    fn fields(state: &EditState) -> Option<Fields> {
        match &state.module("lens", 0)?.params {
            Params::Fields(fields) => Some(fields.clone()),
            Params::Opaque(_) => None,
        }
    }

    /// Lens, focal length, aperture, what is corrected, and whether fringes are set by hand.
    fn seen(state: &EditState) -> (String, f32, f32, i64, i64) {
        let fields = fields(state).unwrap();
        let Some(Value::Text(lens)) = fields.get("lens") else { panic!("lens") };
        let [focal, aperture] = ["focal", "aperture"].map(|name| float(&fields, name));
        (lens.clone(), focal, aperture, whole(&fields, "modify_flags"), whole(&fields, "tca_override"))
    }

    #[test]
    fn the_files_own_lens_is_named_only_where_not_all_of_it_is_corrected() {
        let mut photo = photo();
        let untouched = photo.state.clone();
        photo.apply("lens_correction", &[], None);
        assert_eq!(seen(&photo.state), (String::new(), 0.0, 0.0, 7, 0));
        let whole = photo.state.clone();
        for (values, flags) in
            [([1.0, 0.0], 5), ([0.0, 1.0], 3), ([0.0, 0.0], 1)].map(|([d, v], flags)| ([d, v], flags))
        {
            photo.apply("lens_correction", &[("distortion", values[0]), ("vignetting", values[1])], None);
            assert_eq!(seen(&photo.state), ("Its lens".into(), 35.0, 5.6, flags, 0));
        }
        photo.apply("lens_correction", &[], None);
        assert_eq!(photo.state, whole);
        photo.apply("lens_fringes", &[], None);
        assert_eq!(seen(&photo.state), ("Its lens".into(), 35.0, 5.6, 7, 1));
        photo.apply("lens_correction", &[("on", 0.0)], None);
        assert_eq!(seen(&photo.state), (FAULTLESS[1].into(), 50.0, 8.0, 1, 1));
        photo.apply("lens_fringes", &[("red", 0.0), ("blue", 0.0)], None);
        assert_eq!(photo.state, untouched);
    }

    #[test]
    fn a_chosen_lens_adds_up_with_the_other_moves_in_any_order_and_comes_off() {
        let mut photo = photo();
        let untouched = photo.state.clone();
        let steps: [(&str, &[(&str, f64)]); 3] =
            [("sun", &[]), ("lens_correction", &[("distortion", 0.0)]), ("lens_fringes", &[("red", 1.0)])];
        let mut states = Vec::new();
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            photo.state = untouched.clone();
            for at in order {
                photo.apply(steps[at].0, steps[at].1, None);
            }
            assert_eq!(seen(&photo.state), ("Sun 58mm".into(), 58.0, 2.0, 3, 1), "{order:?}");
            states.push(photo.state.hash());
        }
        states.dedup();
        assert_eq!(states.len(), 1);
        // Another lens takes its place; what is not given for a zoom is the file's.
        photo.apply("zoom", &[("aperture", 11.0)], None);
        assert_eq!(seen(&photo.state), ("A zoom".into(), 35.0, 11.0, 3, 1));
        photo.apply("lens_correction", &[], None);
        photo.apply("sun", &[("aperture", 4.0)], None);
        assert_eq!(seen(&photo.state), ("Sun 58mm".into(), 58.0, 4.0, 7, 1));
        let fringes = Selector::Move("lens_fringes".into());
        photo.state = photo.vocabulary.remove_module(&photo.state, &fringes, &photo.facts).unwrap();
        photo.apply("sun", &[("on", 0.0)], None);
        assert_eq!(photo.state, untouched);
    }

    #[test]
    fn another_photo_gets_the_correction_for_its_own_lens() {
        let photo = photo();
        let mut source = Photo { vocabulary: Photo::new().vocabulary, ..photo };
        source.apply("lens_correction", &[("vignetting", 0.0)], None);
        let mut target = source.facts.clone();
        target.shot.lens = Some("Another".into());
        target.shot.focal = None;
        let selection = Selection { modules: vec!["lens".into()], ..Selection::default() };
        let from = PhotoEdit { state: &source.state, facts: &source.facts };
        let to = PhotoEdit { state: &target.baseline, facts: &target };
        let edits = source.vocabulary.edits(from, &selection).unwrap();
        let new = source.vocabulary.propagate(&edits, to, &source.layouts).unwrap();
        assert_eq!(seen(&new), ("Another".into(), 0.0, 5.6, 5, 0));
    }

    #[test]
    fn an_edit_that_was_taken_over_keeps_its_lens() {
        let mut photo = photo();
        photo.vocabulary = Photo::new().vocabulary;
        photo.apply("lens_correction", &[], None);
        photo.facts.baseline = photo.state.clone();
        for (field, value) in [
            ("lens", Value::Text("Taken over".into())),
            ("crop", Value::Float(1.5)),
            ("modified", Value::Int(1)),
            ("modify_flags", Value::Int(6)),
        ] {
            photo.set_base("lens", field, value);
        }
        let untouched = photo.state.clone();
        photo.apply("lens_fringes", &[("blue", 2.0)], None);
        assert_eq!(seen(&photo.state), ("Taken over".into(), 0.0, 0.0, 7, 1));
        photo.apply("lens_fringes", &[("red", 0.0), ("blue", 0.0)], None);
        assert_eq!(photo.state, untouched);
    }
}
