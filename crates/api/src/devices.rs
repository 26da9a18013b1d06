//! Group `devmgmtproto.k8s.io`: devices, claims for them, and allocations.
//!
//! Drivers publish a [`DeviceDriver`] and [`DevicePool`]s, administrators publish
//! [`DeviceClass`]es, users file [`DeviceClaim`]s and attach them to pods. Four generations of
//! manifests are read; all of them become the one canonical form that these types hold.

mod access_mode;
mod attribute;
mod capacity;
mod claim;
mod claim_template;
mod class;
mod constraint;
mod driver;
mod files;
mod normalise;
mod pod;
mod pod_devices;
mod pool;
mod privileged_claim;
mod request;
mod serve;
mod status;
mod term;
#[cfg(test)]
mod tests;

pub use access_mode::AccessMode;
pub use attribute::{Attribute, AttributeValue};
pub use capacity::{
    Block, Counter, QuantityCapacity, ResourceCapacity, Shape, Sharing, Topology,
    TopologyAssignment,
};
pub use claim::{ClaimSpec, DeviceClaim};
pub use claim_template::{DeviceClaimTemplate, TemplateMetadata, TemplateSource, TemplateSpec};
pub use class::{ClassConfig, ClassSpec, ClassStatus, DeviceClass};
pub use constraint::single_equals;
pub use driver::{DeviceDriver, DriverStatus};
pub use files::{CapacityClaim, NodeDevice, NodeDevices, NodePool, PodCapacityClaim};
pub use pod::{
    CONTAINER_DEVICES_ANNOTATION, DEVICE_ANNOTATIONS, DEVICE_CLAIMS_ANNOTATION,
    POD_DEVICES_ANNOTATION, PodDeviceClaims,
};
pub use pod_devices::{
    ClaimSource, DeviceReference, InlineTemplate, PodClaim, PodClaims, PodDevices,
};
pub use pool::{
    ClaimReference, Device, DevicePool, HoldState, LedgerEntry, NodeRefusal, PoolSpec, PoolStatus,
    Taint, TaintEffect,
};
pub use privileged_claim::{DevicePrivilegedClaim, PrivilegedClaimSpec, PrivilegedClaimStatus};
pub use request::{RequestedCapacity, Requests, TypedRequest};
pub use status::{
    ClaimStatus, Consumer, DeviceAddress, DeviceAllocation, DeviceStatus, ResourceAllocation,
};
pub use term::{
    AllocationMode, Alternative, DeviceRequest, Term, TermConfig, Toleration, TolerationEffect,
    TolerationOperator, TopologyPolicy, TopologyRule,
};

pub(crate) use files::read_file_form;
pub(crate) use normalise::convert_set_claim;
pub(crate) use pod::read_foreign;

use crate::finding::{Findings, Source};
use crate::meta::{dns_label_problem, dns_subdomain_problem};
use gantry_yaml::node::Path;

/// The longest name of a driver: it is the name of a DeviceDriver, and part of other names.
const DRIVER_NAME: usize = 63;

/// The longest constraint, in bytes.
const CONSTRAINT: usize = 10 * 1024;

/// Rejects a text that cannot be the name of a driver, and warns about what a server will not
/// accept.
fn check_driver(driver: &str, path: &Path, findings: &mut Findings) {
    if check_file_driver(driver, path, findings) && dns_subdomain_problem(driver).is_some() {
        let text =
            format!("\"{driver}\" has upper case letters or a slash, which an API server refuses");
        findings.warn(path, text);
    }
}

/// Rejects a text that cannot be the name of a driver. The slash of the oldest files
/// (`example.com/foozer`) and upper case names are invalid on a server.
fn check_file_driver(driver: &str, path: &Path, findings: &mut Findings) -> bool {
    let part = |part: &str| dns_subdomain_problem(part).is_none();
    let ok = driver.len() <= DRIVER_NAME
        && match findings.source {
            Source::Server => part(driver),
            Source::File => match driver.to_lowercase().split_once('/') {
                Some((domain, name)) => part(domain) && part(name),
                None => part(&driver.to_lowercase()),
            },
        };
    if !ok {
        findings.error(
            path,
            format!(
                "Invalid value: \"{driver}\": must be the name of a driver: at most {DRIVER_NAME} \
                 lower case letters, digits, `-` and `.`"
            ),
        );
    }
    ok
}

fn check_device_type(device_type: &str, path: &Path, findings: &mut Findings) {
    if let Some(problem) = dns_label_problem(device_type) {
        findings.error(path, format!("Invalid value: \"{device_type}\": {problem}"));
    }
}

/// Checks the size of a constraint and warns of the mistake that the lexer can find without a
/// compiler.
fn check_constraints(constraints: Option<&str>, path: &Path, findings: &mut Findings) {
    let Some(text) = constraints else { return };
    let path = path.key("constraints");
    if text.len() > CONSTRAINT {
        let size = text.len();
        findings.error(&path, format!("Too long: {size} bytes, at most {CONSTRAINT} are allowed"));
    }
    if single_equals(text).is_some() {
        findings.warn(
            &path,
            "`=` is not CEL; use `==`. Until then the constraint does not compile and no device \
             matches",
        );
    }
}

/// A reference to an object that configures devices, as classes and terms write it.
#[derive(Clone, Copy)]
struct ConfigReference<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
}

/// Rejects references that address no object, and configuration that would be copied where others
/// can read it. Every part becomes a segment of a path of the API: an invalid name must not get
/// there.
fn check_config(config: ConfigReference<'_>, path: &Path, findings: &mut Findings) {
    let ConfigReference { api_version, kind, name } = config;
    let mut refuse = |field: &str, value: &str, problem: &str| {
        findings.error(&path.key(field), format!("Invalid value: {value:?}: {problem}"));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let has_group = api_version.contains('/');
    if dns_label_problem(version).is_some() || has_group && dns_subdomain_problem(group).is_some() {
        let problem = "must be a version of the core group, or group/version; use for example \
                       \"v1\" or \"foozer.example.com/v1alpha1\"";
        refuse("apiVersion", api_version, problem);
    }
    let is_kind = kind.starts_with(|it: char| it.is_ascii_alphabetic())
        && kind.bytes().all(|it| it.is_ascii_alphanumeric());
    if !is_kind {
        refuse("kind", kind, "must be letters and digits; use the kind as objects spell it");
    }
    // Upper case letters are accepted in names of files, where nothing is looked up by them.
    if let Some(problem) = dns_subdomain_problem(&name.to_ascii_lowercase()) {
        refuse("name", name, problem);
    }
    if api_version == "v1" && kind == "Secret" {
        findings.error(
            &path.key("kind"),
            "Forbidden: a Secret would be copied into the claim's status; use another kind",
        );
    } else if !has_group && is_kind && kind != "ConfigMap" {
        findings.error(
            &path.key("kind"),
            format!(
                "Forbidden: a {kind} may not be copied into the claim's status; use a ConfigMap, \
                 or a kind that the driver defines"
            ),
        );
    }
}
