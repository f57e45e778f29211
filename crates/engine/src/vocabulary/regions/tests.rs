use super::*;
use crate::vocabulary::Selector;
use crate::vocabulary::testing::Photo;

fn batch(photo: &Photo, name: Option<&str>, regions: &str) -> Result<AppliedRegions, RegionsError> {
    let regions: Vec<Region> = serde_json::from_str(regions).unwrap();
    let request = RegionsRequest { move_name: name, regions: &regions };
    photo.vocabulary.apply_regions(&request, &photo.state, &photo.facts, &photo.layouts, "4.2.1")
}

/// Circles from left to right with these values of `exposure`.
fn circles(values: &[f64]) -> String {
    let one =
        |(at, ev): (usize, &f64)| format!(r#"{{"mask":{},"parameter_values":{{"ev":{ev}}}}}"#, circle(at));
    format!("[{}]", values.iter().enumerate().map(one).collect::<Vec<_>>().join(","))
}

fn circle(at: usize) -> String {
    format!(r#"{{"shape":"circle","center":[{},0.5],"radius":0.05}}"#, (at + 1) as f64 / 50.0)
}

const TWO_MOVES: &str = r#"[
    {"mask":{"shape":"circle","center":[0.3,0.5],"radius":0.1},
     "ops":[{"primitive_name":"exposure","parameter_values":{"ev":0.3}},{"primitive_name":"saturation"}]},
    {"mask_spec":{"shape":"circle","center":[0.7,0.5],"radius":0.1},"ops":[{"primitive_name":"saturation"}]}]"#;

#[test]
fn a_batch_is_its_moves_one_by_one_and_the_same_again_is_the_same() {
    let photo = Photo::new();
    let values = [0.3, -0.4, 0.2, -0.1, 0.5, 0.6];
    let applied = batch(&photo, Some("exposure"), &circles(&values)).unwrap();
    let mut one_by_one = Photo::new();
    for (at, ev) in values.iter().enumerate() {
        one_by_one.apply("exposure", &[("ev", *ev)], Some(&circle(at)));
    }
    assert_eq!(applied.state.hash(), one_by_one.state.hash());
    assert_eq!(applied.moves.iter().map(|done| done.region).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    // The instance that is reported carries the move, though later regions renumbered it.
    for (done, ev) in applied.moves.iter().zip(values) {
        let carrier = applied.state.module("exposure", done.instance).unwrap();
        assert_eq!(f64::from(crate::vocabulary::testing::float(carrier, "exposure")), f64::from(ev as f32));
    }
    let again = Photo { state: applied.state.clone(), ..Photo::new() };
    assert_eq!(batch(&again, Some("exposure"), &circles(&values)).unwrap(), applied);
}

#[test]
fn regions_may_each_have_their_own_moves() {
    let photo = Photo::new();
    let applied = batch(&photo, None, TWO_MOVES).unwrap();
    let names: Vec<(usize, &str)> = applied.moves.iter().map(|m| (m.region, m.name.as_str())).collect();
    assert_eq!(names, [(0, "exposure"), (0, "saturation"), (1, "saturation")]);
    // The shape that two moves share is stored once: a circle and its group for each region.
    assert_eq!(applied.state.masks.len(), 4);
}

#[test]
fn one_region_comes_off_and_leaves_the_others() {
    let mut photo = Photo::new();
    let applied = batch(&photo, Some("exposure"), &circles(&[0.3, -0.4, 0.2])).unwrap();
    let gone = applied.moves[1].instance;
    photo.state = applied.state;
    let selector = Selector::Module { op: "exposure".into(), instance: Some(gone) };
    photo.state = photo.vocabulary.remove_module(&photo.state, &selector, &photo.facts).unwrap();
    let mut two = Photo::new();
    two.apply("exposure", &[("ev", 0.3)], Some(&circle(0)));
    two.apply("exposure", &[("ev", 0.2)], Some(&circle(2)));
    assert_eq!(photo.state.hash(), two.state.hash());
    // A region at the move's neutral value comes off too.
    let third = format!(r#"[{{"mask":{},"parameter_values":{{"ev":0}}}}]"#, circle(2));
    photo.state = batch(&photo, Some("exposure"), &third).unwrap().state;
    assert_eq!(photo.state.modules.iter().filter(|m| m.instance > 0).count(), 1);
    photo.state = photo
        .vocabulary
        .remove_module(&photo.state, &Selector::Move("exposure".into()), &photo.facts)
        .unwrap();
    assert_eq!(photo.state.hash(), photo.facts.baseline.hash());
}

#[test]
fn a_batch_has_one_to_thirty_two_regions_and_at_most_sixty_four_moves() {
    let photo = Photo::new();
    let count = |n: usize| batch(&photo, Some("exposure"), &circles(&vec![0.5; n]));
    assert_eq!(count(0).unwrap_err(), RegionsError::Empty);
    assert_eq!(count(1).unwrap().moves.len(), 1);
    let most = count(32).unwrap();
    assert_eq!(most.state.modules.iter().filter(|m| m.instance > 0).count(), 32);
    let error = count(33).unwrap_err();
    assert!(error.to_string().contains("33 regions") && error.to_string().contains("32"), "{error}");
    let ops = [r#"{"primitive_name":"exposure"}"#; 5].join(",");
    let region = |at| format!(r#"{{"mask":{},"ops":[{ops}]}}"#, circle(at));
    let regions = (0..13).map(region).collect::<Vec<_>>().join(",");
    assert_eq!(batch(&photo, None, &format!("[{regions}]")).unwrap_err(), RegionsError::Moves { count: 65 });
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let photo = Photo::new();
    let mut values = vec![0.5; 12];
    values[4] = 9.0;
    values[9] = 9.0;
    let error = batch(&photo, Some("exposure"), &circles(&values)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "regions[4], regions[9]: `ev` of `exposure` cannot be 9: it goes from -3 to 3 EV (counted from 0); nothing was applied"
    );
    assert_eq!(error.code(), ErrorCode::InvalidInput);
    let refused = |name, regions: &str| batch(&photo, name, regions).unwrap_err().to_string();
    let mask = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.1}"#;
    let [plain, both, far] = [
        format!(r#"{{"mask":{mask}}}"#),
        format!(r#"{{"mask":{mask},"ops":[{{"primitive_name":"exposre"}}]}}"#),
        format!(r#"{{"mask":{}}}"#, mask.replace("0.1", "99")),
    ];
    let said = refused(Some("warmth"), &format!("[{plain},{plain}]"));
    assert!(said.starts_with("regions[0], regions[1]: `warmth` cannot be masked"), "{said}");
    assert!(refused(Some("exposure"), &format!("[{both}]")).contains("regions[0]: it has `ops`"));
    assert!(refused(None, &format!("[{plain}]")).contains("it has no move"));
    assert!(refused(None, &format!("[{both}]")).contains("did you mean `exposure`"));
    assert!(refused(None, &circles(&[0.5])).contains("belong to no move"));
    let error = batch(&photo, Some("exposure"), &format!("[{plain},{far}]")).unwrap_err();
    assert!(error.to_string().starts_with("regions[1]: the mask is not usable: `radius`"), "{error}");
    assert_eq!(error.code(), ErrorCode::MaskingError);
}

#[test]
fn one_place_twice_is_an_error_that_names_both() {
    let photo = Photo::new();
    let mask = |more: &str| format!(r#"{{"shape":"circle","center":[0.5,0.5],"radius":0.1{more}}}"#);
    let region = |mask: String, ev: f64| format!(r#"{{"mask":{mask},"parameter_values":{{"ev":{ev}}}}}"#);
    for (second, ev) in [(mask(""), 0.5), (mask(r#","opacity":0.5"#), 0.5), (mask(""), 0.0)] {
        let regions = format!(
            "[{},{},{}]",
            circles(&[0.2]).trim_matches(['[', ']']),
            region(mask(""), 0.3),
            region(second, ev)
        );
        let error = batch(&photo, Some("exposure"), &regions).unwrap_err().to_string();
        assert!(error.starts_with("regions[2]: ") && error.contains("of regions[1] again"), "{error}");
    }
    // Around the circle is another place than in it, and another move another instance.
    let around = region(mask(r#","invert":true"#), 0.5);
    assert!(batch(&photo, Some("exposure"), &format!("[{},{around}]", region(mask(""), 0.3))).is_ok());
}

#[test]
fn the_schema_does_not_repeat_every_shape() {
    let schema = schemars::schema_for!(Region).to_value().to_string();
    assert!(
        schema.len() < 1_500 && schema.contains("As `mask` of apply_primitive"),
        "{}: {schema}",
        schema.len()
    );
}
