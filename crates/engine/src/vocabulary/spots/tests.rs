use super::*;
use crate::vocabulary::Selector;
use crate::vocabulary::testing::Photo;
use darktable::render::Picture;
use darktable::state::MaskForm;

fn try_put(photo: &Photo, spots: &str) -> Result<AppliedSpots, SpotError> {
    let spots: Vec<Spot> = serde_json::from_str(spots).unwrap();
    photo.vocabulary.apply_spots(&spots, &photo.state, &photo.facts, &photo.layouts, "4.2.1")
}

fn put(photo: &mut Photo, spots: &str) -> AppliedSpots {
    let applied = try_put(photo, spots).unwrap();
    photo.state = applied.state.clone();
    applied
}

fn ids(photo: &Photo) -> Vec<i32> {
    let module = photo.state.module(OP, 0).unwrap();
    rows(module, &photo.state.masks).unwrap().iter().map(|row| row.form.id).collect()
}

const ONE: &str = r#"[{"x":0.5,"y":0.5}]"#;

#[test]
fn spots_gather_in_one_instance_and_come_off_again() {
    let mut photo = Photo::new();
    put(&mut photo, ONE);
    let one = photo.state.clone();
    let applied = put(&mut photo, r#"[{"action":"clone","x":0.2,"y":0.3,"radius":0.05,"source":[0.4,0.3]}]"#);
    assert_eq!((applied.standing, photo.state.modules.iter().filter(|m| m.op == OP).count()), (2, 1));
    let module = photo.state.module(OP, 0).unwrap();
    let Params::Fields(fields) = &module.params else { panic!("fields") };
    let (Value::Ints(ids), Value::Ints(algorithms)) = (&fields["rt_forms.formid"], &fields[ALGORITHM]) else {
        panic!("lists")
    };
    assert_eq!((ids.len(), &algorithms[..3]), (MOST, &[2, 1, 0][..]));
    assert_eq!(fields["max_heal_iter"], Value::Int(2000));
    // Two circles and their group; the clone's source is where it was requested.
    assert_eq!(photo.state.masks.len(), 3);
    let clone = photo.state.masks.iter().find(|form| i64::from(form.id) == ids[1]).unwrap();
    assert_eq!(clone.source, [0.4, 0.3]);
    let applied = put(&mut photo, r#"[{"action":"remove","x":0.21,"y":0.31}]"#);
    assert_eq!((applied.standing, photo.state.hash()), (1, one.hash()));
    put(&mut photo, r#"[{"action":"remove","x":0.5,"y":0.5}]"#);
    assert_eq!(photo.state.hash(), photo.facts.baseline.hash());
}

#[test]
fn the_same_spot_is_the_same_state_and_another_radius_replaces_it() {
    let mut photo = Photo::new();
    put(&mut photo, ONE);
    let (once, first) = (photo.state.hash(), ids(&photo));
    put(&mut photo, ONE);
    assert_eq!(photo.state.hash(), once);
    // A neighbour takes the first one's source; the first keeps what it was given.
    put(&mut photo, r#"[{"x":0.54,"y":0.5}]"#);
    let both = photo.state.hash();
    put(&mut photo, ONE);
    assert_eq!(photo.state.hash(), both);
    put(&mut photo, r#"[{"x":0.5,"y":0.5,"radius":0.03}]"#);
    assert_eq!(ids(&photo).len(), 2);
    assert_ne!(ids(&photo)[0], first[0]);
    assert_eq!(photo.state.masks.len(), 3, "the form of the old radius is gone");
}

#[test]
fn later_moves_keep_the_spots_forms() {
    let mut photo = Photo::new();
    put(&mut photo, ONE);
    let before = photo.state.masks.clone();
    photo.apply("exposure", &[("ev", 0.5)], None);
    assert_eq!(photo.state.masks, before);
    let retouch = Selector::Module { op: OP.into(), instance: None };
    photo.state = photo.vocabulary.remove_module(&photo.state, &retouch, &photo.facts).unwrap();
    assert!(photo.state.masks.is_empty() && photo.state.module(OP, 0).is_none());
}

#[test]
fn a_source_is_found_in_the_frame_and_clear_of_other_spots() {
    let photo = Photo::new();
    let source = |spots: &str| try_put(&photo, spots).unwrap().spots[0].source.unwrap();
    // 2.5 radii of 4 pixels to the right, of 300.
    assert_eq!(source(ONE), [0.5333, 0.5]);
    // At the right edge it is to the left, in a corner it is where there is room.
    assert_eq!(source(r#"[{"x":0.98,"y":0.5}]"#), [0.9467, 0.5]);
    assert_eq!(source(r#"[{"x":0.99,"y":0.01}]"#), [0.9664, 0.0454]);
    // A spot to the right and one to the left.
    assert_eq!(source(r#"[{"x":0.5,"y":0.5},{"x":0.53,"y":0.5},{"x":0.47,"y":0.5}]"#), [0.5, 0.55]);
}

#[test]
fn what_cannot_be_meant_is_refused_and_all_of_it_is_named() {
    let photo = Photo::new();
    let error = try_put(&photo, r#"[{"x":0.5,"y":1.2},{"x":0.5,"y":0.5},{"x":0.5,"y":0.5,"radius":0.9},{"action":"remove","x":0.1,"y":0.1},{"x":0.3,"y":0.3,"source":[0.301,0.3]}]"#)
        .unwrap_err()
        .to_string();
    for words in [
        "spots[0]: `y` cannot be 1.2",
        "spots[2]: `radius` cannot be 0.9: it goes from 0.002 to 0.25",
        "spots[3]: no spot stands at 0.1, 0.1",
        "spots[4]: its `source` lies in the spot",
        "nothing was applied",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(!error.contains("spots[1]"), "{error}");
    assert!(matches!(try_put(&photo, "[]"), Err(SpotError::Empty)));
    let refused = |spot: &str| try_put(&photo, &format!("[{spot}]")).unwrap_err().to_string();
    for (spot, words) in [
        (r#"{"x":0.5}"#, "where `x` and `y` say"),
        (r#"{"x":0.5,"y":0.5,"path":[[0,0],[1,0],[0,1]]}"#, "where `x` and `y` say"),
        (r#"{"path":[[0,0],[1,0]]}"#, "2 corners; it needs 3 to 64"),
        (r#"{"path":[[0,0],[1,0],[0.5,0]]}"#, "encloses next to nothing"),
        (r#"{"path":[[0,0],[1,0],[0,1.5]]}"#, "`path` cannot be 1.5"),
        (r#"{"path":[[0,0],[1,0],[0,1]],"radius":0.1}"#, "has no `radius`"),
        (r#"{"action":"remove","path":[[0,0],[1,0],[0,1]]}"#, "taken back by a point in it"),
        (r#"{"action":"blur","x":0.5,"y":0.5,"source":[0.1,0.1]}"#, "takes nothing from a `source`"),
        (r#"{"action":"blur","x":0.5,"y":0.5,"blur_radius":0.2}"#, "goes from 0.0005 to 0.1"),
        (r#"{"x":0.5,"y":0.5,"blur_radius":0.02}"#, "belongs to the action `blur`"),
        (r#"{"x":0.5,"y":0.5,"color":[0,0,0]}"#, "belongs to the action `fill`"),
        (r#"{"action":"fill","x":0.5,"y":0.5}"#, "its colour was not measured"),
    ] {
        assert!(refused(spot).contains(words), "{words}: {}", refused(spot));
    }
    let error = try_put(&photo, r#"[{"x":0.5,"y":0.5,"radius":0.25}]"#).unwrap_err().to_string();
    assert!(error.contains("give its `source`"), "{error}");
    let spots: Vec<Spot> = (0..301)
        .map(|i| Spot {
            action: SpotAction::Clone,
            x: Some(f64::from(i) / 310.0),
            y: Some(0.3),
            radius: Some(0.002),
            source: Some([0.5, 0.9]),
            ..Spot::default()
        })
        .collect();
    let many = |count: usize| {
        photo.vocabulary.apply_spots(&spots[..count], &photo.state, &photo.facts, &photo.layouts, "4.2.1")
    };
    assert_eq!(many(300).unwrap().standing, 300);
    assert!(matches!(many(301), Err(SpotError::TooMany { count: 301 })));
}

#[test]
fn a_photo_that_lies_on_its_side_has_its_spots_where_they_are_seen() {
    let mut photo = Photo::new().upright();
    photo.apply("crop_left", &[("margin", 0.4)], None);
    put(&mut photo, r#"[{"x":0.5,"y":0.25,"radius":0.1}]"#);
    let circle = |form: &&MaskForm| matches!(forms::without_clone(form), Some(Shape::Circle { .. }));
    let form = photo.state.masks.iter().find(circle).unwrap();
    let Some(Shape::Circle { center, radius, .. }) = forms::without_clone(form) else { panic!("a circle") };
    // Shown are 120 by 300 of 200 by 300 pixels: the centre is at (140, 75), which is the raw's (75, 60 from below).
    assert_eq!(center, [0.25, 0.3]);
    assert_eq!(radius, 12.0 / 200.0);
    assert_eq!(put(&mut photo, r#"[{"action":"remove","x":0.5,"y":0.25}]"#).standing, 0);
}

#[test]
fn an_outline_takes_from_beside_it_and_is_taken_back_by_a_point_in_it() {
    let mut photo = Photo::new();
    let untouched = photo.state.hash();
    // A wire from edge to edge, 4 of 200 pixels high.
    let wire = r#"{"path":[[0,0.5],[1,0.5],[1,0.52],[0,0.52]]}"#;
    let applied = put(&mut photo, &format!("[{wire}]"));
    let [x, y] = applied.spots[0].source.unwrap();
    assert!(x == 0.5 && (y - 0.51).abs() > 0.02, "above or below it: {x}, {y}");
    let once = photo.state.hash();
    assert_eq!(put(&mut photo, &format!("[{wire}]")).spots[0].source, Some([x, y]));
    assert_eq!(photo.state.hash(), once);
    // Its first corner comes from as far away as all of it.
    let module = photo.state.module(OP, 0).unwrap();
    let form = &rows(module, &photo.state.masks).unwrap()[0].form;
    let off = [f64::from(form.source[0]), f64::from(form.source[1]) - 0.5];
    assert!((off[0] - (x - 0.5)).abs() < 1e-4 && (off[1] - (y - 0.51)).abs() < 1e-4, "{off:?}");
    // A spot beside it does not take from it; another action in the same outline replaces it.
    let beside = put(&mut photo, r#"[{"x":0.5,"y":0.45,"radius":0.02}]"#).spots[0].source.unwrap();
    assert!((beside[1] - 0.51).abs() > 0.02, "{beside:?}");
    let blurred = format!(r#"[{{"action":"blur",{}]"#, &wire[1..]);
    assert_eq!(put(&mut photo, &blurred).standing, 2);
    assert_eq!(put(&mut photo, r#"[{"action":"remove","x":0.2,"y":0.51}]"#).standing, 1);
    assert!(try_put(&photo, r#"[{"action":"remove","x":0.2,"y":0.51}]"#).is_err());
    put(&mut photo, r#"[{"action":"remove","x":0.5,"y":0.45}]"#);
    assert_eq!(photo.state.hash(), untouched);
}

#[test]
fn a_fill_keeps_the_colour_that_was_measured_once() {
    let mut photo = Photo::new();
    let asked: Vec<Spot> = serde_json::from_str(r#"[{"action":"fill","x":0.5,"y":0.5}]"#).unwrap();
    let place = |photo: &Photo| {
        let spots = photo.vocabulary.place_spots(&asked, &photo.state, &photo.facts, &photo.layouts, "4.2.1");
        spots.unwrap()
    };
    let mut spots = place(&photo);
    assert!(fill::is_wanting(&spots[0]) && spots[0].source.is_some());
    let picture = Picture { width: 300, height: 200, rgb: [0, 255, 188].repeat(300 * 200) };
    fill::measure(&mut spots, &picture);
    let color = spots[0].color.unwrap();
    assert!(color[0] == 0.0 && color[1] == 1.0 && (color[2] - 0.503).abs() < 0.001, "{color:?}");
    photo.state = photo
        .vocabulary
        .apply_spots(&spots, &photo.state, &photo.facts, &photo.layouts, "4.2.1")
        .unwrap()
        .state;
    assert!(!fill::is_wanting(&place(&photo)[0]));
    let again =
        photo.vocabulary.apply_spots(&asked, &photo.state, &photo.facts, &photo.layouts, "4.2.1").unwrap();
    assert_eq!(again.state.hash(), photo.state.hash());
}
