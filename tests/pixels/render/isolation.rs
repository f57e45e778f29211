//! What a confined child can reach, and that darktable is confined.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use base::assets::Overlay;
use darktable::baseline;
use darktable::cache::Cache;
use darktable::layout::Layouts;
use darktable::render::{ByHand, Quality, RenderError, RenderRequest, Renderer};
use darktable::sandbox::{Isolation, Sandbox, SandboxPaths};
use darktable::testing::{self, Job, arguments};
use darktable::worker::Worker;

use super::faults::{GOOD, stub};
use super::*;

/// Tells a process of these tests that it is the child: where the folders are, the port, and whose child it is.
const ORDER: &str = "CHEMIGRAM_TEST_CHILD";
/// What no child may do.
const FORBIDDEN: [&str; 11] =
    ["tcp", "udp", "unix", "new file", "sidecar", "key", "photo", "environment", "link", "move", "remove"];
/// What every child may do.
const ALLOWED: [&str; 4] = ["read", "home", "temp", "null"];

/// The child's part: tries everything, and says what worked.
fn tries(order: &str) -> Vec<&'static str> {
    let mut order = order.lines();
    let mut next = || PathBuf::from(order.next().unwrap());
    let [user, base] = [next(), next()];
    let port: u16 = next().to_str().unwrap().parse().unwrap();
    let photo = base.join("given/photo.dng");
    // Sent into a network of its own, it arrives nowhere: the parent looks.
    let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(b"key", ("127.0.0.1", port)));
    let append = |path: &Path| {
        fs::OpenOptions::new()
            .append(true)
            .open(path)
            .and_then(|mut f| std::io::Write::write_all(&mut f, b"!"))
    };
    let parent = next();
    let outcomes = [
        ("tcp", TcpStream::connect(("127.0.0.1", port)).is_ok()),
        ("unix", UnixStream::connect(user.join("socket")).is_ok()),
        ("new file", fs::write(user.join("new"), "x").is_ok()),
        ("sidecar", fs::write(user.join("photo.dng.xmp"), "x").is_ok()),
        ("key", fs::read(user.join("key")).is_ok()),
        ("photo", append(&photo).is_ok()),
        ("environment", fs::read(Path::new("/proc").join(parent).join("environ")).is_ok()),
        ("link", fs::hard_link(&photo, base.join("temp/link")).is_ok()),
        ("read", fs::read(&photo).is_ok()),
        ("home", fs::write(base.join("home/own"), "x").is_ok()),
        ("temp", fs::write("own", "x").is_ok()),
        ("null", append(Path::new("/dev/null")).is_ok()),
        ("move", fs::rename(&photo, base.join("temp/moved")).is_ok()),
        (
            "remove",
            ["given/photo.dng", "temp/moved"].iter().any(|name| fs::remove_file(base.join(name)).is_ok()),
        ),
    ];
    outcomes.into_iter().filter(|(_, worked)| *worked).map(|(what, _)| what).collect()
}

/// What a child can do in `sandbox`.
fn reached(sandbox: Option<&Sandbox>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let [user, base] = ["user", "base"].map(|name| dir.path().join(name));
    let [home, temp, given] = ["home", "temp", "given"].map(|name| base.join(name));
    for folder in [&user, &home, &temp, &given] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(user.join("key"), "secret").unwrap();
    fs::write(user.join("photo.dng"), "pixels").unwrap();
    fs::hard_link(user.join("photo.dng"), given.join("photo.dng")).unwrap();
    let _socket = UnixListener::bind(user.join("socket")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let order = format!("{}\n{}\n{port}\n{}", user.display(), base.display(), std::process::id());
    let ended = Job {
        program: &std::env::current_exe().unwrap(),
        args: arguments([
            "--exact",
            "render::isolation::a_confined_child_has_no_network_and_no_files_but_its_own",
            "--nocapture",
        ]),
        home: &home,
        temp: &temp,
        env: &[(ORDER, &order)],
        sandbox,
        reach: SandboxPaths { read: &[&given], write: &[] },
        memory: testing::memory(),
        watch: |line| line.contains("did: "),
    }
    .run(&patient())
    .unwrap();
    assert!(ended.status.success(), "{sandbox:?}: {} {}", ended.stdout, ended.stderr);
    if sandbox.is_some() {
        assert_eq!(fs::read_to_string(user.join("photo.dng")).unwrap(), "pixels");
        assert_eq!(fs::read_dir(&user).unwrap().count(), 3, "something new lies beside the photograph");
    }
    let [line] = &ended.watched[..] else { panic!("{sandbox:?}: {} {}", ended.stdout, ended.stderr) };
    let mut reached: Vec<_> = line.split_once("did: ").unwrap().1.split(", ").map(str::to_owned).collect();
    reached.extend(datagrams.recv(&mut [0; 8]).is_ok().then(|| "udp".to_owned()));
    reached
}

#[test]
fn a_confined_child_has_no_network_and_no_files_but_its_own() {
    if let Ok(order) = std::env::var(ORDER) {
        println!("did: {}", tries(&order).join(", "));
        return;
    }
    let sorted =
        |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<std::collections::BTreeSet<_>>();
    // Without a sandbox everything works: so it is the sandbox that forbids, and nothing else.
    let everything = sorted(&[&FORBIDDEN[..], &ALLOWED].concat());
    assert_eq!(reached(None).into_iter().collect::<std::collections::BTreeSet<_>>(), everything);
    for sandbox in Sandbox::candidates() {
        let reached = reached(Some(&sandbox)).into_iter().collect();
        assert_eq!(sorted(&ALLOWED), reached, "{sandbox}");
    }
}

/// Whether the kernel has Landlock, asked without the code under test.
fn landlock() -> bool {
    #[cfg(target_os = "linux")]
    {
        use landlock::{ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
        let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        hard.handle_access(AccessFs::from_all(ABI::V1)).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    false
}

#[test]
fn the_installed_darktable_is_confined_where_the_kernel_can() {
    let found = DarktableCli::find(&patient()).unwrap();
    let required = DarktableCli::find_as(Isolation::Required, &patient());
    if landlock() {
        assert_eq!(found.sandbox(), Ok(&Sandbox::Kernel));
    }
    match found.sandbox() {
        Ok(sandbox) => assert_eq!(required.unwrap().sandbox(), Ok(sandbox)),
        Err(reason) => {
            assert!(matches!(required, Err(RenderError::Unconfined(why)) if why == reason));
        }
    }
    assert!(DarktableCli::find_as(Isolation::Off, &patient()).unwrap().sandbox().is_err());
}

#[test]
fn the_installed_darktable_is_asked_again_once_it_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path(), u64::MAX);
    let find = || cache.darktable(Isolation::WherePossible, &patient()).unwrap();
    let asked = DarktableCli::find(&patient()).unwrap();
    assert_eq!(find(), asked);
    let kept: Vec<_> = fs::read_dir(dir.path().join("asked")).into_iter().flatten().collect();
    let [kept] = &*kept else {
        // A script that starts it, or no Landlock.
        let program = fs::read(asked.path()).unwrap();
        assert!(!program.starts_with(b"\x7fELF") || asked.sandbox() != Ok(&Sandbox::Kernel));
        assert_eq!(find(), asked);
        return;
    };
    let path = kept.as_ref().unwrap().path();
    let text = fs::read_to_string(&path).unwrap();
    let version = format!("{:?}", asked.version());
    let wrong = text.replace(&version, r#""9.8.7""#);
    fs::write(&path, &wrong).unwrap();
    assert_eq!(find().version(), "9.8.7", "it was asked though it is the same");
    let kept: serde_json::Value = serde_json::from_str(&wrong).unwrap();
    for file in ["program", "library_file"] {
        for what in ["device", "inode", "bytes", "modified"] {
            let mut other = kept.clone();
            other[file][what] = if what == "modified" { [1, 2].into() } else { 1.into() };
            fs::write(&path, other.to_string()).unwrap();
            assert_eq!(find(), asked, "{file} {what}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert_eq!(find(), asked);
}

#[test]
fn confined_pixels_are_the_same_pixels() {
    let [confined, free] = [Isolation::WherePossible, Isolation::Off]
        .map(|isolation| Studio::with(DarktableCli::find_as(isolation, &patient()).unwrap()));
    assert_eq!(confined.cli.sandbox().is_ok(), !Sandbox::candidates().is_empty());
    let shots = [&confined, &free].map(|studio| {
        let photo = studio.photo("photo.dng");
        let base = studio.path("base");
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let told = baseline::ask(&studio.cli, &layouts, &photo, &base, &patient()).unwrap();
        let defaults = String::from_utf8(told.sidecar).unwrap();
        let shoot = |text: &str| {
            studio.renderer.render_sidecar(&photo, text, 300, Quality::Judge, &patient(), &ByHand).unwrap()
        };
        let encode: Arc<Encoder> = {
            let defaults = defaults.clone();
            Arc::new(move |_, _| Ok(defaults.clone()))
        };
        let (raw, state) = (raw(&photo), EditState::default());
        let request = RenderRequest { raw: &raw, state: &state, long_edge: 300, quality: Quality::Judge };
        // Where a kept darktable takes too long for its start, another answers: that would prove nothing here.
        let kept = || {
            let worker = Worker::new(studio.cli.clone(), &base, encode.clone()).unwrap();
            let rendered = worker.render(&request, &patient(), &ByHand).unwrap();
            ((worker.children(), worker.troubles()) == (1, 0)).then_some(rendered)
        };
        let by_worker = (0..10).find_map(|_| kept()).expect("the kept darktable did not answer");
        assert_eq!(fs::read(&photo).unwrap(), bayer_dng());
        [shoot(&defaults).pixel_hash, by_worker.pixel_hash]
    });
    assert_eq!(shots[0], shots[1]);
    assert_eq!(shots[0][0], shots[0][1]);
}

/// Renders with a stub of this body, confined or not; says whether it could write where it lies, and in the photo.
fn wrote(isolation: Isolation) -> [bool; 2] {
    let dir = tempfile::tempdir().unwrap();
    scene().save(dir.path().join("good.png")).unwrap();
    let body = format!("echo x > \"$here/mark\"; echo x >> \"$1\"; {GOOD}");
    let cli = DarktableCli::at_as(&stub(dir.path(), "4.2.1", &body), isolation, &patient()).unwrap();
    let studio = Studio::with(cli);
    let photo = studio.photo("photo.png");
    let before = fs::read(&photo).unwrap();
    studio
        .renderer
        .render_sidecar(&photo, &sidecar(0.0), 300, Quality::Preview, &patient(), &ByHand)
        .unwrap();
    [dir.path().join("mark").exists(), fs::read(&photo).unwrap() != before]
}

#[test]
fn a_render_is_confined_and_the_photograph_cannot_be_written_through_its_link() {
    assert_eq!(wrote(Isolation::Off), [true, true]);
    if !Sandbox::candidates().is_empty() {
        assert_eq!(wrote(Isolation::Required), [false, false]);
    }
}

/// The program, with folders of its own and a darktable that runs only where it can read `elsewhere`.
fn chemigram(dir: &Path, arguments: &[&str]) -> std::process::Output {
    let elsewhere = dir.join("elsewhere");
    fs::create_dir_all(dir.join("stub")).unwrap();
    fs::write(&elsewhere, "x").unwrap();
    let real = DarktableCli::find(&patient()).unwrap();
    let stub = dir.join("stub/darktable-cli");
    let script = format!(
        "#!/bin/sh\ncat '{}' > /dev/null && exec '{}' \"$@\"\n",
        elsewhere.display(),
        real.path().display()
    );
    fs::write(&stub, script).unwrap();
    fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Command::new(assert_cmd::cargo::cargo_bin!("chemigram"))
        .args(arguments)
        .env("CHEMIGRAM_DARKTABLE_CLI", stub)
        .env("CHEMIGRAM_REQUIRE_SANDBOX", "0")
        .env("HOME", dir)
        .envs(["DATA", "CONFIG", "CACHE"].map(|kind| (format!("XDG_{kind}_HOME"), dir.join(kind))))
        .output()
        .unwrap()
}

#[test]
fn a_darktable_that_nothing_confines_is_warned_of_once_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let doctor = chemigram(dir.path(), &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(0), "{report:#}");
    let check = |what: &str| report["checks"].as_array().unwrap().iter().find(|c| c["what"] == what).unwrap();
    assert_eq!((&check("sandbox")["ok"], &check("test render")["ok"]), (&false.into(), &true.into()));
    assert!(check("sandbox")["remedy"].as_str().unwrap().contains("bubblewrap"));
    assert_eq!(text(&doctor.stderr).matches("without a sandbox").count(), 1, "{}", text(&doctor.stderr));

    fs::write(dir.path().join("photo.dng"), bayer_dng()).unwrap();
    let photo = dir.path().join("photo.dng");
    let refused = chemigram(dir.path(), &["--require-sandbox", "ingest", photo.to_str().unwrap()]);
    let words = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{words}");
    assert!(words.contains("no sandbox holds") && words.contains("help: run `chemigram doctor`"), "{words}");
    let doctor = chemigram(dir.path(), &["--require-sandbox", "doctor"]);
    assert_eq!(doctor.status.code(), Some(6));
    let words = text(&doctor.stdout);
    assert!(words.contains("✗ sandbox") && !words.contains("install darktable"), "{words}");
}
