//! Servers on this machine: whether one is there, and which models it has.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{http, json};

/// The longest list of models that is read, in bytes.
const LIST: usize = 1 << 20;

/// Asks each server, by the name of its provider, for its models; `None` where none answers as long as there is
/// patience. No key is sent: one that wants a key is there, and names no models.
pub async fn models(
    servers: Vec<(String, reqwest::Url)>,
    patience: Duration,
) -> BTreeMap<String, Option<Vec<String>>> {
    let mut asked = JoinSet::new();
    for (name, url) in servers {
        // Made before the time begins.
        let client = http::client(&url).ok();
        asked.spawn(async move { (name, timeout(patience, ask(client, url)).await.ok().flatten()) });
    }
    asked.join_all().await.into_iter().collect()
}

async fn ask(client: Option<reqwest::Client>, url: reqwest::Url) -> Option<Vec<String>> {
    let mut answer = client?.get(url).send().await.ok()?;
    let status = answer.status().as_u16();
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > LIST {
            return None;
        }
    }
    // It wants a key, or is loading.
    if matches!(status, 401 | 403 | 503) {
        return Some(Vec::new());
    }
    // What else may listen there has no such list.
    let list = json::parse(&body).ok()?;
    let ids = list.get("data")?.as_array()?.iter();
    Some(ids.filter_map(|model| Some(model.get("id")?.as_str()?.to_owned())).collect())
}
