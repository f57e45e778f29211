//! Previews from a smaller copy of the raw: near what the raw gives, in the same place, and nowhere else than in
//! previews. On pixels of the real darktable.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure in a helper is the failure of its test"
)]

use crate::support;
use std::sync::{Arc, Mutex};

use crate::support::{EDGE, Studio, confirm, reply, request};
use base::clock::Deadline;
use base::ids::Hash;
use chemigram::provider::script::Script;
use chemigram::session::start;
use chemigram::transcript::Event;
use darktable::dng::{DngOptions, demo_photo};
use darktable::proxy::{Choice, Proxied, Proxies};
use darktable::render::{
    ByHand, Picture, Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer,
};
use darktable::state::EditState;
use pixels::metrics::difference::Difference;
use testkit::demo::{Demo, deadline};

#[test]
fn a_preview_from_the_copy_is_near_and_in_its_place() {
    // At twice its size the photo has detail as fine as its pixels and no finer.
    let photo = demo_photo().unwrap();
    let photo = image::RgbImage::from_raw(photo.width, photo.height, photo.rgb).unwrap();
    let photo = image::imageops::resize(&photo, 1200, 800, image::imageops::FilterType::Triangle);
    let photo = Picture { width: 1200, height: 800, rgb: photo.into_raw() };
    // Turned, so that what is across for the sensor is down in the picture.
    let demo = Demo::with(&photo, &DngOptions { orientation: 6, ..DngOptions::default() });
    let folder = tempfile::tempdir().unwrap();
    let (n, copy) = Proxies::new(folder.path()).of(&demo.raw, Choice::Auto, 300).unwrap().unwrap();
    assert_eq!(n, 2);
    let worker: Arc<dyn Renderer> = Arc::new(demo.worker());
    let proxied = Proxied::new(worker.clone(), &demo.raw, copy);
    let render = |renderer: &dyn Renderer, state: &EditState, quality| {
        let request = RenderRequest { raw: &demo.raw, state, long_edge: 300, quality };
        renderer.render(&request, &deadline(), &ByHand).unwrap().picture
    };
    let baseline = &demo.facts.baseline;
    let masked = demo.apply(baseline, "exposure", &[("ev", 1.5)], Some(CIRCLE)).state;
    let cooler = demo.apply(baseline, "warmth", &[], None).state;
    for (state, what) in [(baseline, "untouched"), (&masked, "masked"), (&cooler, "white balance")] {
        let (quick, full) =
            (render(&proxied, state, Quality::Preview), render(&*worker, state, Quality::Preview));
        assert_ne!(quick.pixel_hash(), full.pixel_hash(), "{what}: it is not from the copy");
        let off = Difference::between(&quick, &full).unwrap();
        assert!(!off.resized && off.mean < 1.5, "{what}: {off:?}");
        // It lies on the other: moved by a pixel, it fits worse.
        for (right, down) in [(1, 0), (-1, 0), (0, 1), (0, -1)] {
            let moved = Difference::between(&shifted(&quick, right, down), &full).unwrap().mean;
            assert!(moved > off.mean, "{what}: moved by {right}, {down}: {moved} for {}", off.mean);
        }
    }
    // Two fifths of the copy are less than was asked for: it comes from the raw.
    let cropped = demo.apply(baseline, "crop_left", &[("margin", 0.4)], None).state;
    let cropped = demo.apply(&cropped, "crop_top", &[("margin", 0.3)], None).state;
    let cropped = demo.apply(&cropped, "crop_bottom", &[("margin", 0.3)], None).state;
    assert_eq!(render(&proxied, &cropped, Quality::Preview), render(&*worker, &cropped, Quality::Preview));
    assert_eq!(render(&proxied, baseline, Quality::Judge), render(&*worker, baseline, Quality::Judge));
}

const CIRCLE: &str = r#"{"shape":"circle","center":[0.3,0.25],"radius":0.15,"feather":0.02}"#;

/// The picture moved by whole pixels; its border is repeated.
fn shifted(picture: &Picture, right: i64, down: i64) -> Picture {
    let (width, height) = (i64::from(picture.width), i64::from(picture.height));
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let rgb = places
        .flat_map(|(x, y)| {
            let (x, y) = ((x - right).clamp(0, width - 1), (y - down).clamp(0, height - 1));
            let at = 3 * (y * width + x) as usize;
            picture.rgb[at..at + 3].to_vec()
        })
        .collect();
    Picture { rgb, ..*picture }
}

/// Notes of every request how careful it was to be, and for which raw it was.
struct Noting(Arc<dyn Renderer>, Mutex<Vec<(Quality, Hash)>>);

impl Renderer for Noting {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        self.1.lock().unwrap().push((request.quality, request.raw.sha256.clone()));
        self.0.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.0.darktable_version()
    }
}

#[test]
fn what_a_session_judges_and_shows_never_comes_from_the_copy() {
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("apply_primitive", r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.5}}"#)]),
        reply(&[("render_preview", "{}"), ("compare", "{}"), ("image_stats", "{}")]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Brighter.", "key_moves": ["exposure ev=0.5"]}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Brighter."}"#)]),
    ]
    .concat();
    let wanted = request("time=5m,iterations=30,branches=1", &[("tone", "brighter")]);
    // The same session on the same raw, with a copy of it and without.
    let studios = [Studio::new(), Studio::new()];
    let raw = studios[0].workspace.raw();
    let folder = tempfile::tempdir().unwrap();
    let (n, copy) = Proxies::new(folder.path()).of(&raw, Choice::Auto, EDGE).unwrap().unwrap();
    let noting = Arc::new(Noting(studios[0].renderer.clone(), Mutex::default()));
    let measured = studios.iter().zip([true, false]).map(|(studio, with_copy)| {
        let mut setup = studio.setup(Arc::new(Script::parse("test script", &script).unwrap()));
        if with_copy {
            setup.renderer = Arc::new(Proxied::new(noting.clone(), &raw, copy.clone()));
        }
        let mut plan = start::plan(&setup, &wanted).unwrap();
        plan.start.proxy = with_copy.then_some(n);
        let mut session = start::start(setup, plan).unwrap();
        support::run(&mut session);
        let lines = studio.lines(&session.state.start.session);
        let start = lines.iter().find_map(|line| match &line.event {
            Event::SessionStart(start) => Some(start.proxy),
            _ => None,
        });
        assert_eq!(start, Some(with_copy.then_some(n)), "the transcript says where previews came from");
        for line in &lines {
            if let Event::ToolResult { result, code: Some(code), .. } = &line.event {
                panic!("{} failed with {code:?}: {}", result.name, result.text);
            }
        }
        let judgment = lines.iter().find_map(|line| match &line.event {
            Event::Judgment(judgment) => judgment.measured.clone(),
            _ => None,
        });
        let mut measured = judgment.unwrap();
        let shown = measured.as_object_mut().unwrap().remove("preview").unwrap();
        let shown = std::fs::read(studio.workspace.folder().join(shown.as_str().unwrap())).unwrap();
        (measured, shown)
    });
    let measured: Vec<_> = measured.collect();
    assert_eq!(measured[0], measured[1], "the same numbers, and the same picture in the review");
    let asked = noting.1.lock().unwrap();
    let of = |quality| asked.iter().filter(move |(asked, _)| *asked == quality).map(|(_, raw)| raw);
    assert!(of(Quality::Preview).count() >= 2 && of(Quality::Preview).all(|hash| *hash == copy.sha256));
    assert!(of(Quality::Judge).count() >= 2 && of(Quality::Judge).all(|hash| *hash == raw.sha256));
}
