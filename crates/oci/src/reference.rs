//! References to images: which registry, which repository, which tag, which digest.
//!
//! The grammar is that of the distribution project, and short names mean what they mean to
//! Docker: `nginx` is `docker.io/library/nginx`. Stricter than theirs: a port is at most 65535, an
//! IPv6 address must be one, and only digests that this crate can verify are accepted.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::digest::{Digest, DigestError};

#[cfg(test)]
mod tests;

/// The longest path of a repository, without its registry.
const MAX_PATH_LENGTH: usize = 255;

/// The longest tag.
const MAX_TAG_LENGTH: usize = 128;

/// The longest name of a host with its port: a DNS name, a colon and five digits.
const MAX_REGISTRY_LENGTH: usize = 253 + 6;

/// The longest text that can be a reference: all parts at their longest.
const MAX_REFERENCE_LENGTH: usize =
    MAX_REGISTRY_LENGTH + 1 + MAX_PATH_LENGTH + 1 + MAX_TAG_LENGTH + 1 + 7 + 128;

/// How much of a wrong reference an error repeats.
const SHOWN_LENGTH: usize = 200;

const DOCKER_HUB: &str = "docker.io";

/// Names that mean Docker Hub as well.
const DOCKER_HUB_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// The server that answers for Docker Hub.
const DOCKER_HUB_SERVER: &str = "registry-1.docker.io";

/// A reference to an image, for instance `quay.io/team/driver:1.2@sha256:…`.
///
/// Its text is always the full form, which parses to an equal value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    repository: Repository,
    tag: Option<Tag>,
    digest: Option<Digest>,
}

impl Reference {
    /// Combines the parts of a reference.
    #[must_use]
    pub const fn new(repository: Repository, tag: Option<Tag>, digest: Option<Digest>) -> Self {
        Self { repository, tag, digest }
    }

    /// The repository.
    #[must_use]
    pub const fn repository(&self) -> &Repository {
        &self.repository
    }

    /// The registry.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.repository.registry
    }

    /// The tag, if the reference has one.
    #[must_use]
    pub const fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
    }

    /// The digest, if the reference has one. It counts more than the tag.
    #[must_use]
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The last part of a manifest's URL: the digest, else the tag, else `latest`.
    #[must_use]
    pub fn manifest_name(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.as_str(),
            (None, Some(tag)) => tag.as_str(),
            (None, None) => Tag::LATEST,
        }
    }

    /// The same repository, with a digest and without a tag.
    #[must_use]
    pub fn at_digest(&self, digest: Digest) -> Self {
        Self { repository: self.repository.clone(), tag: None, digest: Some(digest) }
    }

    /// The same repository, with a tag and without a digest.
    #[must_use]
    pub fn with_tag(&self, tag: Tag) -> Self {
        Self { repository: self.repository.clone(), tag: Some(tag), digest: None }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        parse(text).map_err(|problem| ReferenceError::new(text, problem))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// A repository of a registry, for instance `quay.io/team/driver`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository {
    registry: Registry,
    path: String,
}

impl Repository {
    /// The registry.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The path within the registry, for instance `library/nginx`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether both repositories are on one registry, so that blobs can be mounted from one to
    /// the other.
    #[must_use]
    pub fn same_registry(&self, other: &Self) -> bool {
        self.registry.is_same(&other.registry)
    }
}

impl FromStr for Repository {
    type Err = ReferenceError;

    /// Reads a name without tag and digest.
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let reference: Reference = text.parse()?;
        if reference.tag.is_some() || reference.digest.is_some() {
            return Err(ReferenceError::new(text, ReferenceProblem::NotOnlyRepository));
        }
        Ok(reference.repository)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

/// The host of a registry with its port, for instance `localhost:5000`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registry(String);

impl Registry {
    /// The name in references.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host and port to connect to. It differs from the name for Docker Hub only.
    #[must_use]
    pub fn server(&self) -> &str {
        if self.is_docker_hub() { DOCKER_HUB_SERVER } else { &self.0 }
    }

    /// The host without its port; an IPv6 address has its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        split_port(&self.0).0
    }

    /// The port, if the name has one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        split_port(&self.0).1.and_then(|port| port.parse().ok())
    }

    /// Whether this is Docker Hub.
    #[must_use]
    pub fn is_docker_hub(&self) -> bool {
        self.0 == DOCKER_HUB
    }

    /// Whether both names mean one registry. Letter case does not count, and a port that is left
    /// out is not a default port, since that depends on whether TLS is used.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl FromStr for Registry {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        registry(text).map_err(|problem| ReferenceError::new(text, problem))
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A tag, for instance `v1.2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(String);

impl Tag {
    /// The tag of references without tag and digest.
    pub const LATEST: &str = "latest";

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(word);
        let valid = first && bytes.all(|byte| word(byte) || matches!(byte, b'.' | b'-'));
        if valid && text.len() <= MAX_TAG_LENGTH {
            Ok(Self(text.to_owned()))
        } else {
            Err(ReferenceError::new(text, ReferenceProblem::Tag))
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A text that is not a reference to an image, or not the part of one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {text:?} as an image reference: {problem}")]
pub struct ReferenceError {
    /// The text, cut if it is long.
    pub text: String,
    /// What is wrong with it.
    pub problem: ReferenceProblem,
}

impl ReferenceError {
    fn new(text: &str, problem: ReferenceProblem) -> Self {
        Self { text: text.chars().take(SHOWN_LENGTH).collect(), problem }
    }
}

/// What is wrong with a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceProblem {
    /// It is empty.
    #[error("it is empty; write for instance quay.io/team/image:tag")]
    Empty,
    /// It is longer than all parts together may be.
    #[error("it is longer than {MAX_REFERENCE_LENGTH} bytes")]
    TooLong,
    /// The path of the repository is too long.
    #[error("the repository is longer than {MAX_PATH_LENGTH} bytes")]
    PathTooLong,
    /// The host or the port is malformed.
    #[error("the registry must be a host name or address with an optional port up to 65535")]
    Registry,
    /// The path of the repository has upper-case letters.
    #[error("the repository must be in lower case")]
    UpperCase,
    /// The path of the repository is malformed.
    #[error(
        "each part of the repository must be a-z and 0-9, joined by single dots, one or two \
         underscores, or hyphens"
    )]
    Path,
    /// Sixty-four hexadecimal digits, which tools mistake for the id of an image.
    #[error(
        "64 hexadecimal digits are the id of an image, not a name; write sha256: before them \
             and a repository before that"
    )]
    ImageId,
    /// The tag is malformed.
    #[error(
        "a tag has up to {MAX_TAG_LENGTH} letters, digits, underscores, dots and hyphens, and \
             starts with neither dot nor hyphen"
    )]
    Tag,
    /// The digest is malformed.
    #[error("{0}")]
    Digest(DigestError),
    /// A repository was expected, and there is a tag or a digest.
    #[error("a repository has neither tag nor digest")]
    NotOnlyRepository,
}

fn parse(text: &str) -> Result<Reference, ReferenceProblem> {
    if text.is_empty() {
        return Err(ReferenceProblem::Empty);
    }
    if text.len() > MAX_REFERENCE_LENGTH {
        return Err(ReferenceProblem::TooLong);
    }
    if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(ReferenceProblem::ImageId);
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => {
            (name, Some(digest.parse::<Digest>().map_err(ReferenceProblem::Digest)?))
        }
        None => (text, None),
    };
    let (host, rest) = split_registry(name);
    // A colon after the last slash starts the tag; the host is split off already.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => {
            (path, Some(tag.parse::<Tag>().map_err(|error| error.problem)?))
        }
        Some(_) | None => (rest, None),
    };
    let registry = registry(host.unwrap_or(DOCKER_HUB))?;
    let path = if registry.is_docker_hub() && !path.contains('/') {
        check_path(path)?;
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    check_path(&path)?;
    Ok(Reference { repository: Repository { registry, path }, tag, digest })
}

/// Splits off the registry as Docker does: the first part is a host if it cannot be a part of a
/// repository on Docker Hub.
fn split_registry(name: &str) -> (Option<&str>, &str) {
    match name.split_once('/') {
        Some((host, rest))
            if host.contains(['.', ':'])
                || host == "localhost"
                || host.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (Some(host), rest)
        }
        Some(_) | None => (None, name),
    }
}

fn registry(text: &str) -> Result<Registry, ReferenceProblem> {
    let (host, port) = split_port(text);
    let port_is_valid = port.is_none_or(|port| {
        (1..=5).contains(&port.len())
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    let host_is_valid = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').is_some_and(|address| {
            // A zone or an embedded IPv4 address is not part of the grammar.
            address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
                && address.parse::<Ipv6Addr>().is_ok()
        }),
        None => host.split('.').all(|label| {
            let ends = [label.bytes().next(), label.bytes().next_back()];
            ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
    };
    if !port_is_valid || !host_is_valid || text.len() > MAX_REGISTRY_LENGTH {
        return Err(ReferenceProblem::Registry);
    }
    if DOCKER_HUB_ALIASES.iter().chain([&DOCKER_HUB]).any(|hub| text.eq_ignore_ascii_case(hub)) {
        return Ok(Registry(DOCKER_HUB.to_owned()));
    }
    Ok(Registry(text.to_owned()))
}

/// Splits `host:port` and `[address]:port`.
fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        Some(_) | None => (text, None),
    }
}

fn check_path(path: &str) -> Result<(), ReferenceProblem> {
    if path.len() > MAX_PATH_LENGTH {
        return Err(ReferenceProblem::PathTooLong);
    }
    if path.split('/').all(is_path_component) {
        Ok(())
    } else if path.bytes().any(|byte| byte.is_ascii_uppercase())
        && path.to_ascii_lowercase().split('/').all(is_path_component)
    {
        Err(ReferenceProblem::UpperCase)
    } else {
        Err(ReferenceProblem::Path)
    }
}

/// Runs of letters and digits, joined by `.`, `_`, `__`, or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    if !bytes.first().is_some_and(|byte| word(*byte))
        || !bytes.last().is_some_and(|byte| word(*byte))
    {
        return false;
    }
    component.split(|char: char| char.is_ascii_lowercase() || char.is_ascii_digit()).all(
        |between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        },
    )
}
