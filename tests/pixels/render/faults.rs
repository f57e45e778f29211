//! Shell scripts in darktable-cli's place, which fail in every way that a program can.

use std::io::Write;
use std::process::{Command, Stdio};

use base::clock::ManualClock;
use darktable::render::{ByHand, Quality, RenderError, Rendered};

use super::*;

/// The stub sees the photograph as `$1`, the sidecar as `$2` and the output as `$3`; `$here` is its folder, and
/// what it leaves in `$HOME` is found there.
pub fn stub(dir: &Path, version: &str, body: &str) -> PathBuf {
    let path = dir.join("darktable-cli");
    let script = format!(
        "#!/bin/sh\nhere=$(dirname \"$0\")\n\
         if [ \"$1\" = --version ]; then echo 'this is darktable-cli {version}'; exit 0; fi\n{body}\n"
    );
    // Written by another process: a file that this one has open for writing when a thread forks is busy.
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod +x \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
    path
}

/// Renders once with a stub whose folder holds `good.png` (64x43).
fn render(body: &str, deadline: &Deadline) -> Result<Rendered, RenderError> {
    let dir = tempfile::tempdir().unwrap();
    render_in(dir.path(), body, deadline)
}

fn render_in(dir: &Path, body: &str, deadline: &Deadline) -> Result<Rendered, RenderError> {
    let studio = stubbed(dir, body);
    let photo = studio.photo("photo.png");
    let rendered =
        studio.renderer.render_sidecar(&photo, &sidecar(0.0), 64, Quality::Preview, deadline, &ByHand);
    for left in fs::read_dir(studio.path("base/home")).unwrap().flatten() {
        fs::copy(left.path(), dir.join(left.file_name())).unwrap();
    }
    rendered
}

/// With a stub whose folder holds pictures of all kinds.
fn stubbed(dir: &Path, body: &str) -> Studio {
    image::imageops::thumbnail(&scene(), 64, 43).save(dir.join("good.png")).unwrap();
    image::RgbImage::new(64, 43).save(dir.join("black.png")).unwrap();
    image::RgbImage::from_pixel(64, 43, image::Rgb([90, 80, 70])).save(dir.join("flat.png")).unwrap();
    image::ImageBuffer::<image::Rgb<u16>, _>::from_fn(64, 43, |x, y| image::Rgb([(x * y) as u16; 3]))
        .save(dir.join("deep.png"))
        .unwrap();
    Studio::with(DarktableCli::at(&stub(dir, "4.2.1", body), &patient()).unwrap())
}

fn untrusted(body: &str, word: &str) {
    match render(body, &patient()) {
        Err(RenderError::Untrusted(why)) => assert!(why.contains(word), "{body}: {why}"),
        other => panic!("{body}: {other:?}"),
    }
}

pub const GOOD: &str = "cp \"$here/good.png\" \"$3\"";

#[test]
fn a_stub_that_behaves_is_believed() {
    let rendered = render(GOOD, &patient()).unwrap();
    assert_eq!((rendered.picture.width, rendered.picture.height), (64, 43));
}

#[test]
fn output_that_cannot_be_believed_is_refused() {
    untrusted("exit 0", "no file");
    untrusted("head -c 500 \"$here/good.png\" > \"$3\"", "decode");
    untrusted("echo not a picture > \"$3\"", "decode");
    untrusted(": > \"$3\"", "decode");
    untrusted("cp \"$here/good.png\" \"${3%.png}_01.png\"", "picture_01.png");
    untrusted(&format!("{GOOD}; cp \"$3\" \"$3.jpg\""), "picture.png.jpg");
    untrusted("cp \"$1\" \"$3\"", "300x200");
    untrusted("cp \"$here/black.png\" \"$3\"", "black");
    untrusted("cp \"$here/flat.png\" \"$3\"", "flat");
    untrusted("cp \"$here/deep.png\" \"$3\"", "8-bit");
}

#[test]
fn a_crash_is_told_with_status_and_last_words() {
    for (body, status) in [
        ("echo 'free(): invalid next size' >&2; exit 134", ["exit status: 134"; 2]),
        // Bubblewrap says it as a shell does.
        ("echo 'free(): invalid next size' >&2; kill -ABRT $$", ["signal: 6", "exit status: 134"]),
        // Even with a good picture.
        (&format!("{GOOD}; echo 'free(): invalid next size'; exit 1"), ["exit status: 1"; 2]),
    ] {
        match render(body, &patient()) {
            Err(RenderError::Failed { status: s, stderr }) => {
                assert!(status.iter().any(|status| s.contains(status)), "{s}");
                assert!(stderr.contains("invalid next size"), "{stderr}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_dropped_edit_is_seen_on_either_stream_and_in_a_flood() {
    let line = "[dev_read_history] module \\`exposure' version mismatch: history is 99, darktable is 6.";
    let flood = "head -c 2000000 /dev/zero | tr '\\0' '\\n' >&2";
    for body in [
        format!("{GOOD}; echo \"{line}\""),
        format!("{GOOD}; echo \"{line}\" >&2"),
        format!("{GOOD}; echo \"{line}\" >&2; {flood}"),
        format!("{GOOD}; {flood}; printf '%s' \"{line}\" >&2"),
    ] {
        match render(&body, &patient()) {
            Err(RenderError::Dropped { line }) => assert!(line.contains("version mismatch"), "{line}"),
            other => panic!("{other:?}"),
        }
    }
    // A flood alone is harmless.
    assert!(render(&format!("{GOOD}; {flood}"), &patient()).is_ok());
}

#[test]
fn a_hang_is_cut_on_time_with_all_its_children() {
    let dir = tempfile::tempdir().unwrap();
    for body in [
        "sleep 600",
        "exec sleep 600",
        "trap '' TERM HUP INT; sh -c \"trap '' TERM HUP INT; echo \\$\\$ > '$HOME/child'; sleep 600\"; sleep 600",
        "while :; do echo flood; done",
    ] {
        let studio = stubbed(dir.path(), &format!("echo begun > \"$HOME/begun\"; {body}"));
        let photo = studio.photo("photo.png");
        let at_home = |name: &str| {
            fs::read_to_string(studio.path("base/home").join(name)).ok().filter(|text| text.ends_with('\n'))
        };
        // The time is up as soon as the stub is at work, and its child where it has one.
        let mark = if body.contains("child") { "child" } else { "begun" };
        let clock = Arc::new(ManualClock::default());
        let deadline = Deadline::after(clock.clone(), Duration::from_secs(1));
        let edit = sidecar(0.0);
        let error = std::thread::scope(|scope| {
            let render = || {
                studio
                    .renderer
                    .render_sidecar(&photo, &edit, 64, Quality::Preview, &deadline, &ByHand)
                    .unwrap_err()
            };
            let cut = scope.spawn(render);
            until(|| at_home(mark).is_some());
            clock.advance(Duration::from_secs(1));
            cut.join().unwrap()
        });
        assert!(matches!(error, RenderError::TimedOut { .. }), "{body}: {error}");
        if let Some(child) = at_home("child") {
            // The dead have no command line. (And in bubblewrap that number is another process's out here.)
            let words = Path::new("/proc").join(child.trim()).join("cmdline");
            until(|| !fs::read_to_string(&words).is_ok_and(|words| words.contains("trap")));
        }
    }
}

#[test]
fn the_child_sees_no_key_of_ours() {
    const CANARY: &str = "sk-canary-0123456789";
    if std::env::var("OPENAI_API_KEY").as_deref() != Ok(CANARY) {
        // The test again, in a process that has the key.
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "render::faults::the_child_sees_no_key_of_ours"])
            .env("OPENAI_API_KEY", CANARY)
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
        assert!(String::from_utf8_lossy(&status.stdout).contains("1 passed"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    render_in(dir.path(), &format!("env > \"$HOME/env\"; {GOOD}"), &patient()).unwrap();
    let seen = fs::read_to_string(dir.path().join("env")).unwrap();
    assert!(seen.contains("HOME=") && !seen.contains("canary") && !seen.contains("OPENAI"), "{seen}");
    assert!(!seen.contains(&format!("HOME={}\n", std::env::var("HOME").unwrap())), "{seen}");
}

#[test]
fn a_darktable_that_is_old_or_no_darktable_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &Path| DarktableCli::at(path, &patient());
    assert!(matches!(at(&dir.path().join("nothing")), Err(RenderError::Missing(_))));
    let old = at(&stub(dir.path(), "4.2.0", "")).unwrap_err();
    assert_eq!(old.to_string(), "darktable 4.2.0 is too old: 4.2.1 is the oldest that works");
    assert!(matches!(at(&stub(dir.path(), "unknown", "")), Err(RenderError::Missing(_))));
    assert_eq!(at(&stub(dir.path(), "5.4.1", "")).unwrap().version(), "5.4.1");
}
