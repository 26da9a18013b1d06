//! Who asks, and whether they may.
//!
//! Until roles are served, there are two sorts of callers: administrators, who may do everything,
//! and strangers, who may see health and version.

use http::Method;

use crate::query::Query;
use crate::route::{Target, Verb};
use crate::status::Refusal;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// The group that may do everything.
const ADMINISTRATORS: &str = "system:masters";

impl Caller {
    /// Someone who showed nothing.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }

    /// Someone whose certificate was verified.
    #[must_use]
    pub fn certified(name: &str, groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
        groups.push("system:authenticated".to_owned());
        Self { name: name.to_owned(), groups }
    }

    /// The server itself.
    #[must_use]
    pub fn server() -> Self {
        Self::certified("system:apiserver", &[ADMINISTRATORS.to_owned()])
    }

    /// Whether this caller may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }
}

/// Whether the caller may see a path that is no resource.
///
/// # Errors
/// 403 with the words clients print.
pub fn check_path(caller: &Caller, method: &Method, path: &str) -> Result<(), Refusal> {
    let trimmed = path.trim_end_matches('/');
    let open = ["/healthz", "/livez", "/readyz", "/version"];
    if caller.is_administrator() || (*method == Method::GET && open.contains(&trimmed)) {
        return Ok(());
    }
    let verb = method.as_str().to_ascii_lowercase();
    let why = format!("User \"{}\" cannot {verb} path \"{path}\"", caller.name);
    Err(Refusal::forbidden("", "", "", &why))
}

/// Whether the caller may do this to a resource.
///
/// # Errors
/// 403 with the words clients print.
pub fn check_resource(
    caller: &Caller,
    method: &Method,
    target: &Target,
    query: &Query,
) -> Result<(), Refusal> {
    if caller.is_administrator() {
        return Ok(());
    }
    let watch = query.flag("watch").unwrap_or(false);
    let verb = Verb::of(method, target, watch).map_or("", Verb::word);
    let resource = match target.subresource.as_str() {
        "" => target.resource.clone(),
        part => format!("{}/{part}", target.resource),
    };
    let place = match target.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!(
        "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\" {place}",
        caller.name, target.group
    );
    Err(Refusal::forbidden(&target.group, &target.resource, &target.name, &why))
}
