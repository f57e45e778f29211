//! Sentences that stand in no scenario.

use super::super::lexicon::Words;
use super::*;

/// What is read of a text, each wish in words with its size.
fn read(text: &str) -> Vec<String> {
    let size = |size: Size| match size {
        Size::Of(at) => ["gentle", "plain", "clear", "strong"][at].to_owned(),
        Size::Stops(stops) => format!("{stops} EV"),
        Size::Normal => "normal".into(),
        Size::Neutral => "neutral".into(),
    };
    Reading::of(text).wishes.iter().map(|wish| format!("{}, {}", wish.in_words(), size(wish.size))).collect()
}

#[test]
fn the_file_is_read_and_every_wish_has_a_move_of_the_vocabulary() {
    let words: Words = toml::from_str(include_str!("words.toml")).unwrap();
    let vocabulary = engine::vocabulary::Vocabulary::load(&base::assets::Overlay::vocabulary(None)).unwrap();
    let kinds: Vec<&str> = words.wish.iter().map(|recipe| recipe.kind.as_str()).collect();
    let hues = words.object.iter().filter_map(|row| row.hue.as_deref());
    for hue in hues {
        for kind in ["saturation", "lightness"] {
            assert!(vocabulary.get(&format!("{hue}_{kind}")).is_ok(), "{hue}");
        }
    }
    for (name, dials) in words.wish.iter().flat_map(super::super::part::Recipe::moves) {
        if name.contains('*') {
            continue;
        }
        let listed = vocabulary.get(name).unwrap_or_else(|_| panic!("no move is called {name}"));
        for (dial, values) in dials {
            let parameter = listed.parameters.get(dial).unwrap_or_else(|| panic!("{name} has no {dial}"));
            for value in values {
                assert!((parameter.min..=parameter.max).contains(value), "{name} {dial}={value}");
            }
        }
    }
    for row in &words.object {
        for kind in row.quality.iter().chain(&row.zone) {
            assert!(kinds.contains(&kind.as_str()), "{kind}");
        }
    }
    for row in &words.complaint {
        assert!(kinds.contains(&row.kind.as_str()));
    }
    for row in &words.place {
        let mask: engine::vocabulary::MaskSpec = serde_json::from_value(row.mask.clone()).unwrap();
        assert!(!mask.summary().is_empty());
    }
}

#[test]
fn acts_objects_places_and_sizes_are_read() {
    let cases: &[(&str, &[&str])] = &[
        ("Brighten the barn by two thirds of a stop.", &["brightness +, 0.67 EV"]),
        ("A stop and a quarter darker, please.", &["brightness −, 1.25 EV"]),
        ("Up by 0.4 EV.", &["brightness +, 0.4 EV"]),
        ("Darken the sky a touch.", &["brightness − at sky, gentle"]),
        ("The sky is washed out. Hold it back by half a stop.", &["brightness − at sky, 0.5 EV"]),
        ("Clearly warmer light on her face.", &["warmth + at face, clear"]),
        ("cooler on the right", &["warmth − at on the right, plain"]),
        ("Open the shadows a lot", &["shadows +, strong"]),
        ("deeper blacks and slightly more contrast", &["blacks −, plain", "contrast +, gentle"]),
        ("cooler shadows, warmer highlights", &["shadows warmth −, plain", "highlights warmth +, plain"]),
        ("richer reds, calmer blues", &["reds +, plain", "blues −, plain"]),
        ("paler, brighter yellows", &["yellows −, plain", "lightness of yellows +, plain"]),
        ("less noise and haze", &["noise −, plain", "haze −, plain"]),
        ("black and white with more contrast", &["mono +, plain", "contrast +, plain"]),
        ("It came out too dark by a stop.", &["brightness +, 1 EV"]),
        ("Warmer, until the wall is white.", &["warmth +, neutral"]),
        ("It is too blue.", &["warmth +, neutral"]),
        ("go deeper: open the shadows", &["shadows +, plain"]),
        ("more vivid", &["richness +, plain"]),
        ("softer, with a vignette", &["softness +, plain", "vignette +, plain"]),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), *expected, "{text}");
    }
}

#[test]
fn what_tells_forbids_or_gives_a_reason_is_no_wish() {
    for text in [
        "The harbour is dark and the boats are grey.",
        "Never brighter than this.",
        "Keep the contrast.",
        "Without crushing the blacks.",
        "A dark room with a bright window.",
        "as if the lamp were warmer",
        "A quiet bar after hours. The porcelain stays white; nothing may look like a filter.",
        "",
    ] {
        assert_eq!(read(text), Vec::<String>::new(), "{text}");
    }
    let found = Reading::of("Brighter, but do not touch the sky, and without crushing the blacks.");
    assert_eq!(found.wishes.len(), 1);
    assert_eq!(found.kept.iter().map(|place| place.name.as_str()).collect::<Vec<_>>(), ["sky"]);
    assert!(found.spared.contains(&"blacks".to_owned()), "{found:?}");
    let found = Reading::of("Do not darken the eyes.");
    assert_eq!((found.wishes.len(), found.kept.len()), (0, 0));
}

fn goal(name: &str, direction: &str) -> Goal {
    Goal { name: name.into(), direction: direction.into(), intensity: None }
}

#[test]
fn the_brief_says_how_much_of_what_the_direction_asks_for() {
    let brief = "Half a stop brighter, and warm it a little.";
    let one = reading(brief, Some(&goal("light", "brighter")), true);
    assert_eq!(one.wishes.len(), 2, "the only branch serves the whole brief: {one:?}");
    assert_eq!(one.wishes[0].size, Size::Stops(0.5));
    let of_two = reading(brief, Some(&goal("light", "brighter")), false);
    assert_eq!(of_two.wishes.len(), 1, "another branch has the rest");
    assert_eq!(of_two.wishes[0].size, Size::Stops(0.5));
    let strong = Goal { intensity: Some("strong".into()), ..goal("tone", "open the shadows") };
    assert_eq!(reading("", Some(&strong), true).wishes[0].size, Size::Of(3));
    let placed = reading("Darker by a stop.", Some(&goal("sky", "darken the sky")), true);
    assert_eq!(placed.wishes.len(), 1);
    assert!(placed.wishes[0].place.is_some() && placed.wishes[0].size == Size::Stops(1.0));
}

#[test]
fn what_is_for_a_thing_without_a_place_alone_is_gentle() {
    let of = |direction: &str| reading("", Some(&goal("light", direction)), true);
    let kettle = of("two stops brighter, only the kettle");
    assert_eq!(kettle.wishes[0].size, Size::Stops(0.3), "{kettle:?}");
    assert_eq!(of("warmer on the kettle, nowhere else").wishes[0].size, Size::Of(0));
    assert_eq!(of("clearly warmer").wishes[0].size, Size::Of(2));
    let sky = of("darken the sky, nothing else");
    assert!(sky.wishes[0].place.is_some() && sky.wishes[0].size == PLAIN, "a place is known: {sky:?}");
}

#[test]
fn several_readings_of_a_brief_differ() {
    let read = reading("Warmer, and open the shadows.", None, true);
    let three: Vec<Reading> = (0..5).map(|place| read.clone().variant(place)).collect();
    for (at, one) in three.iter().enumerate() {
        assert!(!one.wishes.is_empty());
        assert!(three.iter().skip(at + 1).all(|other| other != one), "{one:?}");
    }
}
