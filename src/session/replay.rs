//! A recorded session made again, as a proof: its changes in a scratch copy of the photo, its pictures afresh.
//!
//! The calls are taken from the transcript, so no model is asked. Each one that changes the photo runs where the
//! session stood, and has to make the commits that were recorded; then each picture that a line names is rendered.
//! Nothing is read of what the session itself has made, but to see whether it is still whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::gate::Gate;
use crate::protocol::Protocol;
use crate::session::driver::{Patience, Session};
use crate::session::opinion::Referee;
use crate::session::start::{self, Setup};
use crate::session::state::State;
use crate::session::{SessionError, protocols};
use crate::tools::{self, BlobStore};
use crate::transcript::{self, EffectClass, Event, Line, ToolIntent, Transcript};
use base::clock::Deadline;
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, SessionId};
use darktable::render::{ByHand, Quality, RenderRequest, Renderer};
use engine::lease::Lessor;
use engine::photo::{Library, Workspace};

/// The longest that one picture may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a replay proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Every commit and every picture is the same.
    SamePixels,
    /// Every commit is the same; the pictures were made by another darktable, and are not compared.
    SameEdits,
    /// Something is not as it was recorded.
    Differs,
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The session.
    pub session: SessionId,
    /// The proof.
    pub proof: Proof,
    /// Calls that were made again.
    pub calls: u64,
    /// Commits that came out the same.
    pub commits: u64,
    /// Pictures that came out the same.
    pub pictures: u64,
    /// The darktable of the session, and the one of the replay.
    pub darktable: [String; 2],
    /// Where it differs first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
}

/// A line of a transcript that is not what came of it now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The line, from 1.
    pub line: u64,
    /// What is different.
    pub what: String,
}

/// A picture that a line names.
struct Pictured<'a> {
    line: u64,
    state: &'a Hash,
    long_edge: u32,
    quality: Quality,
    pixel_hash: &'a Hash,
}

/// Makes the session `id` again in `scratch`, an empty folder. `setup.renderer` must not know the session's
/// pictures; `told` hears of each step, with how many there are.
///
/// # Errors
/// When the transcript or an object that it names is damaged, or nothing can be rendered at all.
pub fn replay(
    mut setup: Setup,
    id: &SessionId,
    scratch: &Path,
    told: &dyn Fn(u64, u64),
) -> Result<Replay, SessionError> {
    let original = setup.workspace.clone();
    let lines = transcript::read(&original.session_folder(id).join("transcript.jsonl"))?.lines;
    let made = commits(&lines);
    // What the session left must be what it says, byte for byte.
    for commit in &made {
        original.state_of(commit)?;
    }
    setup.workspace = copy(&original, &lines, &made, scratch)?;
    let protocol = protocols::of(&original, &lines)?;
    let mut session = stage(&setup, id, &lines, protocol)?;
    let pictures = pictures(&lines);
    let calls: Vec<(u64, &ToolIntent)> = lines.iter().filter_map(changes).collect();
    let all = (calls.len() + pictures.len()) as u64;
    let mut found = Replay {
        session: id.clone(),
        proof: Proof::Differs,
        calls: 0,
        commits: 0,
        pictures: 0,
        darktable: [session.state.start.darktable.clone(), setup.renderer.darktable_version().to_owned()],
        difference: None,
    };

    let rest = lines.get(1..).unwrap_or_default();
    for line in rest {
        if let Some((seq, intent)) = changes(line) {
            told(found.calls, all);
            let now = again(&mut session, seq, intent)?;
            let recorded = between(&lines, seq);
            if let Some(what) = differs(&recorded, &now) {
                found.difference = Some(Difference { line: seq + 1, what });
                return Ok(found);
            }
            found.calls += 1;
            found.commits += now.len() as u64;
        }
        session.state.fold(line);
    }
    if found.darktable[0] != found.darktable[1] {
        found.proof = Proof::SameEdits;
        return Ok(found);
    }
    for (n, picture) in pictures.iter().enumerate() {
        told(found.calls + n as u64, all);
        let state = session.photo.workspace().state(picture.state)?;
        let request = RenderRequest {
            raw: &session.engine.raw,
            state: &state,
            long_edge: picture.long_edge,
            quality: picture.quality,
        };
        let deadline =
            Deadline::after(Arc::clone(&setup.clock), PATIENCE).with_cancel(setup.stop.soft.clone());
        let rendered =
            session.engine.renderer.render(&request, &deadline, &ByHand).map_err(|e| Fault::from(&e))?;
        if rendered.pixel_hash != *picture.pixel_hash {
            let what = format!(
                "the picture of state {} at {} pixels ({}) has other pixels: {} and not {}",
                picture.state.short(),
                picture.long_edge,
                picture.quality.as_str(),
                rendered.pixel_hash.short(),
                picture.pixel_hash.short()
            );
            found.difference = Some(Difference { line: picture.line, what });
            return Ok(found);
        }
        found.pictures += 1;
    }
    found.proof = Proof::SamePixels;
    Ok(found)
}

/// The call of a line that changes the photo and has a result.
fn changes(line: &Line) -> Option<(u64, &ToolIntent)> {
    match &line.event {
        Event::ToolCall(intent) if intent.class == EffectClass::Mutate || intent.target.is_some() => {
            Some((line.seq, intent))
        }
        _ => None,
    }
}

/// Every commit that the session made.
fn commits(lines: &[Line]) -> BTreeSet<Hash> {
    let own = |line: &Line| match &line.event {
        Event::SnapshotCreated { commit, .. } => Some(commit.clone()),
        _ => None,
    };
    let mut made: BTreeSet<Hash> = lines.iter().filter_map(own).collect();
    // A branch is made at a commit that was there.
    if let Some(Event::SessionStart(start)) = lines.first().map(|line| &line.event) {
        made.remove(&start.baseline);
    }
    made
}

/// The snapshots that a call made, by its lines; one that a crash cut in the middle may say the same twice.
fn between(lines: &[Line], intent: u64) -> Vec<(String, Hash, Hash)> {
    let after = lines.iter().skip_while(|line| line.seq <= intent);
    let until = after.take_while(
        |line| !matches!(&line.event, Event::ToolResult { intent: Some(of), .. } if *of == intent),
    );
    let mut made = Vec::new();
    for line in until {
        if let Event::SnapshotCreated { name, commit, state, .. } = &line.event {
            let one = (name.clone(), commit.clone(), state.clone());
            if made.last() != Some(&one) {
                made.push(one);
            }
        }
    }
    made
}

/// Every picture that the session saw, each once.
fn pictures(lines: &[Line]) -> Vec<Pictured<'_>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for line in lines {
        let Event::Render { state, long_edge, quality, pixel_hash: Some(pixel_hash), .. } = &line.event
        else {
            continue;
        };
        if seen.insert((state, long_edge, quality, pixel_hash)) {
            let (line, long_edge, quality) = (line.seq + 1, *long_edge, *quality);
            all.push(Pictured { line, state, long_edge, quality, pixel_hash });
        }
    }
    all
}

/// The photo as it was before the session, in `scratch`.
fn copy(
    original: &Workspace,
    lines: &[Line],
    made: &BTreeSet<Hash>,
    scratch: &Path,
) -> Result<Workspace, SessionError> {
    let left_out = ["sessions", "previews", "exports", "lock", "log.jsonl", "refs"];
    let target = scratch.join(original.id().as_str());
    copy_folder(original.folder(), &target, &|path| {
        let name = path.strip_prefix(original.folder()).unwrap_or(path);
        let first = name.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let object: String = name.iter().skip(2).map(|part| part.to_string_lossy()).collect();
        first.is_none_or(|first| !left_out.contains(&first.as_str()))
            && !made.iter().any(|hash| hash.as_str() == object)
    })
    .map_err(SessionError::Blob)?;
    // A branch that it moved and did not make was there before; a tag is made once.
    let created = |line: &Line| match &line.event {
        Event::ToolCall(intent) => match &intent.target {
            Some((name, None)) => Some(format!("refs/heads/{name}")),
            _ => None,
        },
        Event::SnapshotCreated { name, .. } => name.starts_with("refs/tags/").then(|| name.clone()),
        _ => None,
    };
    let created: BTreeSet<String> = lines.iter().filter_map(created).collect();
    copy_folder(&original.folder().join("refs"), &target.join("refs"), &|path| {
        let name = path.strip_prefix(original.folder()).ok().and_then(Path::to_str);
        !name.is_some_and(|name| created.contains(name))
    })
    .map_err(SessionError::Blob)?;
    Ok(Library::new(scratch).open(original.id())?)
}

pub(super) fn copy_folder(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if !wanted(&path) {
            continue;
        }
        let kind = std::fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            copy_folder(&path, &to.join(entry), wanted)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&path)?, to.join(entry))?;
        } else {
            std::fs::copy(&path, to.join(entry))?;
        }
    }
    Ok(())
}

/// A session in the copy that stands where the recorded one began.
fn stage(
    setup: &Setup,
    id: &SessionId,
    lines: &[Line],
    protocol: Option<Arc<Protocol>>,
) -> Result<Session, SessionError> {
    let workspace = &setup.workspace;
    let header = lines.first().ok_or(SessionError::NotEnded)?;
    let Event::SessionStart(start) = &header.event else { return Err(SessionError::NotEnded) };
    let baseline = workspace.commit(&start.baseline)?;
    let state = State::begin(header, baseline.state, protocol).ok_or(SessionError::NotEnded)?;
    let folder = workspace.session_folder(id);
    std::fs::create_dir_all(&folder).map_err(SessionError::Blob)?;
    let transcript =
        Transcript::create(&folder.join("transcript.jsonl"), setup.clock.clone(), setup.redactor.clone())?;
    let lessor = Lessor::default();
    let photo = start::lock(workspace, id, lessor.lease())?;
    // What the session might spend was decided when it ran.
    let budget = Budget {
        time_seconds: u64::from(u32::MAX),
        max_iterations: u64::MAX,
        max_branches: u64::MAX,
        max_tokens: None,
        max_cost_micro_usd: None,
        max_renders: None,
        max_model_calls: None,
    };
    Ok(Session {
        engine: start::engine(setup, &start.baseline)?,
        photo,
        gate: Gate::new(Ledger::new(budget, Reserve::default()), transcript, lessor, setup.stop.clone()),
        state,
        fallback: None,
        provider: setup.provider.clone(),
        referee: Referee::Nobody,
        blobs: BlobStore::new(folder.join("blobs"), setup.redactor.clone()),
        folder,
        system: String::new(),
        tools: Vec::new(),
        stop: setup.stop.clone(),
        patience: Patience::default(),
        traces: None,
    })
}

/// Makes one call again, and gives the snapshots that it made.
fn again(
    session: &mut Session,
    seq: u64,
    intent: &ToolIntent,
) -> Result<Vec<(String, Hash, Hash)>, SessionError> {
    let Some(tool) = tools::find(&intent.call.name) else {
        let message = format!("this version has no tool `{}`", intent.call.name);
        return Err(Fault::new(ErrorCode::NotFound, message).into());
    };
    let intent = ToolIntent { reserved: Amounts::default(), ..intent.clone() };
    let permit = match session.gate.admit(intent.clone())? {
        Ok(permit) => permit,
        Err(exhausted) => return Err(Fault::from(exhausted).into()),
    };
    let arguments = tool.check(&intent.call)?;
    // A call that failed has made no snapshot, and fails again.
    let _ = tool.run(&mut session.context(seq, &|_| {}), &arguments, permit);
    let made = |line: Line| match line.event {
        Event::SnapshotCreated { name, commit, state, .. } => Some((name, commit, state)),
        _ => None,
    };
    Ok(session.gate.drain_unfolded().into_iter().filter_map(made).collect())
}

/// What is different between the snapshots that were recorded and those that were made now.
fn differs(recorded: &[(String, Hash, Hash)], now: &[(String, Hash, Hash)]) -> Option<String> {
    let short = |one: Option<&(String, Hash, Hash)>| match one {
        Some((name, commit, state)) => format!("{name} at {} (state {})", commit.short(), state.short()),
        None => "none".to_owned(),
    };
    let most = recorded.len().max(now.len());
    let at = (0..most).find(|n| recorded.get(*n) != now.get(*n))?;
    let (recorded, now) = (short(recorded.get(at)), short(now.get(at)));
    Some(format!("the call makes another snapshot: {now}, and not {recorded}"))
}
