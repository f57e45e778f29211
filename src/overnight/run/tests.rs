use std::sync::Arc;

use super::*;
use crate::budget::Ledger;
use crate::overnight::plan::Caps;
use crate::overnight::record;
use crate::session::rig::{self, Rig};
use crate::transcript::Line;
use base::clock::SystemClock;
use base::ids::Hash;

/// A host that panics within a session.
struct Panics(bool);

impl Host for Panics {
    fn line(&self, _: &Line, _: &State, _: &Ledger) {
        assert!(!self.0, "a defect within the session");
    }
}

/// Lets the session at place 1 panic.
struct Defect(bool);

impl Observer for Defect {
    fn session(&self, place: usize, _: &str) -> Box<dyn Host + '_> {
        Box::new(Panics(self.0 && place == 1))
    }

    fn recorded(&self, _: &Stamped) {}
}

#[test]
fn a_panic_in_a_session_ends_that_session_alone_and_the_next_run_resumes_it() {
    let rig = Rig::new();
    let library = Library::new(&rig.library);
    let script = rig.library.with_file_name("script.toml");
    let reply = "[[reply]]\ncalls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n";
    std::fs::write(&script, reply).unwrap();
    let broken = rig.library.with_file_name("broken.dng");
    std::fs::write(&broken, "other sensor data").unwrap();
    let mut launcher = crate::launch::tests::launcher(Arc::new(rig::Sums::default()));
    let ask: Arc<crate::launch::Ask> = Arc::new(|_| panic!("a defect before the session"));
    launcher.ask = Box::new(move || Ok(ask.clone()));
    let planned = |raw: Option<&std::path::Path>, data: &str| PlannedSession {
        photo: "cup".into(),
        raw: raw.map(Into::into),
        sha256: Hash::of(data),
        brief: None,
        criteria: None,
        vectors: vec!["tone=lift the shadows".parse().unwrap()],
        budget: Budget::parse("time=20h,iterations=3,branches=1").unwrap(),
        provider: "script".into(),
        model: script.to_str().unwrap().into(),
        fallback: None,
        free: true,
        protocol: None,
        vars: BTreeMap::new(),
        referee: None,
        from: "main".into(),
        prompt: None,
        seed: 1,
        preview_size: 128,
        proxy: "off".into(),
        no_proposals: false,
    };
    let cup = || planned(None, "sensor data");
    let sessions = vec![planned(Some(&broken), "other sensor data"), cup(), cup()];
    let plan = (std::path::Path::new("/plan.toml"), "# plan");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let mut batch = record::begin(&library, plan, Caps::default(), sessions, now).unwrap();
    let runner = Runner::new().unwrap();
    let run_batch = |batch: &mut Batch, defect: bool| {
        let run = Run {
            launcher: &launcher,
            library: &library,
            runner: &runner,
            clock: &SystemClock,
            stop: &Stop::default(),
        };
        for jobs in [1, 2] {
            run.run(batch, jobs, &Defect(defect)).unwrap();
        }
    };
    let status = |batch: &Batch| {
        let read = Batch::read(&batch.folder).unwrap();
        assert!(read.is_over());
        read.tracks().into_iter().map(|track| track.status).collect::<Vec<_>>()
    };
    run_batch(&mut batch, true);
    let found = status(&batch);
    for (place, why) in [(0, "a defect before the session"), (1, "a defect within the session")] {
        let SessionStatus::Failed(fault) = &found[place] else { panic!("{found:?}") };
        assert!(fault.message.contains(why), "{fault}");
    }
    assert!(matches!(found[2], SessionStatus::Ended { outcome: Outcome::Completed, .. }), "{found:?}");
    // The defect is corrected.
    run_batch(&mut batch, false);
    let found = status(&batch);
    assert!(matches!(found[1], SessionStatus::Ended { outcome: Outcome::Completed, .. }), "{found:?}");
    assert_eq!(batch.tracks()[1].all.len(), 1, "one session, resumed and not started again");
}
