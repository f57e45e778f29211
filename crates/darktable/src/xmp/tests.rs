use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;
use crate::state::{ChannelRange, GroupMember, PipelineOrder, Value};
use base::assets::Overlay;

fn layouts() -> Layouts {
    Layouts::new(Overlay::vocabulary(None))
}

fn module(layouts: &Layouts, op: &str, instance: u32) -> Module {
    let layout = layouts.module(op).unwrap().unwrap();
    let layout = layout.lowest().unwrap();
    Module {
        blend: None,
        enabled: true,
        instance,
        modversion: layout.modversion,
        name: String::new(),
        op: op.into(),
        params: Params::Fields(params::defaults(layout)),
    }
}

/// A base exposure and a masked second one, an ellipse through a group, and a parametric range.
fn masked(layouts: &Layouts) -> EditState {
    let ellipse = Shape::Ellipse {
        border: 0.05,
        center: [0.5, 0.5],
        proportional: false,
        radius: [0.2, 0.3],
        rotation: 30.0,
    };
    let ellipse = MaskForm::new("left eye", ellipse);
    let members = vec![GroupMember { form: ellipse.id, opacity: 1.0, state: 3 }];
    let group = MaskForm::new("group", Shape::Group { members });
    let mut second = module(layouts, "exposure", 1);
    second.name = "a <b> & \"c\"\n\u{e9}".into();
    let range =
        ChannelRange { boost: None, from: 0.0, full_from: 0.1, full_to: 0.5, inverted: true, to: 0.6 };
    second.blend = Some(crate::state::Blend {
        mask_id: Some(group.id),
        ranges: [(4, range)].into(),
        ..blend::normal(BlendSpace::RgbScene)
    });
    let mut state = EditState {
        extras: [("darktable:raw_params".to_owned(), "-7".to_owned())].into(),
        masks: vec![ellipse, group],
        modules: vec![second, module(layouts, "exposure", 0), module(layouts, "demosaic", 0)],
        ..EditState::default()
    };
    order::sort(&mut state);
    state
}

fn written() -> String {
    let layouts = layouts();
    write(&masked(&layouts), &layouts, "a&b.dng").unwrap()
}

fn code(text: &str) -> XmpError {
    read(text.as_bytes(), &layouts()).expect_err("it must be refused")
}

#[test]
fn a_state_reads_back_and_writes_the_same_text() {
    let layouts = layouts();
    let state = masked(&layouts);
    let text = written();
    let back = read(text.as_bytes(), &layouts).unwrap();
    assert_eq!(back, state);
    assert_eq!(back.hash(), state.hash());
    assert_eq!(write(&back, &layouts, "a&b.dng").unwrap(), text);
    assert!(text.contains("xmpMM:DerivedFrom=\"a&amp;b.dng\""));
    assert!(text.contains("darktable:mask_num=\"2\"") && !text.contains("darktable:mask_num=\"1\""));
    assert!(text.contains(",exposure,0,exposure,1,"));
    assert_eq!(text.matches("raw_params").count(), 1);
}

#[test]
fn child_elements_and_compressed_blobs_are_the_same_sidecar() {
    let layouts = layouts();
    let text = written();
    // A top-level property, then those of the list items, which are the ones indented by six.
    let applied =
        "<darktable:auto_presets_applied>1</darktable:auto_presets_applied><darktable:masks_history>";
    let text = text.replace("   darktable:auto_presets_applied=\"1\"\n", "");
    let text = text.replace("<darktable:masks_history>", applied);
    let mut out = String::new();
    for line in text.lines() {
        let Some((name, value)) =
            line.strip_prefix("      darktable:").and_then(|rest| rest.split_once("=\""))
        else {
            out.push_str(&line.replace("<rdf:li", "<rdf:li>"));
            out.push('\n');
            continue;
        };
        let value = value.trim_end_matches("/>").trim_end_matches('"');
        let value = match (name, unhex(value)) {
            ("params" | "blendop_params" | "mask_points", Some(bytes)) => packed(&bytes),
            _ => value.to_owned(),
        };
        out.push_str(&format!("<darktable:{name}>{value}</darktable:{name}>"));
        if line.ends_with("/>") {
            out.push_str("</rdf:li>\n");
        }
    }
    assert!(out.contains("<darktable:params>gz"), "{out}");
    assert_eq!(read(out.as_bytes(), &layouts).unwrap(), masked(&layouts), "{out}");
}

fn packed(bytes: &[u8]) -> String {
    let mut encoder = flate2::read::ZlibEncoder::new(bytes, flate2::Compression::best());
    let mut out = Vec::new();
    encoder.read_to_end(&mut out).unwrap();
    format!("gz05{}", STANDARD.encode(out))
}

#[test]
fn later_items_count_and_items_beyond_the_end_do_not() {
    let layouts = layouts();
    let mut state = EditState { modules: vec![module(&layouts, "exposure", 0)], ..EditState::default() };
    let text = write(&state, &layouts, "x").unwrap();
    let item = &text
        [text.find("     <rdf:li").unwrap()..text.find("    </rdf:Seq>\n   </darktable:history>").unwrap()];
    let later = |num: u32, enabled: u32| {
        item.replace("num=\"0\"", &format!("num=\"{num}\""))
            .replace("enabled=\"1\"", &format!("enabled=\"{enabled}\""))
    };
    // Written out of order: the number decides, not the place.
    let three = format!("{}{}{item}", later(2, 1), later(1, 0));
    let text = text.replace(item, &three).replace("history_end=\"1\"", "history_end=\"2\"");
    state.modules[0].enabled = false;
    assert_eq!(read(text.as_bytes(), &layouts).unwrap(), state);
}

#[test]
fn only_the_masks_of_the_last_step_count() {
    let text = written();
    let moved = text.replacen("mask_num=\"2\"", "mask_num=\"0\"", 1);
    let layouts = layouts();
    let state = read(moved.as_bytes(), &layouts).unwrap();
    assert_eq!(state.masks.len(), 1);
    // The group, or its member, is gone now: writing that would hit the whole picture.
    assert!(matches!(write(&state, &layouts, "x"), Err(XmpError::MissingMask { .. })));
}

#[test]
fn what_is_unknown_is_kept_and_what_only_tells_the_time_is_not() {
    let layouts = layouts();
    let text = written().replacen(
        "darktable:xmp_version",
        "darktable:novelty=\"7\" darktable:import_timestamp=\"99\" darktable:history_basic_hash=\"ab\" darktable:xmp_version",
        1,
    );
    let text = text.replace("operation=\"demosaic\"", "operation=\"nosuchop\"");
    let state = read(text.as_bytes(), &layouts).unwrap();
    assert_eq!(state.extras.keys().collect::<Vec<_>>(), ["darktable:novelty", "darktable:raw_params"]);
    let stranger = state.module("nosuchop", 0).unwrap();
    assert!(matches!(&stranger.params, Params::Opaque(hex) if hex.len() == 48));
    let again = write(&state, &layouts, "x").unwrap();
    assert_eq!(read(again.as_bytes(), &layouts).unwrap(), state);
}

#[test]
fn a_block_with_a_value_that_no_state_can_hold_is_kept_whole() {
    let layouts = layouts();
    let text = written().replacen("params=\"0000000000000000", "params=\"000000000000c07f", 1);
    let state = read(text.as_bytes(), &layouts).unwrap();
    let opaque = state.modules.iter().filter(|m| matches!(m.params, Params::Opaque(_))).count();
    assert_eq!(opaque, 1);
    assert!(write(&state, &layouts, "x").unwrap().contains("params=\"000000000000c07f"));
}

#[test]
fn damaged_sidecars_are_refused_by_kind() {
    let text = written();
    for cut in (0..text.len()).step_by(97).filter(|cut| text.is_char_boundary(*cut)) {
        assert!(read(&text.as_bytes()[..cut], &layouts()).is_err(), "{cut}");
    }
    assert!(matches!(code(""), XmpError::NotASidecar));
    assert!(matches!(code("<a/>"), XmpError::NotASidecar));
    assert!(matches!(code("plain words"), XmpError::NotASidecar));
    assert!(matches!(read(&[0xff, 0xfe], &layouts()), Err(XmpError::Syntax(_))));
    assert!(matches!(code(&text.replace("</rdf:RDF>", "</rdf:rdf>")), XmpError::Syntax(_)));
    assert!(matches!(code(&text.replace("xmp_version=\"5\"", "xmp_version=\"6\"")), XmpError::Schema { .. }));
    assert!(matches!(
        code(&text.replace("presets_applied=\"1\"", "presets_applied=\"0\"")),
        XmpError::NoBaseline
    ));
    assert!(matches!(
        code(&text.replace("order_version=\"2\"", "order_version=\"6\"")),
        XmpError::Order { .. }
    ));
    // Odd, not hexadecimal, bad zlib, bad base64, of the wrong size.
    for bad in ["000", "zz", "gz01AAAA", "gz01????", "gz", "gz\u{e9}\u{e9}AA"] {
        let text =
            text.replacen("darktable:params=\"", &format!("darktable:params=\"{bad}\" darktable:was=\""), 1);
        assert!(matches!(code(&text), XmpError::Attribute { name: "params", .. }), "{bad}");
    }
    let short = text.replacen("darktable:params=\"", "darktable:params=\"0000\" darktable:was=\"", 1);
    assert!(matches!(code(&short), XmpError::Params(ParamError::Size { .. })));
    let blend = text.replacen("blendop_params=\"0", "blendop_params=\"ff\" darktable:was=\"", 1);
    assert!(matches!(code(&blend), XmpError::Blend { .. }));
    for (name, value) in
        [("enabled", "2"), ("num", "-1"), ("modversion", "x"), ("mask_nb", "1e9"), ("mask_id", "9999999999")]
    {
        let text = text.replacen(
            &format!("darktable:{name}=\""),
            &format!("darktable:{name}=\"{value}\" darktable:was=\""),
            1,
        );
        assert!(matches!(code(&text), XmpError::Attribute { .. }), "{name}");
    }
    let points = text.replacen("mask_nb=\"1\"", "mask_nb=\"900000\"", 1);
    assert!(matches!(code(&points), XmpError::Form(FormError::Length { .. })));
}

#[test]
fn an_order_of_ones_own_is_kept_and_one_that_cannot_be_followed_is_refused() {
    let layouts = layouts();
    let text = written();
    let own = |state: &EditState| (state.order, state.sequence.is_empty());
    let custom = text.replace("iop_order_version=\"2\"", "iop_order_version=\"0\"");
    let custom = read(custom.as_bytes(), &layouts).unwrap();
    assert_eq!(own(&custom), (PipelineOrder::Custom, false));
    let swapped = text.replace("exposure,0,exposure,1", "exposure,1,exposure,0");
    let swapped = read(swapped.as_bytes(), &layouts).unwrap();
    assert_eq!(own(&swapped), (PipelineOrder::V30, false));
    assert_eq!(swapped.modules.iter().map(|m| m.instance).collect::<Vec<_>>(), [0, 1, 0]);
    for state in [custom, swapped] {
        let again = write(&state, &layouts, "x").unwrap();
        assert_eq!(read(again.as_bytes(), &layouts).unwrap(), state);
    }
    let base = EditState { modules: vec![module(&layouts, "exposure", 0)], ..EditState::default() };
    let v5 = write(&base, &layouts, "x").unwrap().replace("order_version=\"2\"", "order_version=\"4\"");
    let v5 = read(v5.as_bytes(), &layouts).unwrap();
    assert_eq!(v5, EditState { order: PipelineOrder::V50, ..base });
    for (from, to) in [
        (",gamma,0", ",gamma"),
        ("exposure,0,exposure,1", "exposure,0"),
        ("exposure,0,exposure,1", "exposure,0,exposure,0,exposure,1"),
        ("rawprepare,0,", ""),
        (",gamma,0", ",Gamma!,0"),
        ("iop_order_list", "other_list"),
    ] {
        assert!(matches!(code(&text.replacen(from, to, 1)), XmpError::Order { .. }), "{from} {to}");
    }
}

#[test]
fn a_foreign_sidecar_is_held_to_what_the_installed_darktable_knows() {
    let layouts = layouts();
    let text = written();
    let foreign = |text: &str, version: &str| foreign(text.as_bytes(), &layouts, version);
    let refused = |text: &str| foreign(text, "4.2.1").expect_err("it must be refused");
    assert_eq!(foreign(&text, "4.2.1").unwrap(), Foreign::Complete(masked(&layouts)));
    let newer = text.replacen("modversion=\"6\"", "modversion=\"7\"", 1);
    let error = refused(&newer);
    assert!(matches!(error, XmpError::NewerModule { found: 7, known: 6, .. }), "{error}");
    assert!(error.to_string().contains("exposure") && error.remedy().is_some());
    // 5.4.1 knows it, but not with so few bytes.
    assert!(matches!(foreign(&newer, "5.4.1"), Err(XmpError::Params(ParamError::Size { .. }))));
    let agx = text.replacen("operation=\"demosaic\"", "operation=\"agx\"", 1);
    assert!(matches!(refused(&agx), XmpError::NoModule { .. }));
    let stranger = text.replace("operation=\"demosaic\"", "operation=\"nosuchop\"");
    assert!(matches!(refused(&stranger), XmpError::NoModule { op, .. } if op == "nosuchop"));
    assert!(foreign(&stranger, "6.0.0").is_ok(), "a later darktable may have it");
    let blend = text.replace("blendop_version=\"11\"", "blendop_version=\"13\"");
    assert!(matches!(refused(&blend), XmpError::NewerBlend { found: 13, known: 11, .. }));
    assert!(foreign(&blend, "5.0.1").is_ok());
    assert!(matches!(
        refused(&text.replacen("mask_version=\"6\"", "mask_version=\"7\"", 1)),
        XmpError::NewerMask { version: 7, .. }
    ));
    let jpeg = text.replacen("darktable:iop_order_list", "darktable:other_list", 1);
    let jpeg = jpeg.replace("order_version=\"2\"", "order_version=\"5\"");
    assert!(matches!(refused(&jpeg), XmpError::Order { .. }));
    // The form that the instance names is not there.
    let start = text.find("     <rdf:li").unwrap();
    let end = text.find("    </rdf:Seq>\n   </darktable:masks_history>").unwrap();
    let bare = text.replace(&text[start..end], "");
    assert!(matches!(refused(&bare), XmpError::MissingMask { .. }));
    // A group that names a shape which is gone is darktable's own leaving, and kept.
    let second = start + text[start..end].find("/>").unwrap() + 3;
    let forms = [&text[start..second], &text[second..end]];
    let ellipse = forms.into_iter().find(|form| form.contains("left eye")).unwrap();
    let Foreign::Complete(state) = foreign(&text.replace(ellipse, ""), "4.2.1").unwrap() else {
        panic!("complete")
    };
    assert!(matches!(&state.masks[..], [MaskForm { shape: Shape::Opaque { kind: 4, .. }, .. }]));

    for (from, to) in [
        ("xmp_version=\"5\"", "xmp_version=\"3\""),
        ("presets_applied=\"1\"", "presets_applied=\"0\""),
        ("history_end=\"3\"", "history_end=\"0\""),
    ] {
        assert_eq!(foreign(&text.replace(from, to), "4.2.1").unwrap(), Foreign::Incomplete, "{to}");
    }
    let rated = "<x:xmpmeta xmlns:x=\"adobe:ns:meta/\"><rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\
                 <rdf:Description xmlns:darktable=\"http://darktable.sf.net/\" darktable:xmp_version=\"5\"/></rdf:RDF></x:xmpmeta>";
    assert!(matches!(refused(rated), XmpError::NotASidecar));
}

#[test]
fn blend_blocks_of_old_have_the_size_of_their_version_and_name_their_mask() {
    let layouts = layouts();
    let mut block = vec![0_u8; 300];
    (block[0], block[16]) = (3, 7);
    let text = written();
    let start = text.find("     <rdf:li\n      darktable:num=\"1\"").unwrap();
    let with = |bytes: &[u8], version: u32| {
        let block = format!(
            "blendop_version=\"{version}\"\n      darktable:blendop_params=\"{}\" darktable:was=\"",
            hex(bytes)
        );
        let item = &text[start..];
        let from = item.find("blendop_version").unwrap();
        let to = item.find("blendop_params=\"").unwrap() + "blendop_params=\"".len();
        text.replace(&item[from..to], "@")
            .replacen('@', "blendop_version=\"11\"\n      darktable:blendop_params=\"", 1)
            .replacen('@', &block, 1)
            .replace('@', "blendop_version=\"11\"\n      darktable:blendop_params=\"")
    };
    let read = |text: &str| read(text.as_bytes(), &layouts);
    let state = read(&with(&block, 6)).unwrap();
    let blend = state.module("exposure", 0).unwrap().blend.as_ref().unwrap();
    assert_eq!((blend.mask_id, blend.opaque.is_some()), (Some(7), true));
    assert!(matches!(write(&state, &layouts, "x"), Err(XmpError::MissingMask { id: 7, .. })));
    assert!(matches!(read(&with(&block, 9)), Err(XmpError::OldBlend { expected: 348, found: 300, .. })));
    assert_eq!(read(&with(&[0; 20], 9)).unwrap().module("exposure", 0).unwrap().blend, None);
}

#[test]
fn hostile_documents_meet_a_limit() {
    let text = written();
    let bomb = "<!DOCTYPE a [<!ENTITY b \"bbbb\"><!ENTITY c \"&b;&b;&b;\">]>";
    let with_type = text.replacen("<x:xmpmeta", &format!("{bomb}<x:xmpmeta"), 1);
    assert!(matches!(code(&with_type), XmpError::DocumentType));
    assert!(matches!(code(&text.replace("xmp_version=\"5\"", "xmp_version=\"&c;\"")), XmpError::Syntax(_)));
    assert!(matches!(code("<a>&c;</a>"), XmpError::Syntax(_)));
    let is =
        |error: XmpError, wanted: &str| matches!(error, XmpError::TooMuch { what, .. } if what == wanted);
    assert!(is(code(&"<a>".repeat(70)), "levels"));
    assert!(is(code(&"<a/>".repeat(30_000)), "elements"));
    let attributes: String = (0..4100).map(|i| format!(" a{i}=\"\"")).collect();
    assert!(is(code(&format!("<a{attributes}/>")), "attributes"));
    assert!(is(code(&" ".repeat(5 << 20)), "bytes"));
    let zeros = packed(&vec![0; 8 << 20]);
    let inflating =
        text.replacen("darktable:params=\"", &format!("darktable:params=\"{zeros}\" darktable:was=\""), 1);
    assert!(is(code(&inflating), "inflated bytes"));
    let many = format!("<darktable:history><rdf:Seq>{}", "<rdf:li/>".repeat(501));
    assert!(is(code(&text.replacen("<darktable:history>\n    <rdf:Seq>", &many, 1)), "items of a list"));
}

#[test]
fn states_that_darktable_would_misread_are_not_written() {
    let layouts = layouts();
    let write = |state: &EditState| write(state, &layouts, "x").expect_err("it must be refused");
    assert!(matches!(write(&EditState::default()), XmpError::NoHistory));
    let good = masked(&layouts);
    let with = |change: &dyn Fn(&mut EditState)| {
        let mut state = good.clone();
        change(&mut state);
        write(&state)
    };
    assert!(matches!(with(&|s| s.masks.clear()), XmpError::MissingMask { .. }));
    assert!(matches!(with(&|s| s.masks.push(s.masks[0].clone())), XmpError::Twice { .. }));
    assert!(matches!(with(&|s| s.modules.push(s.modules[0].clone())), XmpError::Twice { .. }));
    assert!(matches!(with(&|s| s.modules[0].modversion = 99), XmpError::NoLayout { modversion: 99, .. }));
    assert!(matches!(with(&|s| s.modules[0].name = "\u{1}".into()), XmpError::Character { .. }));
    for name in ["novelty", "darktable:a=\"\" b", "darktable:history_end", "darktable:"] {
        let error = with(&|s| drop(s.extras.insert(name.into(), String::new())));
        assert!(matches!(error, XmpError::Extra { .. }), "{name}");
    }
    let nan = with(&|s| {
        if let Params::Fields(values) = &mut s.modules[1].params {
            values.insert("exposure".into(), Value::Float(f32::NAN));
        }
    });
    assert!(matches!(nan, XmpError::Params(ParamError::NotFinite { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever instances, names, switches and values: the text reads to the state, and the state to the text.
    #[test]
    fn writing_and_reading_is_a_fixed_point(
        wanted in prop::collection::btree_map(
            (prop::sample::select(vec!["exposure", "bilat", "colorin", "temperature", "retouch", "agx", "gamma"]), 0u32..4),
            (any::<bool>(), "[ -~\u{a0}-\u{2ff}\n\t]{0,12}", prop::option::of(0f32..100.0)),
            1..12,
        ),
        jpeg in any::<bool>(),
    ) {
        let layouts = layouts();
        let mut state = EditState::default();
        if jpeg {
            state.order = PipelineOrder::V30Jpeg;
        }
        for ((op, instance), (enabled, name, opacity)) in wanted {
            let mut one = module(&layouts, op, instance);
            (one.enabled, one.name) = (enabled, name);
            one.blend = opacity.map(|opacity| crate::state::Blend { opacity, ..blend::normal(BlendSpace::Lab) });
            state.modules.push(one);
        }
        order::sort(&mut state);
        let text = write(&state, &layouts, "x.dng").unwrap();
        let back = read(text.as_bytes(), &layouts).unwrap();
        prop_assert_eq!(&back, &state);
        prop_assert_eq!(write(&back, &layouts, "x.dng").unwrap(), text);
    }
}

#[test]
fn forty_instances_are_quick() {
    let layouts = layouts();
    let mut state = EditState::default();
    for instance in 0..20 {
        state.modules.push(module(&layouts, "exposure", instance));
        state.modules.push(module(&layouts, "filmicrgb", instance));
    }
    order::sort(&mut state);
    let text = write(&state, &layouts, "x").unwrap();
    let start = std::time::Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        let back = read(text.as_bytes(), &layouts).unwrap();
        assert_eq!(write(&back, &layouts, "x").unwrap().len(), text.len());
    }
    let each = start.elapsed() / rounds;
    // Unoptimised and on a busy machine; optimised it is a small fraction.
    assert!(each < std::time::Duration::from_millis(500), "{each:?}");
}
