//! The address of a store: `nats://host:4222/prefix?creds=FILE`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The prefix where an address names none.
const PREFIX: &str = "chemigram";
/// The longest prefix: it becomes part of the names of streams.
const LONGEST: usize = 32;

/// Where a store is, and how to enter it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The server with its port, without user and password: `nats://host:4222`.
    pub server: String,
    /// User and password.
    pub user: Option<(String, String)>,
    /// What the names of everything in the store begin with: several can share a server.
    pub prefix: String,
    /// A file of credentials, as `nsc` writes it.
    pub creds: Option<PathBuf>,
    /// A file with the seed of an NKEY.
    pub nkey: Option<PathBuf>,
    /// Whether the connection must be encrypted.
    pub tls: bool,
    /// A file with the certificate of the authority that signed the server's.
    pub ca: Option<PathBuf>,
    /// Files with a certificate of one's own, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// How many servers of a cluster keep each message.
    pub replicas: usize,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it as nats://host:4222/prefix?creds=FILE";
        let url =
            reqwest::Url::parse(text).map_err(|e| format!("`{text}` is no address ({e}): {example}"))?;
        // What follows may hold a password, which no message repeats.
        let tls = match url.scheme() {
            "nats" => false,
            "tls" => true,
            other => return Err(format!("`{other}://` is not known: {example}")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| format!("the address names no host: {example}"))?;
        let server = format!("nats://{host}:{}", url.port().unwrap_or(4222));
        let prefix = url.path().trim_matches('/');
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if prefix.len() > LONGEST || !prefix.chars().all(plain) {
            return Err(format!(
                "`{prefix}` is no prefix: at most {LONGEST} letters, digits, `-` and `_`, such as `studio`"
            ));
        }
        let user = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some((user.to_owned(), password.unwrap_or_default().to_owned())),
        };
        let mut address = Self {
            server,
            user,
            prefix: prefix.to_owned(),
            creds: None,
            nkey: None,
            tls,
            ca: None,
            own: None,
            replicas: 1,
        };
        let (mut cert, mut key) = (None, None);
        for (name, value) in url.query_pairs() {
            let file = || match value.as_ref() {
                "" => Err(format!("`{name}` names no file: write `{name}=FILE`")),
                path => Ok(Some(PathBuf::from(path))),
            };
            match name.as_ref() {
                "creds" => address.creds = file()?,
                "nkey" => address.nkey = file()?,
                "tls" => address.tls = true,
                "ca" => address.ca = file()?,
                "cert" => cert = file()?,
                "key" => key = file()?,
                "replicas" => {
                    let count = value.parse().ok().filter(|count| (1..=5).contains(count));
                    address.replicas = count.ok_or("`replicas` must be a number from 1 to 5")?;
                }
                other => {
                    let known = "creds, nkey, tls, ca, cert, key, replicas";
                    return Err(format!("`{other}` is unknown in an address; known are {known}"));
                }
            }
        }
        address.own = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("`cert` and `key` belong together".into()),
        };
        Ok(address)
    }
}

/// Server and prefix, without anything secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.prefix)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how_and_shows_no_password() {
        let plain: Address = "nats://queue".parse().unwrap();
        assert_eq!((plain.server.as_str(), plain.prefix.as_str()), ("nats://queue:4222", "chemigram"));
        assert!(!plain.tls && plain.user.is_none() && plain.replicas == 1);
        let full = "tls://me:secret@queue:4333/studio?creds=/k/me.creds&ca=/k/ca.pem&cert=c&key=k&replicas=3";
        let full: Address = full.parse().unwrap();
        assert_eq!((full.tls, full.replicas, full.creds.as_deref()), (true, 3, Some("/k/me.creds".as_ref())));
        assert_eq!(full.user, Some(("me".into(), "secret".into())));
        assert_eq!(format!("{full} {full:?}"), "nats://queue:4333/studio Address(nats://queue:4333/studio)");
        for (text, word) in [
            ("queue:4222", "not known"),
            ("http://queue", "not known"),
            ("nats:///studio", "host"),
            ("nats://queue/a.b", "no prefix"),
            ("nats://queue?cred=x", "known are creds"),
            ("nats://queue?creds", "names no file"),
            ("nats://queue?cert=c", "belong together"),
            ("nats://queue?replicas=9", "1 to 5"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
