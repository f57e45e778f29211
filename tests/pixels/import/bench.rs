//! darktable with a photo, and what it wrote of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use base::assets::Overlay;
use base::ids::Hash;
use darktable::complete::complete;
use darktable::forms::{clone_group, clone_shape};
use darktable::layout::{BlendSpace, Layouts};
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::render::{Picture, Quality, RawFile};
use darktable::state::{Blend, EditState, GroupMember, Module, Params, PipelineOrder, Shape, Value};
use darktable::xmp::Foreign;
use darktable::{blend, dng, order, params, preload, xmp};
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, Vocabulary};
use testkit::kept::{self, ALONE, Kept};

/// As large as the photo: nothing is scaled.
pub(super) const EDGE: u32 = 600;

/// darktable with a photo, and the sidecars that it wrote of it.
pub(super) struct Bench {
    pub(super) cli: DarktableCli,
    pub(super) layouts: Layouts,
    pub(super) vocabulary: Vocabulary,
    pub(super) facts: PhotoFacts,
    pub(super) renderer: Kept<OneShot>,
    pub(super) raw: RawFile,
    pub(super) base: PathBuf,
    /// What darktable's own script run left: sidecars, a style, and pictures with the style.
    pub(super) made: PathBuf,
    pub(super) _folder: tempfile::TempDir,
}

pub(super) static BENCH: LazyLock<Bench> = LazyLock::new(Bench::new);

impl Bench {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let photo = dng::demo_photo().unwrap();
        let bytes = dng::write_dng(&photo, &dng::DngOptions::default()).unwrap();
        let raw = RawFile { path: folder.path().join("demo.dng"), sha256: Hash::of(&bytes) };
        std::fs::write(&raw.path, bytes).unwrap();
        let base = folder.path().join("darktable");
        let cli = kept::darktable();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let untouched = kept::ask(&layouts, &raw.path, &base).unwrap();
        let facts = PhotoFacts::new(untouched.state, &untouched.facts);
        let encode: Arc<Encoder> = Arc::new(|_: &EditState, _: &str| Err("from sidecars only".to_owned()));
        let renderer = OneShot::new(cli.clone(), &base, Arc::clone(&encode)).unwrap();
        let renderer = Kept::new(renderer, ALONE, encode, None);
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let made = folder.path().join("made");
        std::fs::create_dir(&made).unwrap();
        let bench = Self { cli, layouts, vocabulary, facts, renderer, raw, base, made, _folder: folder };
        bench.let_darktable_write();
        bench
    }

    pub(super) fn apply(
        &self,
        state: &EditState,
        name: &str,
        value: (&str, f64),
        mask: Option<&str>,
    ) -> EditState {
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let values = BTreeMap::from([(value.0.to_owned(), value.1)]);
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        self.vocabulary
            .apply(&request, state, &self.facts, &self.layouts, self.cli.version())
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .state
    }

    pub(super) fn sidecar(&self, state: &EditState) -> String {
        xmp::write(state, &self.layouts, "photo.dng").unwrap()
    }

    /// A module as darktable has it by default, as a further instance where the state has one already.
    pub(super) fn module(&self, op: &str, instance: u32) -> Module {
        let layout = self.layouts.module(op).unwrap().unwrap();
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

    /// Two masked instances of a module over a global one, and a mask of another's.
    pub(super) fn masked(&self) -> EditState {
        let state = self.apply(&self.facts.baseline, "exposure", ("ev", 0.4), None);
        let eye = r#"{"shape":"ellipse","center":[0.3,0.4],"radius":[0.2,0.1],"feather":0.1}"#;
        let state = self.apply(&state, "exposure", ("ev", 1.2), Some(eye));
        let around = r#"{"shape":"circle","center":[0.6,0.5],"radius":0.3,"invert":true}"#;
        let state = self.apply(&state, "exposure", ("ev", -0.8), Some(around));
        let top = r#"{"shape":"gradient","anchor":[0.5,0.5],"angle":0,"width":0.3}"#;
        self.apply(&state, "shadows_lift", ("amount", 1.0), Some(top))
    }

    /// A global and a masked edit, of two modules that the style sets too and of one that it does not.
    pub(super) fn edited(&self) -> EditState {
        let state = self.apply(&self.facts.baseline, "exposure", ("ev", -0.5), None);
        let state = self.apply(&state, "sharpen", ("amount", 0.3), None);
        let top = r#"{"shape":"gradient","anchor":[0.5,0.5],"angle":0,"width":0.3}"#;
        self.apply(&state, "shadows_lift", ("amount", 1.0), Some(top))
    }

    /// A healed and a cloned spot, whose forms are kept whole.
    pub(super) fn retouched(&self) -> EditState {
        let mut state = self.facts.baseline.clone();
        let mut retouch = self.module("retouch", 0);
        let circle = |x: f32, y: f32| Shape::Circle { border: 0.02, center: [x, y], radius: 0.06 };
        let spots = [
            clone_shape("heal", &circle(0.5, 0.5), [0.2, 0.3]).unwrap(),
            clone_shape("clone", &circle(0.7, 0.6), [0.4, 0.8]).unwrap(),
        ];
        let member = |form| GroupMember { form, opacity: 1.0, state: 3 };
        let group = clone_group("spots", spots.iter().map(|s| member(s.id)).collect()).unwrap();
        let Params::Fields(fields) = &mut retouch.params else { panic!("retouch has a layout") };
        for (name, values) in [
            ("rt_forms.formid", [i64::from(spots[0].id), i64::from(spots[1].id)]),
            ("rt_forms.algorithm", [2, 1]),
        ] {
            let Some(Value::Ints(all)) = fields.get_mut(name) else { panic!("{name} is an array") };
            all[..2].copy_from_slice(&values);
        }
        retouch.blend = Some(Blend { mask_id: Some(group.id), ..blend::normal(BlendSpace::RgbScene) });
        state.modules.push(retouch);
        state.masks.extend(spots.into_iter().chain([group]));
        order::sort(&mut state);
        state
    }

    /// The second exposure runs behind the tone mapper.
    pub(super) fn reordered(&self) -> EditState {
        let mut state = self.facts.baseline.clone();
        let mut second = self.module("exposure", 1);
        second.name = "at the end".into();
        let Params::Fields(fields) = &mut second.params else { panic!("exposure has a layout") };
        fields.insert("exposure".into(), Value::Float(-0.7));
        state.modules.push(second);
        let mut slots = order::built_in(&state);
        let at = slots.iter().position(|s| *s == ("exposure".to_owned(), 1)).unwrap();
        let slot = slots.remove(at);
        let behind = slots.iter().position(|(op, _)| op == "filmicrgb").unwrap() + 1;
        slots.insert(behind, slot);
        state.order = PipelineOrder::Custom;
        state.sequence = slots;
        order::sort(&mut state);
        state
    }

    /// Whether darktable's scripts make styles and sidecars without a window: 4.2.1 does. 5.0.1 and 5.4.1 write
    /// their own text only into pictures then, and wait forever when they put a style on one.
    pub(super) fn makes_styles(&self) -> bool {
        self.cli.version().starts_with("4.")
    }

    /// Lays the sidecars of several edits beside links to the photo and has one darktable write all of them
    /// anew, in its own way.
    pub(super) fn let_darktable_write(&self) {
        let styled = self.apply(&self.facts.baseline, "exposure", ("ev", 0.6), None);
        let styled = self.apply(&styled, "sharpen", ("amount", 1.0), None);
        let mut styled = self.apply(&styled, "vignette", ("amount", 0.5), None);
        let mut second = self.module("exposure", 1);
        second.name = "sky".into();
        styled.modules.push(second);
        order::sort(&mut styled);
        let edits = [
            ("masked", self.masked()),
            ("retouched", self.retouched()),
            ("reordered", self.reordered()),
            ("style", styled),
            ("plain", self.facts.baseline.clone()),
            ("edited", self.edited()),
        ];
        for (name, state) in &edits {
            let link = self.made.join(format!("{name}.dng"));
            std::fs::hard_link(&self.raw.path, &link).unwrap();
            std::fs::write(self.made.join(format!("{name}.dng.xmp")), self.sidecar(state)).unwrap();
        }
        std::fs::write(self.made.join("names"), "masked\nretouched\nreordered\n").unwrap();
        std::fs::hard_link(&self.raw.path, self.made.join("boot.dng")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/darktable.lua");
        let script = format!("dofile('{}')", script.display());
        if self.makes_styles() {
            let said = self.darktable(["boot.dng", "boot.png", "--width", "64"], &["--luacmd", &script]);
            assert!(said.contains("@OK"), "{said}");
            return;
        }
        for name in ["masked", "retouched", "reordered"] {
            let [raw, sidecar, picture] = ["dng", "dng.xmp", "jpg"].map(|ending| format!("{name}.{ending}"));
            let said = self.darktable([&raw, &sidecar, &picture, "--width=64"], &[]);
            let picture = std::fs::read(self.made.join(picture)).unwrap_or_else(|_| panic!("{said}"));
            let text = String::from_utf8_lossy(&picture);
            let (_, packet) = text.split_once("<x:xmpmeta").unwrap();
            let (packet, _) = packet.split_once("</x:xmpmeta>").unwrap();
            std::fs::write(self.made.join(sidecar), format!("<x:xmpmeta{packet}</x:xmpmeta>")).unwrap();
        }
    }

    /// Runs darktable-cli by itself in the folder, as repeatably as the program does; what it said. A darktable
    /// that waits for what never comes is ended after two minutes.
    pub(super) fn darktable(&self, what: [&str; 4], core: &[&str]) -> String {
        let settings = preload::repeatable(&self.cli, &self.made).unwrap();
        let output = Command::new("timeout")
            .args(["-k", "1", "120"])
            .arg(self.cli.path())
            .args(what)
            .args(["--hq", "false", "--icc-type", "SRGB"])
            .args(["--apply-custom-presets", "false", "--core", "--configdir"])
            .arg(self.made.join("config"))
            .args(["--library", ":memory:", "--disable-opencl", "--conf", "write_sidecar_files=on import"])
            .args(["--conf", "plugins/lighttable/export/high_quality_processing=false"])
            .args(core)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.made)
            .env("TMPDIR", &self.made)
            .envs(settings)
            .current_dir(&self.made)
            .output()
            .unwrap();
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
    }

    pub(super) fn written(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.made.join(format!("{name}.dng.xmp"))).unwrap();
        // Only darktable packs its blobs.
        assert!(text.contains("blendop_params=\"gz"), "darktable did not write the sidecar of {name}");
        text
    }

    /// The state of a sidecar, completed by darktable where it has to be.
    pub(super) fn read(&self, name: &str, sidecar: &str) -> EditState {
        let read = |bytes: &[u8]| {
            xmp::foreign(bytes, &self.layouts, self.cli.version()).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        match read(sidecar.as_bytes()) {
            Foreign::Complete(state) => state,
            Foreign::Incomplete => {
                let whole = complete(
                    &self.cli,
                    &self.raw.path,
                    sidecar.as_bytes(),
                    &self.base,
                    &base::clock::Deadline::never(),
                );
                match read(&whole.unwrap_or_else(|e| panic!("{name}: {e}"))) {
                    Foreign::Complete(state) => state,
                    Foreign::Incomplete => panic!("{name}: darktable did not complete it"),
                }
            }
        }
    }

    pub(super) fn render(&self, sidecar: &str) -> Arc<Picture> {
        let rendered = self.renderer.render_sidecar(&self.raw, sidecar, EDGE, Quality::Preview);
        rendered.unwrap_or_else(|e| panic!("{e}")).picture
    }
}

/// The greatest difference of any sample; 255 for pictures of different sizes.
pub(super) fn difference(a: &Picture, b: &Picture) -> u8 {
    if (a.width, a.height) != (b.width, b.height) {
        return 255;
    }
    a.rgb.iter().zip(&b.rgb).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}
