//! Every way in which darktable was seen to fail, and what becomes of it. [`real`] and [`faults`] have most of
//! the tests for the plain renderer; this file has the rest, and the kept darktable's part.
//!
//! | what happens | what darktable does | what comes back | test |
//! |---|---|---|---|
//! | raw missing, empty | exit 1 | `Raw`, before a start | `real::photographs_that_cannot…`, `a_kept_darktable_survives…` |
//! | raw of random bytes, cut, of no known kind | exit 1, or half a picture | `Raw` | the same |
//! | sidecar empty, not XML | exit 1; kept: passes over it, so it is not asked | `Encode` | `real::an_edit_that…`, `sidecars_that…` |
//! | sidecar missing | exit 1 | `Encode` | `sidecars_that_cannot_be_read…` |
//! | sidecar cut, item dropped or misread | exit 0 | `Dropped`; `Untrusted` if black or flat | `real::an_edit_that…` |
//! | output folder missing | makes it | a picture | `output_folders…` |
//! | output unwritable | exit 1 | `Failed` | `output_folders…` |
//! | output exists | exit 0, another name | `Untrusted` | `output_folders…`, `faults::output_that…` |
//! | output of unknown kind, unknown style | exit 1 | never asked for | |
//! | disk full | exit 1 and half a file | `Io`, storage full | `checks::tests::a_full_disk…` |
//! | configuration folder unusable | exit 1 | `Io` | `a_configuration_folder…` |
//! | configuration of another version, lock of another process | exit 1 unless told to keep off | a picture | `databases_and_locks…` |
//! | several processes, one configuration | the same | pictures | `real::two_renders…`, `databases_and_locks…` |
//! | killed midway | no file | `Failed` with the signal; kept: a picture all the same | `a_signal_midway…`, `tests/pixels/worker.rs` |
//! | hangs | no limit of its own | `Cut` | `real::a_deadline…`, `faults::a_hang…`, `servers_that…` |
//! | floods its output | | bounded | `faults::a_dropped…`, `servers_that…` |
//! | crashes | exit 134, 139 | `Failed` | `faults::a_crash…` |
//! | out of memory | crashes, or gives up | `Failed` | `a_darktable_without_memory…` |
//! | reaches for other files, or the network | | fails to | `isolation` |

use std::process::Command;

use darktable::checks;
use darktable::render::{ByHand, Quality, RenderError, RenderRequest, Rendered, Renderer};
use darktable::sandbox::SandboxPaths;
use darktable::testing::{Base, History, Job, PICTURE, RenderJob, Scratch, arguments};
use darktable::worker::Worker;

use super::faults::{GOOD, stub};
use super::*;

impl Studio {
    /// One run step by step, with something changed before it starts.
    fn run_after(
        &self,
        photo: &Path,
        change: impl FnOnce(&Scratch, &mut PathBuf),
    ) -> Result<Picture, RenderError> {
        let base = Base::new(&self.path("base"))?;
        let scratch = Scratch::new(&base, photo)?;
        let mut sidecar = scratch.write_sidecar(&sidecar(0.0))?;
        change(&scratch, &mut sidecar);
        let order = RenderJob {
            sidecar: Some(&sidecar),
            long_edge: 64,
            quality: Quality::Preview,
            history: History::Unsaid,
            export: None,
            script: None,
        };
        let ended = scratch.run(&self.cli, &base, &order, &patient())?;
        checks::ending(&ended, photo, &scratch.output())?;
        checks::decoded(&scratch.output(), PICTURE, order.long_edge)
    }

    /// A kept darktable that writes the edit as it stands in `text`.
    fn worker(&self, text: String) -> Worker {
        Worker::new(self.cli.clone(), &self.path("base"), Arc::new(move |_, _| Ok(text.clone()))).unwrap()
    }
}

fn ask(worker: &Worker, path: &Path, deadline: &Deadline) -> Result<Rendered, RenderError> {
    let raw = RawFile { path: path.to_owned(), sha256: Hash::of(b"") };
    let state = EditState::default();
    let request = RenderRequest { raw: &raw, state: &state, long_edge: 64, quality: Quality::Preview };
    worker.render(&request, deadline, &ByHand)
}

#[test]
fn a_kept_darktable_survives_photographs_that_cannot_be_read() {
    let studio = Studio::new();
    let good = studio.photo("photo.png");
    let dng = bayer_dng();
    let files: [(&str, &[u8]); 4] = [
        ("empty.dng", b""),
        ("text.dng", b"this is a shopping list\n"),
        ("cut.dng", &dng[..dng.len() / 2]),
        ("text.xyz", b"this is a shopping list\n"),
    ];
    for (name, bytes) in files {
        fs::write(studio.path(name), bytes).unwrap();
    }
    let worker = studio.worker(sidecar(0.0));
    let expected = ask(&worker, &good, &patient()).unwrap().pixel_hash;
    for name in files.iter().map(|file| file.0).chain(["missing.dng"]) {
        let bad = studio.path(name);
        match ask(&worker, &bad, &patient()) {
            Err(RenderError::Raw { path, .. }) => assert_eq!(path, bad),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(ask(&worker, &good, &patient()).unwrap().pixel_hash, expected, "after {name}");
    }
    // All by one darktable, which still lives.
    assert_eq!((worker.children(), worker.troubles()), (1, 0));
}

#[test]
fn sidecars_that_cannot_be_read_are_named_by_both_renderers() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let missing = studio.run_after(&photo, |_, sidecar| fs::remove_file(sidecar).unwrap());
    assert!(matches!(missing, Err(RenderError::Encode(_))), "{missing:?}");
    for text in ["", "no sidecar"] {
        let worker = studio.worker(text.into());
        let answer = ask(&worker, &photo, &patient());
        assert!(matches!(answer, Err(RenderError::Encode(_))), "{text:?}: {answer:?}");
    }
}

#[test]
fn output_folders_are_made_or_the_failure_is_told() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let made = studio.run_after(&photo, |scratch, _| fs::remove_dir(scratch.output()).unwrap()).unwrap();
    assert_eq!(made.width, 64);
    let unwritable = studio.run_after(&photo, |scratch, _| {
        fs::remove_dir(scratch.output()).unwrap();
        fs::write(scratch.output(), "").unwrap();
    });
    assert!(matches!(unwritable, Err(RenderError::Failed { .. })), "{unwritable:?}");
    let taken = studio.run_after(&photo, |scratch, _| {
        scene().save(scratch.output().join("picture.png")).unwrap();
    });
    assert!(
        matches!(&taken, Err(RenderError::Untrusted(why)) if why.contains("picture_01.png")),
        "{taken:?}"
    );
}

#[test]
fn a_configuration_folder_that_cannot_be_used_is_named_and_the_other_renderer_helps_out() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let config = studio.path("base").join(format!("config-{}-server-preview", studio.cli.version()));
    fs::write(&config, "").unwrap();
    let worker = studio.worker(sidecar(0.0));
    assert_eq!(ask(&worker, &photo, &patient()).unwrap().picture.width, 64);
    assert_eq!((worker.children(), worker.troubles()), (0, 1));
    let config = studio.path("base").join(format!("config-{}", studio.cli.version()));
    fs::remove_dir_all(&config).unwrap();
    fs::write(&config, "").unwrap();
    match studio.run_after(&photo, |_, _| {}) {
        Err(RenderError::Io { path, .. }) => assert_eq!(path, config),
        other => panic!("{other:?}"),
    }
    fs::remove_file(&config).unwrap();
    assert!(studio.run_after(&photo, |_, _| {}).is_ok());
}

#[test]
fn databases_and_locks_of_other_processes_are_kept_off() {
    let studio = Studio::new();
    let photo = studio.photo("photo.png");
    let expected = studio.run_after(&photo, |_, _| {}).unwrap().pixel_hash();
    let worker = studio.worker(sidecar(0.0));
    // A database that is none, and locks of a process that lives: this one.
    for config in ["", "-server-preview"] {
        let config = studio.path("base").join(format!("config-{}{config}", studio.cli.version()));
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("data.db"), "another version's").unwrap();
        for lock in ["data.db.lock", "library.db.lock"] {
            fs::write(config.join(lock), std::process::id().to_string()).unwrap();
        }
    }
    // Both kinds at once, and two of one kind.
    let hashes = std::thread::scope(|scope| {
        let kept = || ask(&worker, &photo, &patient()).unwrap().pixel_hash;
        let plain = || studio.run_after(&photo, |_, _| {}).unwrap().pixel_hash();
        [scope.spawn(kept), scope.spawn(kept), scope.spawn(plain)].map(|thread| thread.join().unwrap())
    });
    assert_eq!(hashes, [(); 3].map(|()| expected.clone()));
    assert_eq!((worker.children(), worker.troubles()), (2, 0));
}

/// The processes that have all these words in their command lines.
fn processes(words: [&str; 2]) -> Vec<String> {
    let running = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        words.iter().all(|word| line.contains(word))
    });
    running.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Runs `render` and sends `signal` to the first process with these words when it has just begun. Where that had
/// ended before, `render` is run again: `None` says that it always had.
fn interrupted<T: Send>(signal: &str, words: [&str; 2], render: impl Fn() -> T + Sync) -> Option<T> {
    let kill = |signal: &str, pid: &str| Command::new("kill").args([signal, pid]).output().unwrap();
    let once = || {
        std::thread::scope(|scope| {
            let rendering = scope.spawn(&render);
            while !rendering.is_finished() {
                let Some(found) = processes(words).into_iter().next() else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                // Stopped, it cannot end before the signal comes.
                kill("-STOP", &found);
                let stopped = || fs::read_to_string(format!("/proc/{found}/stat"));
                until(|| {
                    stopped().map_or(true, |stat| [") T ", ") Z "].iter().any(|state| stat.contains(state)))
                });
                let midway = stopped().is_ok_and(|stat| stat.contains(") T "));
                kill(signal, &found);
                kill("-CONT", &found);
                let answer = rendering.join().unwrap();
                return midway.then_some(answer);
            }
            rendering.join().unwrap();
            None
        })
    };
    (0..50).find_map(|_| once())
}

#[test]
fn a_signal_midway_is_a_failure_with_its_number_and_the_next_render_works() {
    let studio = Studio::new();
    // Not the mosaic: of one so small, 4.2.1 has two pictures (docs/adr/0010-repeatable-pixels.md).
    let photo = studio.photo("photo.png");
    let base = studio.path("base");
    let words = [base.to_str().unwrap(), "darktable-cli"];
    // Not SIGINT: what a shell starts in the background ignores it.
    for (signal, number) in [("-TERM", "signal: 15"), ("-USR1", "signal: 10"), ("-KILL", "signal: 9")] {
        let cut = interrupted(signal, words, || studio.run_after(&photo, |_, _| {}));
        match cut.unwrap() {
            Err(RenderError::Failed { status, .. }) => assert!(status.contains(number), "{status}"),
            other => panic!("{signal}: {other:?}"),
        }
    }
    // A kept darktable that is killed at its start, or once it has said that it is ready, costs nothing but time.
    let expected = studio.run_after(&photo, |_, _| {}).unwrap().pixel_hash();
    let at_its_start = (0..20).any(|_| {
        let kept = || {
            let worker = studio.worker(sidecar(0.0));
            let answer = ask(&worker, &photo, &patient()).unwrap();
            (answer.pixel_hash, worker.children(), worker.troubles())
        };
        let (pixels, children, troubles) = interrupted("-TERM", [words[0], "luacmd"], kept).unwrap();
        assert_eq!(pixels, expected);
        (children, troubles) == (0, 1)
    });
    assert!(at_its_start);
    until(|| processes(words).is_empty());
}

#[test]
fn servers_that_hang_flood_lie_or_leave_are_told_from_good_ones() {
    let dir = tempfile::tempdir().unwrap();
    scene().save(dir.path().join("good.png")).unwrap();
    let behave = |server: &str| {
        let body = format!("case \"$*\" in *luacmd*) {server};; *) {GOOD};; esac");
        let studio = Studio::with(DarktableCli::at(&stub(dir.path(), "4.2.1", &body), &patient()).unwrap());
        let photo = studio.photo("photo.png");
        let limit = Duration::from_millis(700);
        let worker = studio.worker(sidecar(0.0));
        let raw = raw(&photo);
        let state = EditState::default();
        let request = RenderRequest { raw: &raw, state: &state, long_edge: 300, quality: Quality::Preview };
        let hangs = ["sleep", "while"].iter().any(|word| server.contains(word));
        let answer = worker.render(&request, &if hangs { within(limit) } else { patient() }, &ByHand);
        assert_eq!(worker.children(), usize::from(answer.is_err() && !hangs), "{server}");
        (answer.map(|rendered| rendered.picture.width), worker.troubles())
    };
    let ready = "echo '@chemigram ready'; read line";
    // The plain renderer does what these do not.
    for server in ["exit 0", "exit 1", "echo '@chemigram what'; exec cat", &format!("{ready}; exit 1")] {
        assert!(matches!(behave(server), (Ok(300), 1)), "{server}");
    }
    for server in [
        "exec sleep 60",
        "while :; do echo flood; done",
        &format!("{ready}; sleep 60"),
        &format!("{ready}; while :; do echo flood >&2; done"),
    ] {
        assert!(matches!(behave(server), (Err(RenderError::TimedOut { .. }), 0)), "{server}");
    }
    let lie = behave(&format!("{ready}; echo '@chemigram done'; exec cat"));
    assert!(matches!(&lie, (Err(RenderError::Untrusted(why)), 0) if why.contains("no file")), "{lie:?}");
}

#[test]
fn a_darktable_without_memory_fails_instead_of_hanging() {
    let studio = Studio::new();
    let photo = studio.photo("photo.dng");
    let config = studio.path("config");
    fs::create_dir(&config).unwrap();
    let [photo, config] = [&photo, &config].map(|path| path.to_str().unwrap());
    let job = |memory| Job {
        program: studio.cli.path(),
        args: arguments([
            photo,
            "picture.png",
            "--core",
            "--configdir",
            config,
            "--library",
            ":memory:",
            "--disable-opencl",
        ]),
        home: studio.dir.path(),
        temp: studio.dir.path(),
        env: &[("OMP_NUM_THREADS", "2")],
        sandbox: studio.cli.sandbox().ok(),
        reach: SandboxPaths { read: &[], write: &[] },
        memory,
        watch: checks::is_telling,
    };
    let ending =
        |memory| checks::ending(&job(memory).run(&patient()).unwrap(), Path::new(photo), studio.dir.path());
    let error = ending(96 << 20).unwrap_err();
    assert!(matches!(error, RenderError::Failed { .. }), "{error}");
    ending(darktable::testing::memory()).unwrap();
}
