//! What the installed darktable does.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::assets::Overlay;
use base::clock::Cancel;
use darktable::baseline;
use darktable::cache::{Cache, Cached};
use darktable::layout::Layouts;
use darktable::probe;
use darktable::render::{ByHand, Quality, RenderError, RenderRequest, Rendered, Renderer};
use darktable::sandbox::Isolation;
use darktable::testing::{Fault, Faulty};

use super::*;

impl Studio {
    fn shoot(&self, photo: &Path, text: &str) -> Result<Rendered, RenderError> {
        self.renderer.render_sidecar(photo, text, 64, Quality::Preview, &patient(), &ByHand)
    }

    fn ask(&self, photo: &Path) -> Result<String, RenderError> {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let told = baseline::ask(&self.cli, &layouts, photo, &self.path("base"), &patient())?;
        Ok(String::from_utf8(told.sidecar).unwrap())
    }
}

/// The history of a sidecar, without the attributes that carry times.
fn history(sidecar: &str) -> &str {
    sidecar.split_once("<darktable:history>").unwrap().1
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_installed_darktable_is_found_and_new_enough() {
    let report = probe::doctor(Isolation::WherePossible, &patient());
    assert!(report.supported && report.problem.is_none() && report.install.is_none(), "{report:?}");
    assert!(report.path.unwrap().is_absolute());
}

#[test]
fn equal_edits_give_equal_pixels_and_exposure_brightens() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let plain = studio.shoot(&photo, &sidecar(0.0)).unwrap();
    let again = studio.shoot(&photo, &sidecar(0.0)).unwrap();
    let bright = studio.shoot(&photo, &sidecar(1.0)).unwrap();
    // 42.7 rows: some versions round, others cut.
    assert_eq!(plain.picture.width, 64);
    assert!((42..=43).contains(&plain.picture.height), "{}", plain.picture.height);
    assert_eq!(plain.pixel_hash, again.pixel_hash);
    assert_eq!(plain.picture, again.picture);
    assert!(mean(&bright.picture) > mean(&plain.picture) + 20.0);
    // With no exposure the picture is the photograph.
    assert!(
        (mean(&plain.picture) - scene().pixels().flat_map(|p| p.0).map(f64::from).sum::<f64>() / 180_000.0)
            .abs()
            < 1.5
    );
}

#[test]
fn both_qualities_render_and_nothing_is_enlarged() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let [fast, careful] = [Quality::Preview, Quality::Judge]
        .map(|q| studio.renderer.render_sidecar(&photo, &sidecar(1.0), 50, q, &patient(), &ByHand).unwrap());
    assert!((mean(&fast.picture) - mean(&careful.picture)).abs() < 3.0);
    assert_ne!(fast.pixel_hash, careful.pixel_hash, "both were made the same way");
    let full = studio
        .renderer
        .render_sidecar(&photo, &sidecar(0.0), 4_000, Quality::Judge, &patient(), &ByHand)
        .unwrap();
    assert_eq!((full.picture.width, full.picture.height), (WIDTH, HEIGHT));
    let error = studio
        .renderer
        .render_sidecar(&photo, &sidecar(0.0), 0, Quality::Judge, &patient(), &ByHand)
        .unwrap_err();
    assert!(matches!(error, RenderError::Encode(_)), "{error}");
}

#[test]
fn a_raw_gets_its_defaults_from_darktable_and_renders_with_them() {
    let studio = Studio::new();
    let photo = studio.photo("photo.dng");
    let defaults = studio.ask(&photo).unwrap();
    for op in ["rawprepare", "demosaic", "temperature", "exposure"] {
        assert!(defaults.contains(&format!("operation=\"{op}\"")), "{op} is missing in {defaults}");
    }
    let plain = studio.shoot(&photo, &defaults).unwrap();
    // Default exposure is +0.7 EV (3333333f): take it to +1.7 EV.
    let brighter = defaults.replacen("3333333f", "9a99d93f", 1);
    assert_ne!(brighter, defaults);
    let bright = studio.shoot(&photo, &brighter).unwrap();
    assert!(mean(&bright.picture) > mean(&plain.picture) + 20.0);
}

#[test]
fn one_raw_with_one_edit_is_one_picture_however_often_and_beside_whatever_it_is_rendered() {
    let studio = Studio::new();
    let photo = studio.path("demo.dng");
    fs::write(&photo, darktable::dng::demo_raw().unwrap()).unwrap();
    let defaults = studio.ask(&photo).unwrap();
    // Two at a time, six each. Without what `scratch.rs` does about memory and threads, some of twelve differ.
    let shoot = || {
        [(); 6].map(|()| {
            let shot = studio.renderer.render_sidecar(
                &photo,
                &defaults,
                1024,
                Quality::Preview,
                &patient(),
                &ByHand,
            );
            shot.unwrap().pixel_hash.to_string()
        })
    };
    let hashes = std::thread::scope(|scope| {
        [scope.spawn(shoot), scope.spawn(shoot)].map(|thread| thread.join().unwrap()).concat()
    });
    let kinds: std::collections::BTreeSet<_> = hashes.iter().collect();
    assert_eq!(kinds.len(), 1, "{hashes:#?}");
}

#[test]
fn jpeg_png_and_tiff_have_defaults_too() {
    let studio = Studio::new();
    for name in ["photo.jpg", "photo.png", "photo.tif"] {
        let photo = studio.photo(name);
        let defaults = studio.ask(&photo).unwrap();
        assert!(defaults.contains("operation=\"colorin\"") && !defaults.contains("operation=\"rawprepare\""));
        let picture = studio.shoot(&photo, &defaults).unwrap().picture;
        assert_eq!(picture.width, 64, "{name}");
    }
}

#[test]
fn what_lies_beside_the_photograph_has_no_influence_and_nothing_is_put_there() {
    let studio = Studio::new();
    let photo = studio.photo("user/photo.png");
    let clean = studio.shoot(&photo, &sidecar(0.0)).unwrap();
    let defaults = studio.ask(&photo).unwrap();
    assert_eq!(names(photo.parent().unwrap()), ["photo.png"]);
    fs::write(studio.path("user/photo.png.xmp"), sidecar(3.0)).unwrap();
    let link = studio.path("link.png");
    std::os::unix::fs::symlink(&photo, &link).unwrap();
    for path in [&photo, &link] {
        assert_eq!(studio.shoot(path, &sidecar(0.0)).unwrap().pixel_hash, clean.pixel_hash);
        assert_eq!(history(&studio.ask(path).unwrap()), history(&defaults));
    }
    assert_eq!(names(photo.parent().unwrap()), ["photo.png", "photo.png.xmp"]);
    assert_eq!(fs::read_to_string(studio.path("user/photo.png.xmp")).unwrap(), sidecar(3.0));
}

#[test]
fn a_name_with_expansions_and_quotes_is_only_a_name() {
    let studio = Studio::new();
    let plain = studio.photo("photo.png");
    let odd = studio.path("-x $(FILE_NAME) %s\n'\";*.PNG");
    fs::copy(&plain, &odd).unwrap();
    let [a, b] = [&plain, &odd].map(|p| studio.shoot(p, &sidecar(0.0)).unwrap().pixel_hash);
    assert_eq!(a, b);
}

#[test]
fn photographs_that_cannot_be_read_are_named_as_the_cause() {
    let studio = Studio::new();
    let dng = bayer_dng();
    let jpeg = fs::read(studio.photo("photo.jpg")).unwrap();
    let files: [(&str, &[u8]); 6] = [
        ("empty.dng", b""),
        ("text.dng", b"this is a shopping list\n"),
        ("text.txt", b"this is a shopping list\n"),
        ("cut.dng", &dng[..dng.len() / 2]),
        ("cut.jpg", &jpeg[..jpeg.len() / 2]),
        ("noise.png", &[7; 3_000]),
    ];
    for (name, bytes) in files {
        fs::write(studio.path(name), bytes).unwrap();
    }
    for name in files.iter().map(|f| f.0).chain(["missing.dng"]) {
        let photo = studio.path(name);
        for error in [studio.shoot(&photo, &sidecar(0.0)).unwrap_err(), studio.ask(&photo).unwrap_err()] {
            match error {
                RenderError::Raw { path, reason } => {
                    assert_eq!(path, photo);
                    assert!(!reason.is_empty());
                }
                other => panic!("{name}: {other}"),
            }
        }
    }
}

#[test]
fn an_edit_that_darktable_drops_or_misreads_is_no_picture() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let good = sidecar(1.0);
    let params = "000000000000000000000000000048420000000000000000";
    let mask = r#"<rdf:Seq><rdf:li darktable:mask_num="42" darktable:mask_id="5" darktable:mask_type="1" darktable:mask_name="x" darktable:mask_version="6" darktable:mask_points="0000003f0000003fcdcccc3dcdcccc3d" darktable:mask_nb="1" darktable:mask_src="0000000000000000"/></rdf:Seq></darktable:masks_history>"#;
    let mut unseen = Vec::new();
    for (what, text) in [
        ("future version", sidecar_of(&[item("exposure", 99, 0, params)])),
        ("short blob", sidecar_of(&[item("exposure", 6, 0, "00000000")])),
        ("unknown module", sidecar_of(&[item("nosuchop", 1, 0, params)])),
        ("instance without an order", sidecar_of(&[item("exposure", 6, 1, params)])),
        ("cut XML", good[..good.len() / 2].to_owned()),
        ("mask without a step", good.replacen("<rdf:Seq/></darktable:masks_history>", mask, 1)),
    ] {
        match studio.shoot(&photo, &text) {
            Err(RenderError::Dropped { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
            Ok(_) => unseen.push(what),
        }
    }
    // From 5.0 on darktable keeps silent about these, so what is written must be right to begin with: see `xmp::write`.
    let silent = ["future version", "short blob", "cut XML", "mask without a step"];
    let silent = if studio.cli.version().starts_with("4.") { &[] } else { &silent[..] };
    assert_eq!(unseen, silent);
    let error = studio.shoot(&photo, &sidecar(f32::NAN)).unwrap_err();
    assert!(matches!(&error, RenderError::Untrusted(why) if why.contains("black")), "{error}");
    let error = studio.shoot(&photo, &sidecar(40.0)).unwrap_err();
    assert!(matches!(&error, RenderError::Untrusted(why) if why.contains("flat")), "{error}");
    for text in ["", "no sidecar"] {
        let error = studio.shoot(&photo, text).unwrap_err();
        assert!(matches!(error, RenderError::Encode(_)), "{error}");
    }
}

#[test]
fn a_deadline_and_a_cancellation_cut_a_running_darktable() {
    let studio = Studio::new();
    let photo = studio.photo("photo.dng");
    let deadline = within(Duration::from_millis(150));
    let error = studio
        .renderer
        .render_sidecar(&photo, &sidecar(0.0), 64, Quality::Judge, &deadline, &ByHand)
        .unwrap_err();
    assert!(matches!(error, RenderError::TimedOut { .. }), "{error}");
    let cancel = Cancel::default();
    cancel.cancel();
    let error = studio
        .renderer
        .render_sidecar(&photo, &sidecar(0.0), 64, Quality::Judge, &patient().with_cancel(cancel), &ByHand)
        .unwrap_err();
    assert!(matches!(error, RenderError::Cancelled { .. }), "{error}");
}

#[test]
fn two_renders_at_once_share_one_configuration() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let hashes = std::thread::scope(|scope| {
        let shoot = || studio.shoot(&photo, &sidecar(0.5)).unwrap().pixel_hash;
        [scope.spawn(shoot), scope.spawn(shoot)].map(|t| t.join().unwrap())
    });
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn the_cache_answers_with_the_same_pixels_and_heals() {
    let studio = Studio::new();
    let raw = raw(&studio.photo("photo.png"));
    let folder = studio.path("cache");
    let cache = Cache::new(&folder, 1 << 30);
    let faulty = Arc::new(Faulty::new(Arc::new(studio.renderer.clone()), []));
    let cached = Cached::new(faulty.clone(), cache.clone());
    let state = state(0.5);
    let request = RenderRequest { raw: &raw, state: &state, long_edge: 200, quality: Quality::Preview };
    assert!(cached.cached(&request).is_none());
    let cold = cached.render(&request, &patient(), &ByHand).unwrap();
    assert!(!cold.cached && cached.cached(&request).is_some());
    let warm = cached.render(&request, &patient(), &ByHand).unwrap();
    assert!(warm.cached);
    assert_eq!((&warm.pixel_hash, &warm.picture), (&cold.pixel_hash, &cold.picture));
    println!("rendered in {:?}, from the cache in {:?}", cold.elapsed, warm.elapsed);
    // What another process reads, this one holds nothing of. It is written when the first one ends.
    drop(cached);
    let another = || Cached::new(faulty.clone(), cache.clone());
    let cached = another();
    let read = cached.render(&request, &patient(), &ByHand).unwrap();
    assert!(read.cached);
    assert_eq!((&read.pixel_hash, &read.picture), (&cold.pixel_hash, &cold.picture));

    // Everything that decides the pixels decides the entry.
    let other_state = super::state(0.25);
    let other_raw = RawFile { sha256: Hash::of("other"), ..raw.clone() };
    for other in [
        RenderRequest { state: &other_state, ..request.clone() },
        RenderRequest { raw: &other_raw, ..request.clone() },
        RenderRequest { long_edge: 199, ..request.clone() },
        RenderRequest { quality: Quality::Judge, ..request.clone() },
    ] {
        assert!(cached.cached(&other).is_none(), "{other:?}");
    }

    let entry = folder.join(&names(&folder)[0]);
    let mut bytes = fs::read(&entry).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&entry, bytes).unwrap();
    // Who holds the picture goes on with it; who reads the entry drops it.
    let held = cached.render(&request, &patient(), &ByHand).unwrap();
    assert_eq!((held.cached, &held.pixel_hash, &held.picture), (true, &cold.pixel_hash, &cold.picture));
    let healed = another().render(&request, &patient(), &ByHand).unwrap();
    assert!(!healed.cached);
    assert_eq!(healed.pixel_hash, cold.pixel_hash);
    assert!(another().render(&request, &patient(), &ByHand).unwrap().cached);

    // A folder that cannot be one costs the cache, not the picture.
    fs::write(studio.path("file"), "").unwrap();
    let nowhere = Cached::new(faulty, Cache::new(studio.path("file/cache"), 1));
    assert_eq!(nowhere.render(&request, &patient(), &ByHand).unwrap().pixel_hash, cold.pixel_hash);
}

#[test]
fn a_faulty_renderer_fails_as_told_and_failures_are_not_cached() {
    let studio = Studio::new();
    let raw = raw(&studio.photo("photo.png"));
    let slow = Duration::from_millis(100);
    let faults = [Fault::Crash, Fault::Black, Fault::Dropped, Fault::Hang, Fault::Slow(slow)];
    let faulty = Arc::new(Faulty::new(Arc::new(studio.renderer.clone()), faults));
    let cached = Cached::new(faulty, Cache::new(studio.path("cache"), 1 << 30));
    let state = state(0.0);
    let request = RenderRequest { raw: &raw, state: &state, long_edge: 64, quality: Quality::Preview };
    let soon = || within(Duration::from_millis(50));
    assert!(matches!(cached.render(&request, &patient(), &ByHand), Err(RenderError::Failed { .. })));
    assert!(matches!(cached.render(&request, &patient(), &ByHand), Err(RenderError::Untrusted(_))));
    assert!(matches!(cached.render(&request, &patient(), &ByHand), Err(RenderError::Dropped { .. })));
    assert!(matches!(cached.render(&request, &soon(), &ByHand), Err(RenderError::TimedOut { .. })));
    let started = Instant::now();
    assert!(!cached.render(&request, &patient(), &ByHand).unwrap().cached);
    assert!(started.elapsed() > slow);
}
