//! However the camera was held, and whatever was done to the frame: masks, spots and shown masks lie where they were
//! drawn on the displayed picture. Photos are taken in by the program itself, and darktable renders them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::sync::LazyLock;

use darktable::dng::{DngOptions, write_dng};
use darktable::render::Picture;
use testkit::frames::{
    EDITS, Home, LONG, SHORT, Seen, Taken, both, broken, difference, marred, scene, stored, table,
};

/// Held upright by a camera whose sensor stands on end: what the others that show an upright picture are held against.
const TALL: &str = "tall";

/// All edits of the frame on the scene, as it is stored in each of the eight orientations.
static TABLE: LazyLock<Vec<Seen>> = LazyLock::new(|| {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let mut wanted: Vec<(String, u16, [u32; 2])> =
        (1..=4).map(|o| (format!("orientation {o}"), o, [LONG, SHORT])).collect();
    wanted.extend((5..=8).map(|o| (format!("orientation {o}"), o, [SHORT, LONG])));
    wanted.push((TALL.to_owned(), 1, [SHORT, LONG]));
    let photos = both(&wanted, |(name, orientation, [width, height])| {
        let scene = scene(*width, *height);
        let options = DngOptions { noise: 0.0, orientation: *orientation, ..DngOptions::default() };
        let raw = |picture: &Picture| write_dng(&stored(picture, *orientation), &options).unwrap();
        Taken::new(&home, &format!("{name}.dng"), &raw(&marred(&scene)), &raw(&scene))
    });
    table(&home, &photos, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
});

fn none(broken: Vec<String>) {
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), TABLE.len(), broken.join("\n"));
}

#[test]
fn every_shape_acts_where_it_is_drawn() {
    none(broken::refused(&TABLE));
    none(broken::shapes(&TABLE));
}

#[test]
fn a_mask_is_shown_where_it_acts() {
    none(broken::shown(&TABLE));
}

#[test]
fn straightened_pictures_keep_their_shape_and_have_no_empty_corners() {
    none(broken::corners(&TABLE));
}

#[test]
fn every_blemish_is_healed_and_nothing_beside_it_changes() {
    none(broken::spots(&TABLE));
}

#[test]
fn the_same_edit_shows_the_same_picture_however_the_camera_was_held() {
    let find = |photo: &str, edit: &str| {
        TABLE.iter().find(|seen| seen.photo == photo && seen.edit == edit).unwrap().clean.clone()
    };
    let mut far = Vec::new();
    for seen in TABLE.iter() {
        let tall = seen.photo == TALL || seen.photo.as_str() > "orientation 4";
        let other = if tall { TALL } else { "orientation 1" };
        let off = difference(&seen.clean, &find(other, seen.edit));
        if !off.is_some_and(|off| off < 1.0) {
            far.push(format!("{}, {}: {off:?}", seen.photo, seen.edit));
        }
    }
    none(far);
    // It would be seen: the scene and its mirror image are far apart.
    let plain = find("orientation 1", EDITS[0].0);
    assert!(difference(&plain, &stored(&plain, 2)).unwrap() > 5.0);
}
