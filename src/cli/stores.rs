//! `vocab`, `providers`, `cache`: what the program knows and keeps.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::args::VocabVerb;
use super::failure::Failure;
use super::import;
use super::made;
use super::setup::App;
use crate::launch::{BASE_URL_ENV, Runner, env, read_text};
use crate::provider::profile::{Profile, SetupError};
use crate::provider::{Choice, Registry, connect, local, named};
use crate::review::line;
use crate::session::check::check;
use base::assets::Origin;
use base::error::ErrorCode;
use engine::vocabulary::{Filter, ListedMove};

/// How long servers on this machine are waited for.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ProviderVerb {
    /// List providers: whether their key is set, and whether servers on this machine answer
    List,
    /// Show a provider's models and prices
    Show {
        /// The provider
        name: String,
    },
    /// Test a provider with one tiny real call, which may cost money
    Check {
        /// The provider
        name: String,
        /// The model; for `script`, a file, for `manual`, a folder
        #[arg(long)]
        model: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
#[command(defer = true)]
pub enum CacheVerb {
    /// Show where the cache is and how large it is
    Info,
    /// Delete every cached picture; they are rendered again when needed
    Clear,
    /// Show or set how large the cache may become; what is beyond it is deleted, the oldest first
    Limit {
        /// Such as 500MB or 8GB [built in: 4.3 GB]
        #[arg(value_name = "SIZE", value_parser = super::prune::size)]
        size: Option<u64>,
    },
}

/// `vocab`; the status is that of the first file that could not be taken over.
pub fn vocab(app: &App, verb: &VocabVerb) -> Result<u8, Failure> {
    let layouts = app.layouts();
    match verb {
        VocabVerb::List { query, tag, axis, module } => {
            let vocabulary = app.vocabulary()?;
            let filter = Filter { tag: tag.as_deref(), axis: *axis, module: module.as_deref() };
            let version = app.darktable_version();
            let moves = vocabulary.search(&filter, query.as_deref(), &layouts, &version)?;
            if moves.is_empty() {
                let tags = vocabulary.tags().join(", ");
                app.output.remark(&format!("nothing is called that; the tags of moves are: {tags}"));
            }
            let wide = moves.iter().map(|m| m.name.len()).max().unwrap_or(0);
            app.output.result(&moves, || {
                let row =
                    |m: &ListedMove<'_>| format!("{:wide$}  {}  {}\n", m.name, m.kind, line(m.description));
                moves.iter().map(row).collect()
            })?;
        }
        VocabVerb::Show { name } => {
            let vocabulary = app.vocabulary()?;
            let file = match vocabulary.look(name) {
                Some(look) => look.file.clone(),
                None => vocabulary.get(name)?.file.clone(),
            };
            let version = app.darktable_version();
            let mut listed = vocabulary.list(&Filter::default(), &layouts, &version)?;
            listed.extend(vocabulary.list_looks(&Filter::default(), &layouts, &version)?);
            let shown = listed.into_iter().find(|m| m.name == name).ok_or_else(|| {
                let message = format!("darktable {version} lacks a module that `{name}` needs");
                Failure::new(ErrorCode::SynthesizerError, message)
            })?;
            app.output.result(&shown, || format!("{}file        {}\n", move_text(&shown), line(&file)))?;
        }
        VocabVerb::Check { file } => check_moves(app, file)?,
        VocabVerb::Import(args) => return made::import(app, args),
        VocabVerb::Mark(args) => made::mark(app, args)?,
        VocabVerb::Lens(args) => made::lens(app, args)?,
        VocabVerb::Styles => import::styles(app)?,
    }
    Ok(0)
}

fn move_text(shown: &ListedMove<'_>) -> String {
    let mut text = format!("{}\n{}\n\n", shown.name, line(shown.description));
    for (name, p) in &shown.parameters {
        let neutral = p.neutral.map(|n| format!(", neutral {n}")).unwrap_or_default();
        let unit = if p.unit.is_empty() { String::new() } else { format!(" {}", p.unit) };
        let whole = if p.whole { ", whole" } else { "" };
        text.push_str(&format!(
            "{name:10}  {} to {}{unit}{whole}, default {}{neutral}\n",
            p.min, p.max, p.default
        ));
        for (choice, value) in p.choices.into_iter().flatten() {
            text.push_str(&format!("{:10}  {value} is {choice}\n", ""));
        }
    }
    for (name, values) in shown.moves.into_iter().flatten() {
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.push_str(&format!("{:10}  {name} {}\n", "", values.join(" ")));
    }
    let axes: Vec<String> = shown
        .axes
        .iter()
        .map(|(axis, sign)| format!("{}{axis}", if *sign < 0 { '-' } else { '+' }))
        .collect();
    let tags: Vec<&str> = shown.tags.iter().map(String::as_str).collect();
    let masks = if shown.maskable { "yes" } else { "no" };
    text.push_str(&format!(
        "\n{:10}  {}\naxes        {}\nmask        {masks}\ntags        {}\n",
        if shown.module.is_empty() { "kind" } else { "module" },
        if shown.module.is_empty() { shown.kind } else { shown.module },
        axes.join(" "),
        line(&tags.join(", "))
    ));
    text
}

/// Checks a file of moves as it would be read beside the others.
fn check_moves(app: &App, file: &Path) -> Result<(), Failure> {
    let text = read_text(file)?;
    let vocabulary = engine::vocabulary::Vocabulary::load_with(&app.vocabulary_files(), file, &text)?;
    let version = app.darktable_version();
    let mut listed = vocabulary.list(&Filter::default(), &app.layouts(), &version)?;
    listed.extend(vocabulary.list_looks(&Filter::default(), &app.layouts(), &version)?);
    let shown = file.display().to_string();
    let moves = vocabulary.moves().map(|m| (&m.file, &m.name));
    let all = moves.chain(vocabulary.looks().map(|look| (&look.file, &look.name)));
    let own: Vec<&str> = all.filter(|(file, _)| **file == shown).map(|(_, name)| name.as_str()).collect();
    let missing: Vec<&str> =
        own.iter().filter(|name| !listed.iter().any(|m| m.name == **name)).copied().collect();
    let result = json!({ "file": file, "moves": own, "unavailable": missing, "darktable": version });
    app.output.result(&result, || {
        let mut text = format!("{shown}: {} moves and looks, no errors\n", own.len());
        if !missing.is_empty() {
            text.push_str(&format!("darktable {version} lacks the module for: {}\n", missing.join(", ")));
        }
        text
    })
}

/// `providers`; the status says whether a check passed.
pub fn providers(app: &App, verb: &ProviderVerb) -> Result<u8, Failure> {
    let registry = app.registry();
    match verb {
        ProviderVerb::List => {
            let servers = registry.local_servers();
            let hosts: BTreeMap<String, String> =
                servers.iter().map(|(name, url)| (name.clone(), url.authority().to_owned())).collect();
            let found = Runner::new()?.block_on(local::models(servers, PATIENCE));
            let row = |(name, origin, profile): (&str, &Origin, Result<&Profile, &SetupError>)| match profile
            {
                Ok(profile) => {
                    let server = found.get(name).map(|models| {
                        json!({ "host": hosts.get(name), "running": models.is_some(),
                                "models": models.clone().unwrap_or_default() })
                    });
                    let there = found.get(name).is_none_or(Option::is_some);
                    json!({
                        "name": name, "summary": profile.summary, "key_env": profile.key_env,
                        "ready": registry.has_key(profile) && there, "default_model": profile.default_model,
                        "server": server, "user": *origin != Origin::Embedded,
                    })
                }
                Err(error) => json!({ "name": name, "problem": error.to_string(), "ready": false }),
            };
            let rows: Vec<Value> = registry.list().map(row).collect();
            app.output.result(&rows, || rows.iter().map(provider_line).collect())?;
        }
        ProviderVerb::Show { name } => {
            let profile = registry.get(name)?;
            let models: Vec<Value> = profile
                .models
                .iter()
                .map(|m| {
                    let price = registry.price(m).map(|p| {
                        json!({ "input": p.input, "output": p.output, "cache_read": p.cache_read,
                                "cache_write": p.cache_write, "as_of": p.as_of })
                    });
                    json!({ "id": m.id, "vision": m.vision, "context": m.context, "usd_per_million": price })
                })
                .collect();
            let ready = registry.has_key(profile);
            let result = json!({
                "name": profile.name, "summary": profile.summary, "base_url": profile.base_url,
                "key_env": profile.key_env, "ready": ready, "default_model": profile.default_model,
                "models": models, "other_models": profile.other_models.is_some(),
            });
            app.output.result(&result, || provider_text(&registry, profile, ready))?;
        }
        ProviderVerb::Check { name, model } => {
            let (provider, model) = named(name.clone(), model.clone());
            let choice = Choice { provider, model, base_url: env(BASE_URL_ENV), seed: 0 };
            let provider = connect(&registry, &choice)?;
            let info = provider.info().clone();
            if let Some(notice) = provider.notice() {
                app.output.remark(&line(&notice));
            }
            app.output.remark(&format!("calling {} ({}) once", line(&info.provider), line(&info.model)));
            let report = Runner::new()?.block_on(check(provider.as_ref(), &app.redactor))?;
            if let Some(fault) = report.fault {
                return Err(fault.into());
            }
            app.output.result(&report, || {
                let mark = |yes| if yes { "✓" } else { "✗" };
                let mut text = format!(
                    "{} answered in {:.1} s\n{} called the tool\n{} with the right arguments\n",
                    mark(report.answered),
                    report.took.as_secs_f64(),
                    mark(report.called_tool),
                    mark(report.arguments_right)
                );
                report.notes.iter().for_each(|note| text.push_str(&format!("note: {}\n", line(note))));
                text
            })?;
            return Ok(if report.passed() { 0 } else { ErrorCode::ProviderError.exit_status() });
        }
    }
    Ok(0)
}

fn provider_line(row: &Value) -> String {
    let field = |name: &str| line(row.get(name).and_then(Value::as_str).unwrap_or_default());
    let ready = row.get("ready").and_then(Value::as_bool) == Some(true);
    let server = |name: &str| row.get("server").and_then(|server| server.get(name));
    let models = server("models").and_then(Value::as_array).map_or(0, Vec::len);
    let state = match (row.get("problem"), ready, server("running").and_then(Value::as_bool)) {
        (Some(_), ..) => field("problem"),
        (None, _, Some(false)) => {
            format!("nobody at {}", line(server("host").and_then(Value::as_str).unwrap_or_default()))
        }
        (None, true, Some(true)) if models > 0 => format!("ready, models: {models}"),
        (None, true, _) => "ready".to_owned(),
        (None, false, _) => format!("needs {}", field("key_env")),
    };
    format!("{:12}  {:26}  {}\n", field("name"), state, field("summary"))
}

fn provider_text(registry: &Registry, profile: &Profile, ready: bool) -> String {
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "—".to_owned(), line);
    let mut text = format!(
        "{}\n{}\n\naddress   {}\nkey       {} ({})\ndefault   {}\n\n",
        profile.name,
        line(&profile.summary),
        or_none(&profile.base_url),
        or_none(&profile.key_env),
        if ready { "set, or not needed" } else { "missing" },
        or_none(&profile.default_model),
    );
    for model in &profile.models {
        let dollars = |price: Option<f64>| price.map_or_else(|| "?".to_owned(), |p| format!("{p:.2}"));
        let price = match registry.price(model) {
            Some(p) => {
                format!(
                    "USD {} in, {} out per million tokens ({})",
                    dollars(p.input),
                    dollars(p.output),
                    p.as_of
                )
            }
            None if profile.free => "free".to_owned(),
            None => "price unknown".to_owned(),
        };
        let sees = if model.vision { "sees pictures" } else { "numbers only" };
        text.push_str(&format!("{:28}  {sees}  {price}\n", line(&model.id)));
    }
    if profile.other_models.is_some() {
        text.push_str("and any other model of the provider, at an unknown price\n");
    }
    text
}

pub fn cache(app: &App, verb: CacheVerb) -> Result<(), Failure> {
    let cache = app.cache();
    let folder = app.folders.renders();
    let (info, verb) = match verb {
        CacheVerb::Limit { size: Some(limit) } => {
            let file = app.folders.cache_limit();
            base::durable::write(&file, limit.to_string().as_bytes())
                .map_err(|e| Failure::file("write", &file, &e))?;
            let cache = app.cache();
            cache.evict().map_err(|e| Failure::file("empty", &folder, &e))?;
            (cache.info().map_err(|e| Failure::file("read", &folder, &e))?, "holds")
        }
        CacheVerb::Limit { size: None } | CacheVerb::Info => {
            (cache.info().map_err(|e| Failure::file("read", &folder, &e))?, "holds")
        }
        CacheVerb::Clear => {
            app.proxies().clear().map_err(|e| Failure::file("empty", &app.folders.proxies(), &e))?;
            (cache.clear().map_err(|e| Failure::file("empty", &folder, &e))?, "is empty now; it held")
        }
    };
    app.output.result(&info, || {
        let mb = |bytes: u64| bytes / 1_000_000;
        format!(
            "{} {verb} {} pictures, {} MB of {} MB\n",
            info.folder.display(),
            info.entries,
            mb(info.bytes),
            mb(info.limit)
        )
    })
}
