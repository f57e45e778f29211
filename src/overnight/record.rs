//! A night on disk: what it is, what became of each of its sessions, and who works on it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::overnight::BatchError;
use crate::overnight::plan::Caps;
use crate::transcript::{Outcome, Vector};
use base::durable;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::{Hash, PhotoId, SessionId};
use engine::photo::Library;

/// The version of `night.json`.
const FORMAT: u32 = 1;
/// The folder of all nights, in a library.
const FOLDER: &str = "overnight";
const NIGHT: &str = "night.json";
const PLAN: &str = "plan.toml";
const LEDGER: &str = "ledger.jsonl";
const LOCK: &str = "lock";

/// One session of a plan, with everything looked up and read: what is in here is what is run, whatever becomes
/// of the files from which it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedSession {
    /// The photo as the plan names it.
    pub photo: String,
    /// Its raw file, where the plan names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<PathBuf>,
    /// The hash of its raw.
    pub sha256: Hash,
    /// The brief; `None` takes the photo's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    /// What to judge by; `None` leaves it to taste and brief.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// The axes to explore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vectors: Vec<Vector>,
    /// What it may spend.
    pub budget: Budget,
    /// The provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Whether that costs nothing.
    pub free: bool,
    /// The protocol, by name or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Values of its variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
    /// Who gives second opinions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<String>,
    /// What to fork from.
    pub from: String,
    /// The prompt, where another than the usual one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The seed.
    pub seed: u64,
    /// Longest side of previews in pixels.
    pub preview_size: u32,
    /// By how much the copy of the raw is smaller that previews come from: `off`, `auto` or a number.
    pub proxy: String,
}

/// What a night is; fixed at its beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form.
    pub format: u32,
    /// The night's name: when it began (UTC).
    pub night: String,
    /// The plan's file.
    pub plan: PathBuf,
    /// The hash of caps and orders: the same plan again is the same night, until it is over.
    pub sha256: Hash,
    /// When it began.
    pub begun: Timestamp,
    /// What it may take.
    pub caps: Caps,
    /// The sessions.
    pub orders: Vec<PlannedSession>,
}

/// The hash of what is to be done.
pub fn hash(caps: &Caps, orders: &[PlannedSession]) -> Hash {
    Hash::of(serde_json::to_vec(&(FORMAT, caps, orders)).unwrap_or_default())
}

/// Something that happened in a night.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// Somebody began to work on the night.
    #[serde(rename = "sitting")]
    RunStarted {
        /// The process.
        pid: u32,
        /// Sessions at once.
        jobs: usize,
    },
    /// A session is about to begin, or to go on.
    Started {
        /// Its place in the plan, from 0.
        place: usize,
        /// Its photo.
        photo: PhotoId,
        /// Its id.
        session: SessionId,
        /// What it may spend: what the plan says, or what the night had left.
        budget: Budget,
        /// Whether it goes on.
        again: bool,
    },
    /// A session has its closing line.
    Ended {
        /// Its place in the plan, from 0.
        place: usize,
        /// Its id.
        session: SessionId,
        /// How it ended.
        outcome: Outcome,
        /// The exit status that it would have had by itself.
        status: u8,
        /// Whether it ended because the night was stopped: it goes on with the night.
        cut: bool,
    },
    /// A session could not begin, or stopped without a closing line.
    Failed {
        /// Its place in the plan, from 0.
        place: usize,
        /// The code.
        code: ErrorCode,
        /// Why.
        message: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
    },
    /// A session was not begun.
    NotBegun {
        /// Its place in the plan, from 0.
        place: usize,
        /// Why.
        why: String,
    },
    /// Everything was done that could be.
    Closed,
}

impl Entry {
    /// What became of a session that could not begin or go on.
    pub fn failed(place: usize, fault: &Fault) -> Self {
        let remedy = base::error::Coded::remedy(fault);
        Self::Failed { place, code: fault.code, message: fault.message.clone(), remedy }
    }
}

/// An entry with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// When (UTC), for people.
    pub t: Timestamp,
    /// The night's own time in milliseconds: it does not run between sittings, and no change of the clock on the
    /// wall moves it. Absent in what earlier builds wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mono_ms: Option<u64>,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

/// Where a session of a night stands, by the ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionStatus {
    /// Its turn has not come.
    Waiting,
    /// It was begun, and nothing says that it ended: it runs, or was killed.
    Begun,
    /// It has ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// The exit status that it would have had by itself.
        status: u8,
        /// Whether it ended because the night was stopped.
        cut: bool,
    },
    /// It could not begin, or stopped in the middle.
    Failed(Fault),
    /// It was not begun: why.
    NotBegun(String),
}

/// What the ledger says of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Its photo and id, the budget that it was given, once it was begun. Of several the last.
    pub session: Option<(PhotoId, SessionId, Budget)>,
    /// Every session that was begun for it: each may have spent something.
    pub all: Vec<(PhotoId, SessionId, Budget)>,
    /// Where it stands.
    pub standing: SessionStatus,
}

/// A night as it is on disk.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is.
    pub record: Record,
    /// What happened, oldest first.
    pub entries: Vec<Stamped>,
}

impl Batch {
    /// Reads a night from its folder.
    pub fn read(folder: &Path) -> Result<Self, BatchError> {
        let path = folder.join(NIGHT);
        let bytes = files::read_own(&path, files::LARGEST_LIST).map_err(BatchError::io("read", &path))?;
        let damaged = |path: &Path, reason: String| BatchError::Damaged { path: path.to_owned(), reason };
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
        if record.format > FORMAT {
            let reason = format!("a newer chemigram wrote it (format {})", record.format);
            return Err(damaged(&path, reason));
        }
        if hash(&record.caps, &record.orders) != record.sha256 {
            return Err(damaged(&path, "it is not what its hash says".into()));
        }
        let path = folder.join(LEDGER);
        let bytes = match files::read_own(&path, files::LARGEST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(BatchError::io("read", &path)(e)),
        };
        let mut entries = Vec::new();
        // As bytes: a line may be torn within a character.
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                // A crash tears the line that it is writing; what that line says was not done yet.
                Err(e) if e.is_eof() => {}
                Err(e) => return Err(damaged(&path, format!("line {}: {e}", number + 1))),
            }
        }
        Ok(Self { folder: folder.to_owned(), record, entries })
    }

    /// Where each session stands, in the plan's order.
    pub fn tracks(&self) -> Vec<Track> {
        let fresh = || Track { session: None, all: Vec::new(), standing: SessionStatus::Waiting };
        let mut tracks: Vec<Track> = self.record.orders.iter().map(|_| fresh()).collect();
        for stamped in &self.entries {
            let (place, standing) = match &stamped.entry {
                Entry::Started { place, photo, session, budget, .. } => {
                    let begun = (photo.clone(), session.clone(), budget.clone());
                    if let Some(track) = tracks.get_mut(*place) {
                        if track.all.iter().all(|(_, known, _)| known != session) {
                            track.all.push(begun.clone());
                        }
                        track.session = Some(begun);
                    }
                    (place, SessionStatus::Begun)
                }
                Entry::Ended { place, outcome, status, cut, .. } => {
                    (place, SessionStatus::Ended { outcome: *outcome, status: *status, cut: *cut })
                }
                Entry::Failed { place, code, message, remedy } => {
                    let fault = Fault::new(*code, message);
                    let fault = match remedy {
                        Some(remedy) => fault.with("remedy", remedy.as_str()),
                        None => fault,
                    };
                    (place, SessionStatus::Failed(fault))
                }
                Entry::NotBegun { place, why } => (place, SessionStatus::NotBegun(why.clone())),
                Entry::RunStarted { .. } | Entry::Closed => continue,
            };
            if let Some(track) = tracks.get_mut(*place) {
                track.standing = standing;
            }
        }
        tracks
    }

    /// Whether everything was done that could be.
    pub fn is_over(&self) -> bool {
        self.entries.last().is_some_and(|stamped| stamped.entry == Entry::Closed)
    }

    /// Writes down what happened at the night's time `at`, synced.
    pub(super) fn append(&mut self, entry: Entry, at: Duration) -> Result<Stamped, BatchError> {
        let mono_ms = Some(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
        let stamped = Stamped { t: Timestamp::now(), mono_ms, entry };
        let path = self.folder.join(LEDGER);
        let line = serde_json::to_string(&stamped).unwrap_or_default();
        durable::append_line(&path, &line).map_err(BatchError::io("append to", &path))?;
        self.entries.push(stamped.clone());
        Ok(stamped)
    }

    /// Takes the night for this process, if no other one keeps it. It is free again when the lock is dropped.
    pub fn lock(&self) -> Result<NightLock, BatchError> {
        let path = self.folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = files::open_own(&path, &mut options).map_err(BatchError::io("lock", &path))?;
        match durable::try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = files::read_own(&path, 64).unwrap_or_default();
                let pid = str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                return Err(BatchError::Busy { name: self.record.night.clone(), pid });
            }
            Err(TryLockError::Error(e)) => return Err(BatchError::io("lock", &path)(e)),
        }
        let signed = file.set_len(0).and_then(|()| file.rewind());
        signed
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(BatchError::io("lock", &path))?;
        Ok(NightLock(file))
    }
}

/// A night while this process works on it. The system takes it back from a process that dies.
#[derive(Debug)]
pub struct NightLock(#[allow(dead_code, reason = "it is held, not read")] File);

/// Makes the folder of a new night and writes down what it is.
pub fn begin(
    library: &Library,
    plan: (&Path, &str),
    caps: Caps,
    orders: Vec<PlannedSession>,
    now: Timestamp,
) -> Result<Batch, BatchError> {
    let nights = library.root().join(FOLDER);
    durable::make_folder(&nights).map_err(BatchError::io("make", &nights))?;
    let stamp = now.strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let (mut name, mut number) = (stamp.clone(), 2);
    // Two nights may begin in one second.
    let folder = loop {
        let folder = nights.join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => break folder,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                name = format!("{stamp}_{number}");
                number += 1;
            }
            Err(e) => return Err(BatchError::io("make", &folder)(e)),
        }
    };
    let (file, text) = plan;
    let record = Record {
        format: FORMAT,
        night: name,
        plan: file.to_owned(),
        sha256: hash(&caps, &orders),
        begun: now,
        caps,
        orders,
    };
    let json = serde_json::to_vec_pretty(&record).unwrap_or_default();
    durable::sync_folder(&nights).map_err(BatchError::io("write", &nights))?;
    // The record last: with it, the folder is a night.
    for (name, bytes) in [(PLAN, text.as_bytes()), (NIGHT, &json)] {
        let path = folder.join(name);
        durable::write(&path, bytes).map_err(BatchError::io("write", &path))?;
    }
    Ok(Batch { folder, record, entries: Vec::new() })
}

/// The names of all nights of a library, oldest first.
fn names(library: &Library) -> Vec<String> {
    let entries = fs::read_dir(library.root().join(FOLDER)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join(NIGHT).is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The night that is named: by its name, the beginning of it, or `last`.
pub fn find(library: &Library, name: &str) -> Result<Batch, BatchError> {
    let all = names(library);
    let found: Vec<&String> = match name {
        "last" => all.last().into_iter().collect(),
        _ if all.iter().any(|night| night == name) => all.iter().filter(|night| *night == name).collect(),
        _ => all.iter().filter(|night| !name.is_empty() && night.starts_with(name)).collect(),
    };
    match found.as_slice() {
        [one] => Batch::read(&library.root().join(FOLDER).join(one)),
        [] => {
            let hint = match all.last() {
                Some(last) => format!("; the newest of {} is {last}", all.len()),
                None => format!(": there is none in {}", library.root().display()),
            };
            Err(BatchError::Unknown { name: name.to_owned(), hint })
        }
        several => Err(BatchError::Ambiguous { name: name.to_owned(), count: several.len() }),
    }
}

/// The newest night of this hash that is not over. Nights that cannot be read are passed over.
pub fn unfinished(library: &Library, sha256: &Hash) -> Option<Batch> {
    let read = |name: String| Batch::read(&library.root().join(FOLDER).join(name)).ok();
    let mut nights = names(library).into_iter().rev().filter_map(read);
    nights.find(|night| night.record.sha256 == *sha256 && !night.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(photo: &str) -> PlannedSession {
        PlannedSession {
            photo: photo.into(),
            raw: None,
            sha256: Hash::of(photo),
            brief: None,
            criteria: None,
            vectors: Vec::new(),
            budget: Budget::parse("lite").unwrap(),
            provider: "explorer".into(),
            model: "explorer".into(),
            free: true,
            protocol: None,
            vars: BTreeMap::new(),
            referee: None,
            from: "HEAD".into(),
            prompt: None,
            seed: 1,
            preview_size: 256,
            proxy: "off".into(),
        }
    }

    fn night(library: &Library) -> Batch {
        let caps = Caps { branches: Some(3), ..Caps::default() };
        let orders = vec![order("a"), order("b")];
        begin(library, (Path::new("/plan.toml"), "# plan"), caps, orders, Timestamp::now()).unwrap()
    }

    #[test]
    fn a_night_is_its_ledger_and_a_torn_line_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::new(dir.path());
        let mut night = night(&library);
        let session = SessionId::mint();
        let budget = Budget::parse("lite").unwrap();
        let photo: PhotoId = "a".parse().unwrap();
        let begun = Entry::Started { place: 0, photo, session: session.clone(), budget, again: false };
        night.append(begun, Duration::ZERO).unwrap();
        let ledger = night.folder.join(LEDGER);
        let mut text = fs::read_to_string(&ledger).unwrap();
        text.push_str("{\"t\":\"2026-11-22T01:00:00Z\",\"event\":\"ended\",\"pla");
        fs::write(&ledger, text).unwrap();
        let mut night = find(&library, "last").unwrap();
        assert_eq!((night.entries.len(), &night.tracks()[0].standing), (1, &SessionStatus::Begun));
        night
            .append(
                Entry::failed(1, &Fault::new(ErrorCode::NotFound, "gone").with("remedy", "look")),
                Duration::ZERO,
            )
            .unwrap();
        let tracks = find(&library, &night.record.night).unwrap().tracks();
        assert_eq!(tracks[0].session.as_ref().unwrap().1, session);
        let SessionStatus::Failed(fault) = &tracks[1].standing else { panic!("{tracks:?}") };
        assert_eq!(
            (fault.code, base::error::Coded::remedy(fault)),
            (ErrorCode::NotFound, Some("look".into()))
        );
        // Torn within a character.
        let mut bytes = fs::read(&ledger).unwrap();
        bytes.extend(
            "{\"t\":\"2026-11-22T01:00:00Z\",\"event\":\"not_begun\",\"place\":1,\"why\":\"ü".bytes(),
        );
        bytes.pop();
        fs::write(&ledger, bytes).unwrap();
        let mut night = find(&library, "last").unwrap();
        assert_eq!(night.tracks(), tracks);
        night.append(Entry::Closed, Duration::ZERO).unwrap();
        assert!(find(&library, "last").unwrap().is_over());
        fs::write(&ledger, "nonsense\n").unwrap();
        assert!(matches!(find(&library, "last"), Err(BatchError::Damaged { .. })));
    }

    #[test]
    fn a_nights_lock_and_ledger_are_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let mut night = night(&Library::new(dir.path().join("library")));
        let precious = dir.path().join("precious");
        fs::write(&precious, "text").unwrap();
        for name in [LOCK, LEDGER] {
            std::os::unix::fs::symlink(&precious, night.folder.join(name)).unwrap();
        }
        assert!(night.lock().is_err() && night.append(Entry::Closed, Duration::ZERO).is_err());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
    }

    #[test]
    fn a_plan_finds_its_night_until_that_is_over_and_one_process_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::new(dir.path());
        assert!(matches!(find(&library, "last"), Err(BatchError::Unknown { .. })));
        let mut first = night(&library);
        let sha256 = first.record.sha256.clone();
        assert_eq!(unfinished(&library, &sha256).unwrap().record, first.record);
        assert!(unfinished(&library, &Hash::of("another")).is_none());
        let lock = first.lock().unwrap();
        let Err(BatchError::Busy { pid, .. }) = first.lock() else { panic!("it was locked twice") };
        assert_eq!(pid, std::process::id());
        drop(lock);
        first.lock().unwrap();
        first.append(Entry::Closed, Duration::ZERO).unwrap();
        assert!(unfinished(&library, &sha256).is_none());
        let second = night(&library);
        assert_ne!(second.record.night, first.record.night);
        assert!(matches!(find(&library, "20"), Err(BatchError::Ambiguous { count: 2, .. })));
        let path = second.folder.join(NIGHT);
        let text = fs::read_to_string(&path).unwrap().replace("\"seed\": 1", "\"seed\": 2");
        fs::write(&path, text).unwrap();
        assert!(Batch::read(&second.folder).unwrap_err().to_string().contains("not what its hash says"));
    }
}
