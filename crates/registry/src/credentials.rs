//! Credentials for registries: files in the formats of Docker, and which entry is for which
//! repository.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use gantry_oci::Repository;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

/// The largest file of credentials: what a Secret of Kubernetes can hold.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Both forms of base64, with padding and without, are in use.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the request it is meant for.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// What a client proves its identity with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Credential {
    /// A user name and a password.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: SecretText,
    },
    /// A refresh token, which the token endpoint exchanges for an access token.
    IdentityToken(SecretText),
    /// An access token, which is sent to the registry as it is.
    RegistryToken(SecretText),
}

impl Credential {
    /// The value of the header `Authorization` for Basic authentication, if it can be used for
    /// that.
    pub(crate) fn basic(&self) -> Option<SecretText> {
        match self {
            Self::Basic { username, password } => {
                let text = BASE64.encode(format!("{username}:{}", password.reveal()));
                Some(SecretText(format!("Basic {text}")))
            }
            Self::IdentityToken(_) | Self::RegistryToken(_) => None,
        }
    }
}

/// A file of credentials: `config.json` of Docker (`.dockerconfigjson`) or its older form
/// (`.dockercfg`), which is the map of registries alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFile {
    entries: Vec<(KeyPattern, Entry)>,
    helpers: Vec<(KeyPattern, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Credential(Credential),
    /// The credential is kept by a program that the file names.
    Helper(String),
    /// There is nothing in it.
    Empty,
}

/// Why credentials cannot be used. Never shows one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The file is not in the format of Docker.
    #[error("cannot read the registry credentials: {0}")]
    Malformed(String),
    /// The credential for a registry is kept by another program.
    #[error(
        "cannot use the credentials for {registry}: they are kept by the credential helper \
         {helper:?}, which is not run here; write auth, or username and password, into auths"
    )]
    Helper {
        /// The key of the file that matched.
        registry: String,
        /// The name of the helper.
        helper: String,
    },
}

impl CredentialFile {
    /// Reads a file in either format.
    ///
    /// # Errors
    /// It is too large, not JSON, or an entry is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self, CredentialError> {
        let malformed = |why: String| Err(CredentialError::Malformed(why));
        if bytes.len() > MAX_FILE_BYTES {
            return malformed(format!("{} bytes, of at most {MAX_FILE_BYTES}", bytes.len()));
        }
        // The text of the error is not shown, because it may repeat a part of the file.
        let Ok(Value::Object(file)) = serde_json::from_slice(bytes) else {
            return malformed("it is not a JSON object".to_owned());
        };
        let is_config = ["auths", "credHelpers", "credsStore"].iter().any(|key| {
            // A registry in the older form could have such a name, but would be an object with
            // fields that registries do not have.
            file.contains_key(*key)
        });
        let store = text(&file, "credsStore");
        let empty = Map::new();
        let auths = match (is_config, file.get("auths")) {
            (false, _) => &file,
            (true, Some(Value::Object(auths))) => auths,
            (true, None | Some(Value::Null)) => &empty,
            (true, Some(_)) => return malformed("auths is not an object".to_owned()),
        };
        let mut read = Self::default();
        for (key, value) in auths {
            let entry = match entry(value) {
                Ok(Entry::Empty) => store.map_or(Entry::Empty, |it| Entry::Helper(it.to_owned())),
                Ok(entry) => entry,
                Err(why) => return malformed(format!("the entry {key:?}: {why}")),
            };
            read.entries.push((KeyPattern::new(key), entry));
        }
        match file.get("credHelpers").filter(|_| is_config) {
            None | Some(Value::Null) => {}
            Some(Value::Object(helpers)) => {
                for (key, helper) in helpers {
                    let helper = helper.as_str().unwrap_or_default().to_owned();
                    read.helpers.push((KeyPattern::new(key), helper));
                }
            }
            Some(_) => return malformed("credHelpers is not an object".to_owned()),
        }
        Ok(read)
    }

    /// Returns the credential for a repository: that of the entry with the longest path.
    ///
    /// # Errors
    /// The credential is kept by a helper.
    pub fn find(&self, repository: &Repository) -> Result<Option<&Credential>, CredentialError> {
        let best = best_match(&self.entries, repository);
        let helper = |key: &KeyPattern, helper: &str| CredentialError::Helper {
            registry: key.shown.clone(),
            helper: helper.to_owned(),
        };
        match best {
            Some((_, Entry::Credential(credential))) => return Ok(Some(credential)),
            Some((key, Entry::Helper(name))) => return Err(helper(key, name)),
            Some((_, Entry::Empty)) | None => {}
        }
        best_match(&self.helpers, repository).map_or(Ok(None), |(key, name)| Err(helper(key, name)))
    }
}

fn best_match<'a, Value>(
    entries: &'a [(KeyPattern, Value)],
    repository: &Repository,
) -> Option<&'a (KeyPattern, Value)> {
    let matching = entries.iter().filter(|(key, _)| key.matches(repository));
    // Exact hosts count more than patterns; of equals, the first one.
    matching.rev().max_by_key(|(key, _)| (key.path.len(), !key.host.contains('*')))
}

/// Returns the credentials for a repository, the first of each file, in the order of the files.
///
/// # Errors
/// A file has the credential in a helper.
pub fn candidates(
    files: &[CredentialFile],
    repository: &Repository,
) -> Result<Vec<Credential>, CredentialError> {
    let found = files.iter().map(|file| file.find(repository));
    found.filter_map(|it| it.map(Option::<&Credential>::cloned).transpose()).collect()
}

/// A key of a file: a host, perhaps with port, patterns and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    shown: String,
    /// In lower case; a label may be or contain `*`.
    host: String,
    /// Without slashes at its ends.
    path: String,
}

/// Names of Docker Hub in files of credentials.
const DOCKER_HUB_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

impl KeyPattern {
    fn new(key: &str) -> Self {
        let bare = key.trim();
        let bare = bare.strip_prefix("https://").or_else(|| bare.strip_prefix("http://"));
        let bare = bare.unwrap_or_else(|| key.trim()).trim_end_matches('/');
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        // The versions of the API are not a part of any repository.
        let path = path.trim_matches('/');
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        let host = host.to_ascii_lowercase();
        let hub = DOCKER_HUB_HOSTS.contains(&host.as_str());
        let host = if hub { "docker.io".to_owned() } else { host };
        Self { shown: key.to_owned(), host, path: path.to_owned() }
    }

    fn matches(&self, repository: &Repository) -> bool {
        let rest = repository.path().strip_prefix(&self.path);
        let within =
            rest.is_some_and(|it| self.path.is_empty() || it.is_empty() || it.starts_with('/'));
        within && host_matches(&self.host, &repository.registry().as_str().to_ascii_lowercase())
    }
}

/// Compares label by label; a `*` stands for any part of one label.
fn host_matches(pattern: &str, host: &str) -> bool {
    let (pattern, pattern_port) = split_port(pattern);
    let (host, port) = split_port(host);
    let (mut patterns, mut labels) = (pattern.split('.'), host.split('.'));
    pattern_port == port
        && loop {
            match (patterns.next(), labels.next()) {
                (None, None) => break true,
                (Some(pattern), Some(label)) if label_matches(pattern, label) => {}
                (Some(_) | None, _) => break false,
            }
        }
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (host, None),
    }
}

fn label_matches(pattern: &str, label: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == label };
    let Some(mut label) = label.strip_prefix(start) else { return false };
    // Every piece between stars is searched from the left; the last one must be the end.
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return label.ends_with(piece);
        }
        match label.find(piece) {
            None => return false,
            Some(index) => label = &label[index + piece.len()..],
        }
    }
    true
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str).filter(|it| !it.is_empty())
}

/// Reads the entry of one registry.
fn entry(value: &Value) -> Result<Entry, &'static str> {
    let object = match value {
        Value::Object(object) => object,
        Value::Null => return Ok(Entry::Empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err("it is not an object");
        }
    };
    let (mut username, mut password) =
        (text(object, "username").map(str::to_owned), text(object, "password").map(str::to_owned));
    if let Some(auth) = text(object, "auth") {
        let bytes = BASE64.decode(auth.trim()).map_err(|_| "auth is not base64")?;
        let decoded = String::from_utf8(bytes).map_err(|_| "auth is not text")?;
        let (user, secret) = decoded.split_once(':').ok_or("auth has no colon")?;
        username = Some(user.to_owned());
        // Old versions of Docker fill the password up with zeros.
        password = Some(secret.trim_end_matches('\0').to_owned());
    }
    let credential = if let Some(token) = text(object, "registrytoken") {
        Credential::RegistryToken(SecretText::new(token))
    } else if let Some(token) = text(object, "identitytoken") {
        Credential::IdentityToken(SecretText::new(token))
    } else {
        match (username, password) {
            (None, None) => return Ok(Entry::Empty),
            (Some(username), Some(password)) if !username.is_empty() => {
                Credential::Basic { username, password: SecretText(password) }
            }
            (Some(_) | None, _) => return Err("user name and password must both be there"),
        }
    };
    Ok(Entry::Credential(credential))
}
