use super::*;

const PROFILES: &str = r#"<?xml version="1.0"?>
<!DOCTYPE lensdatabase SYSTEM "lensfun-database.dtd">
<lensdatabase version="1">
  <mount><name>Screw</name></mount>
  <mount><name>Bayonet</name><compat>Screw</compat></mount>
  <mount><name>Generic</name><compat>Screw</compat><compat>Bayonet</compat><compat>Odd</compat></mount>
  <camera><maker>Acme</maker><model>Acme One</model><mount>Bayonet</mount><cropfactor>1.523</cropfactor></camera>
  <camera><maker>Acme</maker><model>Acme Two</model><mount>Other</mount><cropfactor>1.0</cropfactor></camera>
  <camera><maker>Acme</maker><model>Acme Tiny</model><mount>Other</mount><cropfactor>5.6</cropfactor></camera>
  <camera><maker>Generic</maker><model>Crop-factor 1.0</model><model lang="de">Voll</model><mount>Generic</mount><cropfactor>1</cropfactor></camera>
  <camera><maker>Generic</maker><model>Crop-factor 1.5</model><mount>Generic</mount><cropfactor>1.53</cropfactor></camera>
  <lens><maker>K&amp;Z</maker><model>Sun-44 58mm 1:2</model><model lang="ru">Солнце</model><mount>Screw</mount><cropfactor>1</cropfactor>
    <calibration><distortion model="poly3" focal="58" k1="0.001"/></calibration></lens>
  <lens><maker>K&amp;Z</maker><model>Sun-44 58mm 1:2</model><mount>Screw</mount><cropfactor>1.5</cropfactor>
    <calibration><vignetting model="pa" focal="58" aperture="2" distance="10" k1="-1" k2="1" k3="0"/></calibration></lens>
  <lens><maker>K&amp;Z</maker><model>Sun-40 85mm f/1.5</model><mount>Screw</mount><cropfactor>1</cropfactor></lens>
  <lens><maker>Acme</maker><model>Acme Zoom</model><mount>Odd</mount><cropfactor>1.5</cropfactor>
    <calibration><tca model="linear" focal="18" kr="1"/><tca model="linear" focal="55" kr="1"/></calibration></lens>
  <lens><maker>Built</maker><model>fixed lens</model><mount>builtIn</mount><cropfactor>1</cropfactor></lens>
</lensdatabase>"#;

fn known() -> Lensfun {
    read(PROFILES).unwrap()
}

#[test]
fn the_profile_for_the_sensor_is_found_by_any_words_of_the_name() {
    let known = known();
    for name in ["Sun-44 58mm 1:2", "K&Z Sun-44 58mm 1:2", "sun 44", "58MM sun", " 1:2 "] {
        let found = known.fit(name, Some("acme one")).unwrap();
        assert_eq!((found.lens.model.as_str(), found.lens.crop), ("Sun-44 58mm 1:2", 1.5), "{name}");
        assert_eq!(found.camera.model, "Acme One");
        assert!(found.lens.vignetting && found.lens.focal == Some((58.0, 58.0)));
        assert_eq!(known.fit(name, None).unwrap().lens.crop, 1.0, "{name}");
    }
    // An adapter: the sensor counts, not the mount.
    let found = known.fit("sun 44", Some("Acme Two")).unwrap();
    assert_eq!((found.camera.model.as_str(), found.lens.crop), ("Crop-factor 1.0", 1.0));
    // A profile of a small sensor needs one as small.
    let zoom = known.fit("acme zoom", None).unwrap();
    assert_eq!((zoom.camera.model.as_str(), zoom.lens.focal), ("Crop-factor 1.5", Some((18.0, 55.0))));
}

#[test]
fn what_cannot_be_corrected_is_refused_with_what_would_help() {
    let known = known();
    let refused = |lens: &str, camera| {
        let error = known.fit(lens, camera).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidInput);
        error.to_string()
    };
    assert!(refused("Snu-44 58mm", None).contains("did you mean `Sun-44 58mm 1:2`"));
    assert!(refused("sum 44 58", None).contains("`Sun-44 58mm 1:2`"));
    assert!(refused("sun", None).contains("2 lenses: Sun-40 85mm f/1.5; Sun-44 58mm 1:2"));
    assert!(!refused("zzz", None).contains("did you mean"));
    assert!(refused("", None).contains("no lens"));
    assert!(refused("sun 44", Some("Acme On")).contains("`Acme One`"));
    assert!(refused("acme zoom", Some("Acme Two")).contains("crop factor 1.5"));
    assert!(refused("sun 44", Some("Acme Tiny")).contains("no camera of crop factor 5.6"));
    assert!(refused("fixed lens", None).contains("builtIn"));
}

#[test]
fn the_newest_profiles_are_read_and_damaged_ones_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let set = |name: &str| folder.path().join(name);
    let places = Places { sets: vec![set("system"), set("updates")], own: Some(set("own")) };
    let empty = Lensfun::read(&places).unwrap_err();
    assert_eq!(empty.code(), ErrorCode::NotFound);
    assert!(empty.to_string().contains("system") && empty.remedy().is_some());
    write("system/version_1/a.xml", &PROFILES[..900]);
    write("system/version_1/b.xml", "no profile at all");
    let damaged = Lensfun::read(&places).unwrap_err().to_string();
    assert!(damaged.contains("a.xml") && damaged.contains("b.xml"), "{damaged}");
    write("system/version_1/a.xml", PROFILES);
    let known = Lensfun::read(&places).unwrap();
    assert!(known.fit("sun 44", None).is_ok());
    assert!(known.fit("moon", None).unwrap_err().to_string().contains("b.xml"));
    // Newer ones take their place; the person's own are read besides.
    write("updates/version_1/timestamp.txt", "1700000000\n");
    write("updates/version_1/a.xml", &PROFILES.replace("Sun-40", "Moon-40"));
    write("own/mine.xml", &PROFILES.replace("Sun-40", "Star-40"));
    let known = Lensfun::read(&places).unwrap();
    assert!(known.fit("moon 40", None).is_ok() && known.fit("star 40", None).is_ok());
    assert!(known.fit("sun 40", None).is_err());
}

#[test]
fn a_file_that_was_cut_is_damaged_and_not_half_a_profile() {
    let last = PROFILES.rfind('<').unwrap();
    for (at, _) in PROFILES.char_indices().take_while(|(at, _)| *at <= last) {
        assert!(read(&PROFILES[..at]).is_err(), "cut at {at}");
    }
    assert!(read(&"<a>".repeat(1000)).is_err() && read("").is_err());
}

#[test]
fn focal_lengths_are_read_out_of_names() {
    for (name, found) in [
        ("Sun-44M-58mm 1:2", Some((58.0, 58.0))),
        ("Zoom 28-70 mm f/2.8", Some((28.0, 70.0))),
        ("Fish 4.5mm", Some((4.5, 4.5))),
        ("Sun 2/58", None),
        ("mm", None),
        ("70-28mm", None),
    ] {
        assert_eq!(focal_of(name), found, "{name}");
    }
}
