//! Things found by at most four points, as darktable masks them: intersection over union at half effect.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use darktable::dng::DngOptions;
use engine::vocabulary::{MaskSpec, ObjectSpec};
use pixels::Picture;
use testkit::demo::Demo;
use testkit::objects;

/// The mask that darktable makes of each, on a raw of the same shape: where it lies is all that counts.
fn measured(cases: &[&objects::Case]) -> Vec<(f64, f64)> {
    let options = DngOptions { noise: 0.0, ..DngOptions::default() };
    let demo = Demo::with(&cases[0].picture, &options);
    let probe = |case: &&objects::Case| {
        let object = ObjectSpec {
            inside: case.inside.clone(),
            outside: case.outside.clone(),
            ..ObjectSpec::default()
        };
        let mask = MaskSpec { object: Some(object), ..MaskSpec::default() }.find(&case.picture).unwrap();
        demo.vocabulary.mask_probe(&mask, &demo.facts.baseline, &demo.facts, &demo.layouts).unwrap()
    };
    let probes: Vec<_> = cases.iter().map(probe).collect();
    let states: Vec<_> =
        probes.iter().flat_map(|probe| [probe.without.clone(), probe.with.clone()]).collect();
    let pictures = demo.render_all(&states);
    let agreement = |(at, case): (usize, &&objects::Case)| {
        let shown = probes[at].read(&pictures[2 * at], &pictures[2 * at + 1]).unwrap();
        let (width, height) = (pictures[2 * at].width, pictures[2 * at].height);
        let Picture { width: wide, height: high, .. } = case.picture;
        let (mut shared, mut either) = (0.0, 0.0);
        for (pixel, effect) in shown.effect().iter().enumerate() {
            let (x, y) = (pixel as u32 % width, pixel as u32 / width);
            let [x, y] = [(x * wide + wide / 2) / width, (y * high + high / 2) / height];
            let (found, truth) = (*effect >= 0.5, case.truth[(y * wide + x) as usize]);
            shared += f64::from(u8::from(found && truth));
            either += f64::from(u8::from(found || truth));
        }
        (shared / either, shown.covered())
    };
    cases.iter().enumerate().map(agreement).collect()
}

#[test]
fn four_points_mask_most_things_in_darktable() {
    let all = [objects::scenes(), objects::photos()].concat();
    // In hundredths.
    let shape = |case: &objects::Case| {
        let Picture { width, height, .. } = case.picture;
        (100 * width + height / 2) / height
    };
    let mut shapes: Vec<u32> = all.iter().map(shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let mut found = Vec::new();
    for one in shapes {
        let alike: Vec<_> = all.iter().filter(|case| shape(case) == one).collect();
        for (case, (shared, covered)) in alike.iter().zip(measured(&alike)) {
            assert!(case.inside.len() + case.outside.len() <= 4, "{}", case.name);
            println!("{:28} {shared:.2}  covers {:.1} %", case.name, 100.0 * covered);
            found.push(shared);
        }
    }
    found.sort_by(f64::total_cmp);
    let median = found[found.len() / 2];
    println!("{} things: median {median:.3}, worst {:.2}", found.len(), found[0]);
    assert!(found.len() >= 30 && median >= 0.85, "{median}");
    assert!(found[0] >= 0.6, "{found:?}");
}
