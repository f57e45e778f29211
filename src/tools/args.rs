//! The arguments of every tool. Doc comments become the descriptions that the model reads.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use base::error::{ErrorCode, Fault};
use engine::vocabulary::{MaskSpec, Region, Spot};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPrimitive {
    /// A move or look of list_vocabulary, or the id of a placed move, such as `exposure#2`.
    pub primitive_name: String,
    /// By parameter, in its unit; left out = default, by id = as it is.
    #[serde(default)]
    pub parameter_values: BTreeMap<String, f64>,
    /// Where to act; left out = everywhere.
    #[serde(default)]
    #[schemars(with = "MaskSpec")]
    pub mask: Option<MaskSpec>,
    #[serde(default)]
    pub label: Option<String>,
    /// Also show the mask over the result.
    #[serde(default)]
    pub show_mask: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPerRegion {
    /// One move for all; left out = each region has its `ops`.
    #[serde(default)]
    pub primitive_name: Option<String>,
    pub regions: Vec<Region>,
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplySpot {
    pub spots: Vec<Spot>,
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskClarification {
    pub question: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// The branch's name, `branch_b_<vector>` as in the plan.
    pub name: String,
    /// A branch or state to start from; left out = the baseline.
    #[serde(default)]
    pub from: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkout {
    /// A branch of this session, or `baseline`.
    pub r#ref: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// A branch, state or `baseline`; left out = `baseline`.
    #[serde(default)]
    pub a: Option<String>,
    /// The same; left out = where you stand.
    #[serde(default)]
    pub b: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestatedVector {
    /// The vector's name, as in the plan.
    pub name: String,
    /// What you will push, in one sentence of your own.
    pub restated: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmSession {
    /// Every vector of the plan; empty when the plan has none.
    #[serde(default)]
    pub vectors: Vec<RestatedVector>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndSession {
    /// Two to five sentences across branches.
    pub session_summary: String,
    /// A tag to suggest to the photographer, such as `v2`.
    #[serde(default)]
    pub tag_suggestion: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// A branch, state or `baseline`; left out = where you stand.
    #[serde(default)]
    pub r#ref: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GreyCard {
    /// `[x, y]` in 0..1.
    pub center: [f64; 2],
    /// Share of the shorter side; left out = 0.02.
    #[serde(default)]
    pub radius: Option<f64>,
    /// 0..1; left out = 1, neutral.
    #[serde(default)]
    pub strength: Option<f64>,
    /// Only measure and show.
    #[serde(default)]
    pub preview: bool,
    /// Even if no light explains the colour.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListVocabulary {
    /// A wish in plain words.
    #[serde(default)]
    pub query: Option<String>,
    /// Only moves with this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// Only moves that push this axis.
    #[serde(default)]
    pub axis: Option<String>,
    /// Only moves of this darktable module.
    #[serde(default)]
    pub module: Option<String>,
    /// List the looks.
    #[serde(default)]
    pub looks: bool,
    /// Every field of each move.
    #[serde(default)]
    pub details: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Where to start; left out = where you stand.
    #[serde(default)]
    pub r#ref: Option<String>,
    /// How many commits.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub limit: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// In a sentence.
    pub description: String,
    /// What you did instead.
    #[serde(default)]
    pub workaround: String,
    /// What you were after.
    #[serde(default)]
    #[schemars(skip)]
    pub intent: Option<String>,
    /// tone, wb, color, detail, local, composition or uncategorized.
    #[serde(default)]
    pub intent_category: Option<String>,
    #[serde(default)]
    pub missing_capability: Option<String>,
    /// darktable modules involved.
    #[serde(default)]
    #[schemars(skip)]
    pub operations_involved: Vec<String>,
    /// Moves used in the workaround.
    #[serde(default)]
    #[schemars(skip)]
    pub vocabulary_used: Vec<String>,
    /// -1 could not do it, 0 half-way, 1 worked around well.
    #[serde(default)]
    #[schemars(range(min = -1, max = 1))]
    pub satisfaction: Option<i8>,
    /// Anything else.
    #[serde(default)]
    #[schemars(skip)]
    pub notes: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposeNotes {
    pub text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposeTaste {
    pub text: String,
    /// appearance, process or value.
    #[serde(default)]
    pub category: Option<String>,
    /// The taste file that it belongs in; left out = `_default.md`.
    #[serde(default)]
    pub file: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptDone {
    /// What you did, in a sentence.
    #[serde(default)]
    pub summary: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposeEdit {
    /// The edits, each in a few words with its values, in order.
    pub moves: Vec<String>,
    /// What they would do for the picture, in a sentence.
    pub why: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndConversation {
    /// Whether the photographer clearly said so; otherwise she is asked.
    #[serde(default)]
    pub certain: bool,
    /// Once it is over: two sentences on what was made.
    #[serde(default)]
    pub summary: Option<String>,
    /// Once it is over: a tag to suggest, such as `v2`.
    #[serde(default)]
    pub tag: Option<String>,
    /// Once it is over: exports that were spoken of and not made.
    #[serde(default)]
    pub exports: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The commit whose state the branch gets back.
    pub commit: String,
    /// The branch; left out = where the session stands.
    #[serde(default)]
    pub branch: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadContext {
    /// Long notes whole instead of shortened.
    #[serde(default)]
    pub full: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTranscript {
    /// How many of the last events.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    pub last: Option<usize>,
    /// An earlier session: part of its id, or `last`.
    #[serde(default, alias = "session_id")]
    pub session: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordJudgment {
    pub branch: String,
    /// A state to judge; left out = the tip.
    #[serde(default)]
    pub hash: Option<String>,
    /// 1 worse, 2 no better, 3 a fair alternative, 4 meets the brief, 5 meets it and nothing could be taken away; left out for an abandoned branch.
    #[serde(default)]
    #[schemars(with = "u8", range(min = 1, max = 5))]
    pub judged_score: Option<u8>,
    /// Aim, what you saw, what it costs: two to five sentences.
    pub judged_reasoning: String,
    /// Whether a photographer could honestly prefer either.
    #[serde(default = "yes")]
    pub comparable_to_baseline: bool,
    /// As the tools returned them.
    #[serde(default)]
    pub key_moves: Vec<String>,
    /// An answer to each criterion. In the schema where criteria have names: `tools::asking`.
    #[serde(default)]
    #[schemars(skip)]
    pub criteria: BTreeMap<String, String>,
    /// Nothing beat the baseline.
    #[serde(default)]
    pub abandoned: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveModule {
    /// A move, a look, a darktable module (`grain`), or the id of one placed move, such as `exposure#2`.
    pub module: String,
    /// darktable's number of an instance, by which earlier versions named it.
    #[serde(default)]
    #[schemars(skip)]
    pub instance: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceMask {
    /// Its id, such as `exposure#2`.
    pub instance: String,
    /// As in apply_primitive.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub mask: MaskSpec,
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveMask {
    pub name: String,
    /// As in apply_primitive.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub mask: MaskSpec,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenderPreview {
    /// A branch, state or `baseline`; left out = where you stand.
    #[serde(default)]
    pub r#ref: Option<String>,
    /// Longest side, 128..2048 pixels.
    #[serde(default)]
    pub size: Option<u32>,
    /// A mask as in apply_primitive, or the name of a masked move: where it acts, in red.
    #[serde(default)]
    #[schemars(schema_with = "mask_or_name")]
    pub show_mask: Option<ShowMask>,
    /// The move that the mask is for; left out = exposure.
    #[serde(default)]
    pub mask_for: Option<String>,
    /// With show_mask: points and masks; its effect at each point, its share on each mask.
    #[serde(default)]
    #[schemars(schema_with = "places")]
    pub inside: Option<Vec<Place>>,
    /// Only [left, top, right, bottom] in 0..1, up to the photo's own pixels.
    #[serde(default)]
    #[schemars(schema_with = "edges")]
    pub crop: Option<[f64; 4]>,
    /// Coordinates every 0.1.
    #[serde(default)]
    pub grid: bool,
    /// Another ref in the same picture.
    #[serde(default)]
    pub beside: Option<String>,
    /// A heat map of CIEDE2000 from `beside` or the baseline.
    #[serde(default)]
    pub difference: bool,
}

/// Where a mask may or may not lie.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A point of the displayed picture.
    Point([f64; 2]),
    /// A mask, or the name of a masked move.
    Mask(ShowMask),
}

fn places(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "array", "items": { "type": ["array", "object", "string"] } })
}

fn edges(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "array", "items": { "type": "number" } })
}

/// A mask to look at.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum ShowMask {
    /// That of a move which stands on the branch.
    Move(String),
    /// Any.
    Mask(Box<MaskSpec>),
}

/// Without the schema of a mask once more: it goes to the model with every request.
fn mask_or_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["object", "string"] })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub label: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// The tag's name, starting with branch_b_.
    pub name: String,
    /// What to tag; left out = where you stand.
    #[serde(default)]
    pub r#ref: Option<String>,
}

/// The JSON Schema of an argument type, self-contained.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    schema
}

/// Leaves out what says nothing to a model, which reads every schema at every turn: that an argument may be null as well
/// as left out, the width of a number, how many numbers a point has, and what each name of an enumeration means, which its field says.
fn simplify(schema: &mut Value) {
    if let Value::Array(items) = schema {
        items.iter_mut().for_each(simplify);
    }
    let Some(object) = schema.as_object_mut() else { return };
    object.values_mut().for_each(simplify);
    object.retain(|key, value| match key.as_str() {
        "default" => *value == true || value.is_number(),
        "format" => !value.is_string(),
        "minItems" | "maxItems" => false,
        _ => true,
    });
    let null = serde_json::json!({ "type": "null" });
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            object.insert("type".into(), one);
        }
    }
    if let Some(Value::Array(mut choices)) = object.remove("anyOf") {
        choices.retain(|one| *one != null);
        match choices.as_slice() {
            [Value::Object(one)] => object.extend(one.clone()),
            _ => drop(object.insert("anyOf".into(), choices.into())),
        }
    }
    if let Some(Value::Array(choices)) = object.get("oneOf") {
        let names: Option<Vec<Value>> = choices.iter().map(|one| one.get("const").cloned()).collect();
        if let Some(names) = names {
            object.remove("oneOf");
            object.insert("enum".into(), names.into());
        }
    }
}

/// The arguments as a JSON object; no text at all counts as `{}`.
pub fn object(tool: &str, arguments: &str) -> Result<Value, Fault> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(invalid(tool, "the arguments must be a JSON object")),
        Err(error) => Err(invalid(tool, &format!("the arguments are not valid JSON: {error}"))),
    }
}

/// The typed arguments; a fault names the field.
pub fn parse<T: DeserializeOwned>(tool: &str, value: &Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let fault = invalid(tool, &format!("`{path}`: {}", error.inner()));
        if path == "." { fault } else { fault.with("field", path) }
    })
}

fn invalid(tool: &str, message: &str) -> Fault {
    Fault::new(ErrorCode::InvalidInput, format!("{tool}: {message}"))
}

/// Arguments of `bind_layers`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindLayers {
    /// A look by name to start from; left out = what the photographer bound to this camera and lens.
    #[serde(default)]
    pub look: Option<String>,
    /// 0 to 1, with a look; left out = the look's default.
    #[serde(default)]
    pub strength: Option<f64>,
}
