use super::*;

/// The scenario `001_cup`.
pub const TEXT: &str = r#"
    [metadata]
    id = "001_cup"
    title = "A cup"
    created = "2026-11-22"

    [brief]
    subject = "A cup."
    intent = "Warmer."
    constraints = ["The rim stays white."]

    [image]
    path = "../raws/cup.dng"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

    [budget]
    time = 300
    iterations = 30
    branches = 1
    cost = 0.25

    [[vectors]]
    name = "warmth"
    direction = "warmer"

    [expected]
    mask_targets = ["rim"]

    [[expected.directions]]
    vector = "warmth"
    axis = "warmth"
    min = 1
    max = 9.5

    [[hidden]]
    move = "warmth"
    values = { shift = 20 }

    [[regions]]
    name = "rim"
    mask = { shape = "circle", center = [0.5, 0.5], radius = 0.2 }
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(Path::new("/sets/golden_v9/001_cup"), text)
}

/// [`TEXT`], read.
pub fn cup() -> Scenario {
    parse(TEXT).unwrap()
}

fn refused(from: &str, to: &str) -> String {
    assert!(TEXT.contains(from), "{from}");
    parse(&TEXT.replace(from, to)).unwrap_err()
}

#[test]
fn a_scenario_is_read_and_its_brief_gives_nothing_away() {
    let scenario = cup();
    assert_eq!(scenario.brief_text(), "A cup.\n\nWarmer.\n\n- The rim stays white.\n");
    assert_eq!(scenario.budget.max_cost_micro_usd, Some(250_000));
    assert_eq!(scenario.branch_count(), Count { min: 1, max: 1 });
    assert_eq!(scenario.hidden[0].values["shift"], 20.0);
    let request = scenario.request("mode_b/system", 7);
    assert_eq!((request.from.as_str(), request.unattended, request.seed), ("main", true, 7));
    assert_eq!(scenario.sha256, Hash::of(TEXT));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    assert!(refused("intent =", "intend =").contains("unknown field `intend`"));
    assert!(refused("id = \"001_cup\"", "id = \"002_cup\"").contains("the folder is `001_cup`"));
    assert!(refused("iterations = 30", "iterations = 0").contains("every cap must be positive"));
    assert!(refused("cost = 0.25", "cost = -1").contains("every cap must be positive"));
    assert!(refused("intent = \"Warmer.\"", "intent = \" \"").contains("brief.intent is empty"));
    assert!(refused("vector = \"warmth\"", "vector = \"warmht\"").contains("did you mean `warmth`?"));
    assert!(refused("[\"rim\"]", "[\"brim\"]").contains("did you mean `rim`?"));
    assert!(refused("max = 9.5", "max = 0.5").contains("the lesser one first"));
    assert!(refused("branches = 1", "branches = 1\nmoney = 3").contains("unknown field `money`"));
    let twice = "direction = \"warmer\"\n[[vectors]]\nname = \"warmth\"\ndirection = \"x\"";
    assert!(refused("direction = \"warmer\"", twice).contains("is given twice"));
}

#[test]
fn a_raw_is_looked_for_elsewhere_and_its_hash_is_proved() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("golden_v9/001_cup");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(SCENARIO_FILE), TEXT).unwrap();
    let scenario = Scenario::load(&folder).unwrap();
    assert!(matches!(scenario.raw(None), Err(ScenarioError::NoRaw { .. })));
    let raws = dir.path().join("raws");
    std::fs::create_dir_all(&raws).unwrap();
    std::fs::write(raws.join("cup.dng"), "test").unwrap();
    assert_eq!(scenario.raw(Some(&raws)).unwrap().path, raws.join("cup.dng"));
    std::fs::write(raws.join("cup.dng"), "tess").unwrap();
    let error = scenario.raw(Some(&raws)).unwrap_err();
    assert!(matches!(error, ScenarioError::OtherRaw { .. }) && error.remedy().is_some(), "{error}");
}

#[test]
fn moves_that_are_not_there_are_told() {
    let vocabulary = Vocabulary::load(&base::assets::Overlay::vocabulary(None)).unwrap();
    let scenario = parse(&TEXT.replace("move = \"warmth\"", "move = \"warmht\"")).unwrap();
    let told = scenario.unknown_moves(&vocabulary);
    assert!(told.len() == 1 && told[0].contains("warmth"), "{told:?}");
}
