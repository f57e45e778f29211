//! What every input must hold, whatever is in it: no panic, and what was read writes and reads the same.
//!
//! The fuzz targets call these with made-up bytes, and `tests/program/fuzz_corpus.rs` with every file under `seeds/`.
#![allow(dead_code, reason = "a target uses one of them")]
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a panic is what is looked for"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use base::assets::Overlay;
use base::ids::Hash;
use chemigram::protocol::checks::Measured;
use chemigram::protocol::machine::{self, Run};
use chemigram::protocol::rules::{Ruling, Verdict};
use chemigram::protocol::variables::Purpose;
use chemigram::protocol::{Options, load};
use chemigram::transcript::HeadState;
use darktable::frame::{Orientation, StoredSize};
use darktable::layout::{BlendSpace, Layouts};
use darktable::state::EditState;
use darktable::xmp::Foreign;
use darktable::{blend, dtstyle, forms, luts, params, xmp};
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, Vocabulary, bindings};

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::load(&Overlay::vocabulary(None)).unwrap());
static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| Layouts::new(Overlay::vocabulary(None)));

/// What a target does with an input.
pub type Check = fn(&[u8]);

/// The targets, by name.
pub const ALL: [(&str, Check); 9] = [
    ("sidecar", sidecar),
    ("style", style),
    ("params", params),
    ("blend", blend),
    ("form", form),
    ("lut", lut),
    ("mask", mask),
    ("vocabulary", vocabulary),
    ("protocol", protocol),
];

/// A sidecar that is taken over is written, and read again, as the same edit.
pub fn sidecar(data: &[u8]) {
    let _ = xmp::read(data, &LAYOUTS);
    for version in ["4.2.1", "5.4.1"] {
        if let Ok(Foreign::Complete(state)) = xmp::foreign(data, &LAYOUTS, version) {
            reads_back(&state);
        }
    }
}

/// A style that is taken over can be applied again without a change.
pub fn style(data: &[u8]) {
    if let Ok(style) = dtstyle::read(data, &LAYOUTS, "5.4.1") {
        let state = style.apply(&EditState::default());
        reads_back(&state);
        let _ = style.apply(&state);
    }
}

fn reads_back(state: &EditState) {
    let Ok(text) = xmp::write(state, &LAYOUTS, "x.dng") else { return };
    let again = xmp::read(text.as_bytes(), &LAYOUTS).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(&again, state, "{text}");
}

/// The first byte chooses a module, the second one of its layouts, the rest is its block.
pub fn params(data: &[u8]) {
    let [module, version, bytes @ ..] = data else { return };
    let names = LAYOUTS.names();
    let module = LAYOUTS.module(&names[usize::from(*module) % names.len()]).unwrap().unwrap();
    let layout = &module.versions[usize::from(*version) % module.versions.len()];
    // Mostly of the wrong size otherwise.
    let mut block = bytes.to_vec();
    block.resize(layout.size, 0);
    assert!(bytes.len() == layout.size || params::decode(layout, bytes).is_err());
    if let Ok(values) = params::decode(layout, &block) {
        let written = params::encode(layout, &values).unwrap();
        assert_eq!(params::decode(layout, &written).unwrap(), values);
    }
}

/// The first byte is the version, the rest the block.
pub fn blend(data: &[u8]) {
    let [version, bytes @ ..] = data else { return };
    if let Ok(Some(read)) = blend::decode(u32::from(*version), bytes) {
        let _ = blend::check(&read);
        let block = blend::encode(Some(&read), BlendSpace::None).unwrap();
        assert_eq!(blend::decode(block.version, &block.bytes).unwrap(), Some(read));
    }
}

/// Kind, version and count in a byte each, eight bytes of source, the rest are the points.
pub fn form(data: &[u8]) {
    let [kind, version, count, rest @ ..] = data else { return };
    let Some((source, points)) = rest.split_first_chunk::<8>() else { return };
    let block = forms::Block {
        kind: u32::from(*kind),
        version: u32::from(*version),
        count: u32::from(*count),
        points: points.to_vec(),
        source: *source,
    };
    if let Ok(form) = forms::decode(77, "form", &block) {
        let written = forms::encode(&form).unwrap();
        assert_eq!(forms::decode(77, "form", &written).unwrap(), form);
    }
}

/// A mask that is understood is written, and read again, as the same; and a move takes it or refuses it.
pub fn mask(data: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<MaskSpec>(data) else { return };
    let facts = PhotoFacts {
        baseline: EditState::default(),
        size: StoredSize { width: 600, height: 400 },
        orientation: Orientation::default(),
        shot: engine::vocabulary::Shot::default(),
    };
    let request = ApplyRequest { move_name: "exposure", values: &BTreeMap::new(), mask: Some(&spec) };
    if let Ok(applied) = VOCABULARY.apply(&request, &facts.baseline, &facts, &LAYOUTS, "4.2.1") {
        xmp::write(&applied.state, &LAYOUTS, "photo.dng").unwrap();
        let written = serde_json::to_string(&spec).unwrap();
        let again: MaskSpec = serde_json::from_str(&written).unwrap();
        assert_eq!(again, spec, "{written}");
    }
}

/// A file of moves or of bindings is taken or refused.
pub fn vocabulary(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = bindings::parse("fuzz.toml", text);
    let _ = Vocabulary::load_with(&Overlay::vocabulary(None), Path::new("fuzz.toml"), text);
}

/// A LUT that is taken over is the same LUT when its own file is.
pub fn lut(data: &[u8]) {
    if let Ok(lut) = luts::read(data) {
        assert_eq!(luts::read(&lut.bytes).unwrap().name, lut.name);
    }
}

/// A protocol loads or is refused with findings, and one that loads ends whatever happens in its run.
pub fn protocol(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for (file, purpose) in [
        ("x.toml", Purpose::Check),
        ("x.json", Purpose::Check),
        ("x.toml", Purpose::Run),
        ("x.json", Purpose::Run),
    ] {
        let loaded = load(file, text, &Options { purpose, ..Options::default() });
        assert!(loaded.draft().is_some() || loaded.has_errors(), "neither a protocol nor a reason");
        let Ok(protocol) = loaded.into_protocol() else { continue };
        let place = Hash::of(b"place");
        let head = HeadState { branch: None, commit: place.clone(), state: place };
        let (mut run, _) = Run::begin(&protocol, head);
        // A protocol may allow more events than a target has time for; what is cut short is no finding.
        let most = protocol.max_events();
        for (n, byte) in data.iter().cycle().take(usize::try_from(most.min(20_000)).unwrap()).enumerate() {
            if run.ending().is_some() {
                break;
            }
            run = run.step(&protocol, happening(usize::from(*byte) + n)).0;
        }
        assert!(run.ending().is_some() || most > 20_000, "{} events and no end", most);
    }
}

/// One of the things that can happen in a run.
fn happening(n: usize) -> machine::Event {
    use machine::Event as E;
    match n % 9 {
        0 => E::Finished { fields: [("judged_score".to_owned(), (n % 6) as f64)].into() },
        1 => E::Spoke,
        2 => E::ToolReturned {
            tool: "branch".into(),
            args: String::new(),
            ok: n.is_multiple_of(2),
            head: None,
        },
        3 => E::Measured(Box::new(Measured { rendered: true, ..Measured::default() })),
        4 => E::Judged { verdict: Verdict::Better },
        5 => E::Ruled(Ruling::Passed { next: None }),
        6 => E::Answered { accepted: n.is_multiple_of(4) },
        7 => E::Failed { message: "x".into() },
        _ => E::ToolAsked { tool: "render_preview".into(), args: "{}".into() },
    }
}
