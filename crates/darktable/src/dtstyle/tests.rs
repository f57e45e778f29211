use super::*;
use crate::state::{Params, Value};
use crate::xmp;
use base::assets::Overlay;

fn plugin(op: &str, version: u32, params: &str, instance: u32, name: &str) -> String {
    format!(
        "<plugin><num>3</num><module>{version}</module><operation>{op}</operation><op_params>{params}</op_params>\
         <enabled>1</enabled><blendop_params></blendop_params><blendop_version>11</blendop_version>\
         <multi_priority>{instance}</multi_priority><multi_name>{name}</multi_name></plugin>"
    )
}

const UP: &str = "00000000000080b90000803f00004842000080c000000000";

fn file(plugins: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<darktable_style version=\"1.0\"><info><name>Dusk &amp; dawn</name>\
         <description>warm</description></info><style>{plugins}</style></darktable_style>"
    )
}

fn layouts() -> Layouts {
    Layouts::new(Overlay::vocabulary(None))
}

fn read_text(text: &str) -> Result<Style, StyleError> {
    read(text.as_bytes(), &layouts(), "4.2.1")
}

#[test]
fn a_style_is_read_and_applied_as_darktable_does() {
    let style = read_text(&file(&plugin("exposure", 6, UP, 0, ""))).unwrap();
    assert_eq!((style.name.as_str(), style.description.as_str()), ("Dusk & dawn", "warm"));
    let Params::Fields(fields) = &style.modules[0].params else { panic!("exposure has a layout") };
    assert_eq!(fields["exposure"], Value::Float(1.0));
    let bare = EditState::default();
    let once = style.apply(&bare);
    assert_eq!(once.modules.len(), 1);
    assert_eq!(style.apply(&once), once, "the same instance again");

    // A name that is not there makes an instance, one that is there replaces it.
    let named = read_text(&file(&plugin("exposure", 6, UP, 5, "sky"))).unwrap();
    let twice = named.apply(&once);
    assert_eq!(twice.modules.iter().map(|m| m.instance).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(named.apply(&twice), twice);
    assert_eq!(named.apply(&bare).modules[0].instance, 0, "a module that is not in use");
    let text = xmp::write(&twice, &layouts(), "x").unwrap();
    assert!(text.contains(",exposure,0,exposure,1,"));
}

#[test]
fn what_cannot_be_applied_as_it_was_meant_is_refused() {
    type Check = fn(&StyleError) -> bool;
    let good = plugin("exposure", 6, UP, 0, "");
    let masked = format!("0300000004000000180000000000000000 00c842 00000000 07000000{}", "0".repeat(784));
    let masked = masked.replace(' ', "");
    let cases: [(String, Check); 11] = [
        (file(""), |e| matches!(e, StyleError::Empty)),
        ("<a/>".into(), |e| matches!(e, StyleError::NotAStyle)),
        ("".into(), |e| matches!(e, StyleError::NotAStyle)),
        (file(&good)[..300].into(), |e| matches!(e, StyleError::File(XmpError::Syntax(_)))),
        (format!("<!DOCTYPE a>{}", file(&good)), |e| matches!(e, StyleError::File(XmpError::DocumentType))),
        (file(&good.repeat(2)), |e| matches!(e, StyleError::File(XmpError::Twice { .. }))),
        (file(&good.repeat(501)), |e| matches!(e, StyleError::File(XmpError::TooMuch { .. }))),
        (file(&good.replace(UP, "00")), |e| matches!(e, StyleError::File(XmpError::Params(_)))),
        (file(&good.replace(UP, "zz")), |e| matches!(e, StyleError::Plugin { name: "op_params", .. })),
        (file(&good.replace(">6<", ">7<")), |e| {
            matches!(e, StyleError::File(XmpError::NewerModule { known: 6, .. }))
        }),
        (file(&good.replace("<blendop_params>", &format!("<blendop_params>{masked}"))), |e| {
            matches!(e, StyleError::DrawnMask { .. })
        }),
    ];
    for (text, expected) in cases {
        let error = read_text(&text).unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert!(error.remedy().is_some() || matches!(error, StyleError::File(_)), "{error}");
    }
}
