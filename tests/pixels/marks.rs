//! Words in a corner of the picture, from the command to the pixels of the installed darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use base::error::ErrorCode;
use darktable::render::{Picture, Renderer};
use engine::vocabulary::Selector;
use testkit::frames;
use testkit::frames::Home;

const GREY: u8 = 90;

/// Left, top, right and bottom of what is brighter than the grey picture, and how much brighter it is at most.
fn ink(picture: &Picture) -> Option<([u32; 4], u8)> {
    let pixels = picture.rgb.chunks_exact(3).zip(0_u32..);
    let bright = pixels.filter(|(pixel, _)| pixel[1] > GREY + 3);
    bright.fold(None, |found, (pixel, at)| {
        let (x, y) = (at % picture.width, at / picture.width);
        let ([l, t, r, b], most) = found.unwrap_or(([x, y, x, y], 0));
        Some(([l.min(x), t.min(y), r.max(x), b.max(y)], most.max(pixel[1] - GREY)))
    })
}

#[test]
fn words_stand_where_and_as_strongly_as_asked_and_are_the_same_every_time() {
    let mut home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let sizes = [[600_u32, 400], [400, 600]];
    let places = ["top-left", "top", "top-right", "bottom-left", "bottom", "bottom-right"];
    for place in places {
        let name = format!("mark_{}", place.replace('-', "_"));
        home.ok(&["vocab", "mark", "© Ann & Bob", "--name", &name, "--place", place]);
    }
    home.ok(&["vocab", "mark", "Hx", "--name", "small", "--size", "2"]);
    home.ok(&["vocab", "mark", "HxHxHxHxHx <Hx>", "--name", "large", "--size", "4"]);
    for bad in ["two\nlines", "$(YEAR)", ""] {
        let refused = home.run(&["vocab", "mark", bad]).status.code();
        assert_eq!(refused, Some(i32::from(ErrorCode::InvalidInput.exit_status())), "{bad:?}");
    }
    home.reload();
    for (size, id) in sizes.iter().zip(["wide", "tall"]) {
        let [width, height] = *size;
        image::RgbImage::from_pixel(width, height, image::Rgb([GREY; 3]))
            .save(home.path("grey.png"))
            .unwrap();
        std::fs::rename(home.path("grey.png"), home.path(id).with_extension("png")).unwrap();
        let workspace = home.ingest(&format!("{id}.png"), id);
        let (state, facts) = home.facts(&workspace);
        let raw = workspace.raw();
        let see = |name: &'static str, opacity: f64| {
            let marked =
                home.apply(&state, &facts, &[(name, Box::leak(Box::new([("opacity", opacity)])))]).unwrap();
            home.render(&raw, &marked)
        };
        assert_eq!(ink(&home.render(&raw, &state)), None);
        for place in places {
            let name: &'static str = format!("mark_{}", place.replace('-', "_")).leak();
            let ([left, top, right, bottom], most) = ink(&see(name, 100.0)).unwrap();
            assert!(most > 150, "{id} {place}: {most}");
            assert_eq!(place.contains("left"), right < width / 2, "{id} {place}: {left} to {right}");
            assert_eq!(place.contains("right"), left > width / 2, "{id} {place}: {left} to {right}");
            let inside = left > width / 100 && right < width - width / 100;
            assert!(inside && top > height / 100 && bottom < height - height / 100, "{id} {place}");
            let near = if place.contains("top") { bottom < height / 8 } else { top > height - height / 8 };
            assert!(near, "{id} {place}: {top} to {bottom}");
        }
        // As high as they were asked for, however many they are.
        for (name, percent) in [("small", 2.0), ("large", 4.0)] {
            let ([_, top, _, bottom], _) = ink(&see(name, 100.0)).unwrap();
            let high = f64::from(bottom + 1 - top) / 4.0;
            assert!((0.7 * percent..1.6 * percent).contains(&high), "{id} {name}: {high} %");
        }
        let most = |opacity| f64::from(ink(&see("large", opacity)).unwrap().1);
        assert!((most(50.0) / most(100.0) - 0.5).abs() < 0.02);
        assert!((most(25.0) / most(100.0) - 0.25).abs() < 0.02);

        // A darktable of its own, and one that stays alive and has shown another mark meanwhile.
        let steps: &[frames::Step] = &[("large", &[("opacity", 70.0)])];
        let marked = home.apply(&state, &facts, steps).unwrap();
        let hashes =
            [home.worker() as &dyn Renderer, &home.oneshot, home.worker(), &home.oneshot].map(|renderer| {
                see("small", 30.0);
                home.try_render(renderer, &raw, &marked).unwrap().pixel_hash()
            });
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");

        // One at a time, and gone without a trace.
        let other = home.apply(&marked, &facts, &[("small", &[]), ("large", &[("opacity", 0.0)])]).unwrap();
        assert_eq!(other, home.apply(&state, &facts, &[("small", &[])]).unwrap());
        let removed = home.vocabulary.remove_module(&other, &Selector::Move("small".into()), &facts);
        assert_eq!(removed.unwrap(), state);
    }
}
