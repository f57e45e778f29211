//! A batch is its ledger, whatever became of the process that wrote it.

use std::fs;

use super::*;

pub(in crate::overnight) fn planned(photo: &str) -> PlannedSession {
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
        fallback: None,
        free: true,
        protocol: None,
        vars: BTreeMap::new(),
        referee: None,
        from: "HEAD".into(),
        prompt: None,
        seed: 1,
        preview_size: 256,
        proxy: "off".into(),
        no_proposals: false,
    }
}

fn begun(library: &Library) -> Batch {
    let caps = Caps { branches: Some(3), ..Caps::default() };
    let sessions = vec![planned("a"), planned("b")];
    begin(library, (Path::new("/plan.toml"), "# plan"), caps, sessions, Timestamp::now()).unwrap()
}

#[test]
fn a_batch_is_its_ledger_and_a_torn_line_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let library = Library::new(dir.path());
    let mut batch = begun(&library);
    let session = SessionId::mint();
    let budget = Budget::parse("lite").unwrap();
    let photo: PhotoId = "a".parse().unwrap();
    let started = Entry::Started { place: 0, photo, session: session.clone(), budget, again: false };
    batch.append(started, Duration::ZERO).unwrap();
    let ledger = batch.folder.join(LEDGER);
    let mut text = fs::read_to_string(&ledger).unwrap();
    text.push_str("{\"t\":\"2026-11-22T01:00:00Z\",\"event\":\"ended\",\"pla");
    fs::write(&ledger, text).unwrap();
    let mut batch = find(&library, "last").unwrap();
    assert_eq!((batch.entries.len(), &batch.tracks()[0].status), (1, &SessionStatus::Started));
    batch
        .append(
            Entry::failed(1, &Fault::new(ErrorCode::NotFound, "gone").with("remedy", "look")),
            Duration::ZERO,
        )
        .unwrap();
    let tracks = find(&library, &batch.record.name).unwrap().tracks();
    assert_eq!(tracks[0].session.as_ref().unwrap().1, session);
    let SessionStatus::Failed(fault) = &tracks[1].status else { panic!("{tracks:?}") };
    assert_eq!((fault.code, base::error::Coded::remedy(fault)), (ErrorCode::NotFound, Some("look".into())));
    // Torn within a character.
    let mut bytes = fs::read(&ledger).unwrap();
    bytes.extend("{\"t\":\"2026-11-22T01:00:00Z\",\"event\":\"not_begun\",\"place\":1,\"why\":\"ü".bytes());
    bytes.pop();
    fs::write(&ledger, bytes).unwrap();
    let mut batch = find(&library, "last").unwrap();
    assert_eq!(batch.tracks(), tracks);
    batch.append(Entry::Closed, Duration::ZERO).unwrap();
    assert!(find(&library, "last").unwrap().is_over());
    fs::write(&ledger, "nonsense\n").unwrap();
    assert!(matches!(find(&library, "last"), Err(BatchError::Damaged { .. })));
}

#[test]
fn the_lock_and_the_ledger_of_a_batch_are_never_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let mut batch = begun(&Library::new(dir.path().join("library")));
    let precious = dir.path().join("precious");
    fs::write(&precious, "text").unwrap();
    for name in [LOCK, LEDGER] {
        std::os::unix::fs::symlink(&precious, batch.folder.join(name)).unwrap();
    }
    assert!(batch.lock().is_err() && batch.append(Entry::Closed, Duration::ZERO).is_err());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
}

#[test]
fn a_plan_finds_its_batch_until_that_is_over_and_one_process_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let library = Library::new(dir.path());
    assert!(matches!(find(&library, "last"), Err(BatchError::Unknown { .. })));
    let mut first = begun(&library);
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
    let second = begun(&library);
    assert_ne!(second.record.name, first.record.name);
    assert!(matches!(find(&library, "20"), Err(BatchError::Ambiguous { count: 2, .. })));
    let path = second.folder.join(RECORD);
    let text = fs::read_to_string(&path).unwrap().replace("\"seed\": 1", "\"seed\": 2");
    // The names in the file are those of the first format.
    assert!(text.contains("\"night\": \"20") && text.contains("\"orders\": ["), "{text}");
    fs::write(&path, text).unwrap();
    assert!(Batch::read(&second.folder).unwrap_err().to_string().contains("does not match its hash"));
}
