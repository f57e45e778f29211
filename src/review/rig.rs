//! Sessions with a person's picks, for tests.

use super::picks::{self, PhotoPicks, Pick, Verdict};
use crate::session::rig::{Rig, begin, photo, request, run};
use crate::transcript::SessionStart;

/// A warm branch and a bright one.
const PICKED: &str = r#"
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "warm", restated = "Warm." }, { name = "light", restated = "Bright." }] } }]
[[reply]]
calls = [{ name = "branch", arguments = { name = "WARM" } }, { name = "apply_primitive", arguments = { primitive_name = "warmth", parameter_values = { shift = 20 } } }, { name = "record_judgment", arguments = { branch = "WARM", judged_score = 3, judged_reasoning = "Warm." } }]
[[reply]]
calls = [{ name = "branch", arguments = { name = "LIGHT" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.4 } } }, { name = "record_judgment", arguments = { branch = "LIGHT", judged_score = 4, judged_reasoning = "Bright." } }]
[[reply]]
calls = [{ name = "end_mode_b_session", arguments = { session_summary = "Two." } }]
"#;

/// One more session, the `number`th from 0: a warm branch that the model scores 3, a bright one that it scores 4,
/// and a person's pick of the branch at `pick`. How it was started.
pub(crate) fn picked(rig: &Rig, number: usize, pick: usize) -> SessionStart {
    let name = |name: &str| match number {
        0 => format!("branch_b_{name}"),
        n => format!("branch_b_{name}_{}", n + 1),
    };
    let script = PICKED.replace("WARM", &name("warm")).replace("LIGHT", &name("light"));
    let asked = request("time=20h,iterations=30,branches=2", &["warm", "light"]);
    let mut session = begin(rig.setup(&script), &asked).unwrap();
    run(&mut session).unwrap();
    let branch = session.state.branches[pick].clone();
    let pick = Pick {
        branch: branch.name,
        commit: branch.tip,
        verdict: Some(Verdict::Pick),
        stars: None,
        note: String::new(),
        blind: true,
    };
    let start = session.state.start.clone();
    let of_session = PhotoPicks {
        photo: start.photo.clone(),
        session: start.session.clone(),
        baseline: start.baseline.clone(),
        picks: vec![pick],
    };
    drop(session);
    let kept = picks::import(&photo(&rig.library), &of_session, jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(kept, 1);
    start
}
