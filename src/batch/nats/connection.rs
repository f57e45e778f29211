//! The connection to a server, and the streams of a store there.

use std::time::{Duration, Instant};

use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::object_store::ObjectStore;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, Stream};
use async_nats::jetstream::{self, Context, kv};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, RequestErrorKind};

use super::{ANSWER, Address, StoreError, refused, words};

/// How long the first connection may take.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

pub(super) type Opened = (Context, Stream, Stream, kv::Store, ObjectStore, Stream);

pub(super) async fn open(address: &Address) -> Result<Opened, StoreError> {
    let client = connect(address).await?;
    let asked = account(&client).await;
    asked.map_err(|reason| StoreError::NoJetStream { address: address.to_string(), reason })?;
    let mut context = jetstream::new(client);
    context.set_timeout(ANSWER);
    let (prefix, replicas) = (&address.prefix, address.replicas);
    let made = |what: &str, reason: &str| refused(address, format!("make its {what}"), reason);
    let jobs = stream::Config {
        name: format!("{prefix}_jobs"),
        subjects: vec![format!("{prefix}.jobs.*")],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        num_replicas: replicas,
        ..stream::Config::default()
    };
    let jobs = stream(&context, jobs).await.map_err(|e| made("queue", &e))?;
    let journal = stream::Config {
        name: format!("{prefix}_journal"),
        subjects: vec![format!("{prefix}.journal.*")],
        discard: DiscardPolicy::New,
        num_replicas: replicas,
        ..stream::Config::default()
    };
    let journal = stream(&context, journal).await.map_err(|e| made("journal", &e))?;
    // Both as the client makes them, but for who answers. For the keys, it would first ask what an older server does
    // not say.
    let bucket = format!("{prefix}_keys");
    let keys = stream::Config {
        name: format!("KV_{bucket}"),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: replicas == 1,
        num_replicas: replicas,
        ..stream::Config::default()
    };
    stream(&context, keys).await.map_err(|e| made("keys", &e))?;
    let keys = context.get_key_value(&bucket).await.map_err(|e| made("keys", &words(&e)))?;
    let bucket = format!("{prefix}_objects");
    let objects = stream::Config {
        name: format!("OBJ_{bucket}"),
        subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
        discard: DiscardPolicy::New,
        allow_rollup: true,
        allow_direct: replicas == 1,
        num_replicas: replicas,
        ..stream::Config::default()
    };
    let chunks = stream(&context, objects).await.map_err(|e| made("object store", &e))?;
    let objects = context.get_object_store(&bucket).await;
    let objects = objects.map_err(|e| made("object store", &words(&e)))?;
    Ok((context, jobs, journal, keys, objects, chunks))
}

/// What JetStream says of this account, or why it cannot be used. The client's own question does not understand the
/// answer of every server that will do.
pub(super) async fn account(client: &Client) -> Result<serde_json::Value, String> {
    // A server that starts takes connections a moment before JetStream answers to its accounts.
    let until = Instant::now() + ANSWER;
    let answer = loop {
        match client.request("$JS.API.INFO", "".into()).await {
            Err(e) if e.kind() == RequestErrorKind::NoResponders && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer => break answer.map_err(|e| words(&e))?,
        }
    };
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    match answer.get("error") {
        None => Ok(answer),
        Some(error) => {
            let reason = error.get("description").and_then(|text| text.as_str());
            Err(reason.unwrap_or("it is not enabled").to_owned())
        }
    }
}

/// The stream, made if it is missing. Of several replicas only the one that leads has for sure what was written last, so
/// none of the others may answer.
async fn stream(context: &Context, config: stream::Config) -> Result<Stream, String> {
    let stream = match context.create_stream(config.clone()).await {
        Ok(stream) => stream,
        // It was made with other settings: those of whoever made it hold.
        Err(e) if matches!(e.kind(), CreateStreamErrorKind::JetStream(_)) => {
            context.get_stream(&config.name).await.map_err(|_| words(&e))?
        }
        Err(e) => return Err(words(&e)),
    };
    let config = &stream.cached_info().config;
    if config.allow_direct && config.num_replicas > 1 {
        let led = stream::Config { allow_direct: false, ..config.clone() };
        context.update_stream(led).await.map_err(|e| words(&e))?;
    }
    Ok(stream)
}

pub(super) async fn connect(address: &Address) -> Result<Client, StoreError> {
    let unusable = |reason: String| StoreError::Credentials { address: address.to_string(), reason };
    let mut options = ConnectOptions::new().name("chemigram").connection_timeout(CONNECT);
    if let Some(path) = &address.creds {
        let read = options.credentials_file(path).await;
        options = read.map_err(|e| unusable(format!("{}: {e}", path.display())))?;
    }
    if let Some(path) = &address.nkey {
        let seed = std::fs::read_to_string(path).map_err(|e| unusable(format!("{}: {e}", path.display())))?;
        options = options.nkey(seed.trim().to_owned());
    }
    if let Some((user, password)) = &address.user {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if address.tls {
        options = options.require_tls(true);
    }
    for path in address.ca.iter().chain(address.own.iter().flat_map(|(cert, key)| [cert, key])) {
        std::fs::metadata(path).map_err(|e| unusable(format!("{}: {e}", path.display())))?;
    }
    if let Some(path) = &address.ca {
        options = options.add_root_certificates(path.clone());
    }
    if let Some((cert, key)) = &address.own {
        options = options.add_client_certificate(cert.clone(), key.clone());
    }
    let connected = tokio::time::timeout(CONNECT * 2, options.connect(address.server.as_str())).await;
    let unreachable = |reason: String| StoreError::Unreachable { address: address.to_string(), reason };
    connected.map_err(|_| unreachable("no answer".into()))?.map_err(|e| match e.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            StoreError::Refused { address: address.to_string(), reason: words(&e) }
        }
        ConnectErrorKind::Tls => StoreError::Encryption { address: address.to_string(), reason: words(&e) },
        _ if is_tls(&e) => StoreError::Encryption { address: address.to_string(), reason: words(&e) },
        _ => unreachable(words(&e)),
    })
}

/// Whether an error of the connection is one of its encryption: the client does not tell a refused certificate from
/// a broken cable.
fn is_tls(error: &dyn std::error::Error) -> bool {
    let inner = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    inner.and_then(std::io::Error::get_ref).is_some_and(|cause| cause.is::<rustls::Error>())
}
