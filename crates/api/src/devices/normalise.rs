//! Rewrites the forms of four generations of manifests to the canonical form.
//!
//! Everything here works on the tree as the user wrote it, changes nothing that is canonical
//! already, and warns only where the specification requires it: most old forms are as clear as the
//! new one.

use super::capacity::Shape;
use super::claim_template::TemplateSource;
use super::pod_devices::ClaimSource;
use super::request::{COUNT, amounts_schema, typed_schema};
use super::{AccessMode, AttributeValue, RequestedCapacity};
use crate::alias::{self, Alias, AliasNotice};
use crate::decode;
use crate::finding::Findings;
use crate::quantity::Quantity;
use gantry_yaml::node::{Content, Key, Node, Path, Position};

/// Old names of fields of a term, relative to it.
pub(super) const TERM_ALIASES: [Alias; 5] = [
    Alias { within: "", old: "deviceMaxCount", new: "maxDeviceCount", notice: AliasNotice::Rename },
    Alias { within: "", old: "deviceMinCount", new: "minDeviceCount", notice: AliasNotice::Rename },
    CONTSTRAINTS,
    Alias { within: "", old: "Driver", new: "driver", notice: AliasNotice::Rename },
    Alias { within: "", old: "DeviceType", new: "deviceType", notice: AliasNotice::Rename },
];

/// A typo in a published class.
pub(super) const CONTSTRAINTS: Alias = Alias {
    within: "",
    old: "contstraints",
    new: "constraints",
    notice: AliasNotice::Because("ignoring it would let devices in that were meant to be kept out"),
};

/// The name before `matchAttributes`. Its values had a prefix, see [`attribute_matches`].
pub(super) const ATTRIBUTE_MATCHES: Alias = Alias {
    within: "",
    old: "attributeMatches",
    new: "matchAttributes",
    notice: AliasNotice::Silent,
};

/// Numbers of devices that a term may state beside `requests` and `limits`, where they belong.
pub(super) const LEGACY_COUNT_FIELDS: [(&str, &str); 3] =
    [(COUNT, "requests"), ("minDeviceCount", "requests"), ("maxDeviceCount", "limits")];

/// Fields of a term that stand in the spec of a claim without `claims`. The lists of attributes are
/// not among them: those of a spec hold for its only term just as well.
pub(super) const FLAT_TERM_FIELDS: [&str; 16] = [
    "name",
    "deviceClass",
    "deviceType",
    "driver",
    "constraints",
    "requests",
    "limits",
    "allocationMode",
    "accessMode",
    "topologies",
    "tolerations",
    "configs",
    "oneOf",
    COUNT,
    "minDeviceCount",
    "maxDeviceCount",
];

/// A driver with a `spec`, which later kinds all have.
pub(super) fn driver(node: &mut Node, findings: &mut Findings) {
    let Some((key, mut spec)) = node.take("spec") else { return };
    let path = Path::of("spec");
    if let Some((inner, types)) = spec.take("deviceTypes") {
        match node.get("deviceTypes") {
            Some(top) if !top.same_value(&types) => findings.error_at(
                &path.key("deviceTypes"),
                inner.at,
                "set here and at deviceTypes with different values; keep deviceTypes",
            ),
            _ => node.set("deviceTypes", types),
        }
    }
    match spec.entries() {
        Some(rest) => {
            for (left, _) in rest {
                let text = "unknown field; a DeviceDriver has deviceTypes and nothing else";
                findings.error_at(&path.key(&left.name), left.at, text);
            }
        }
        None => findings.error_at(&path, key.at, "unknown field; remove it"),
    }
}

pub(super) fn class_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    class_device_type(spec, path, findings);
    attribute_matches(spec, path, findings);
    access_mode(spec, "accessMode");
}

/// `deviceTypes` is what drivers have; a class has one type.
fn class_device_type(spec: &mut Node, path: &Path, findings: &mut Findings) {
    let Some((key, mut types)) = spec.take("deviceTypes") else { return };
    if let Some(items) = types.items_mut() {
        if items.len() != 1 {
            let text =
                format!("a class has one device type, not {}; use \"deviceType\"", items.len());
            findings.error_at(&path.key("deviceTypes"), key.at, text);
            return;
        }
        types = items.remove(0);
    }
    if let Some(entries) = spec.entries_mut() {
        entries.push((key, types));
    }
    let alias =
        Alias { within: "", old: "deviceTypes", new: "deviceType", notice: AliasNotice::Rename };
    alias::rewrite_at(&[alias], spec, path, findings);
}

pub(super) fn privileged_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    alias::rewrite_at(&[CONTSTRAINTS], spec, path, findings);
    alias::rewrite_at(&TERM_ALIASES[3..4], spec, path, findings);
}

/// The spec of a claim: a flat one gets its one term, and every term its name.
pub(super) fn claim_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    if spec.entries().is_none() {
        return;
    }
    alias::rewrite_at(&TERM_ALIASES, spec, path, findings);
    attribute_matches(spec, path, findings);
    let flat: Vec<&str> = FLAT_TERM_FIELDS.into_iter().filter(|name| spec.has(name)).collect();
    if spec.has("claims") {
        for name in flat {
            let text = format!("set beside \"claims\"; move it into an entry of {path}.claims");
            findings.error(&path.key(name), text);
            spec.take(name);
        }
    } else if !flat.is_empty() {
        let mut term = Node::empty_map(spec.at);
        for name in flat {
            if let (Some(field), Some(fields)) = (spec.take(name), term.entries_mut()) {
                fields.push(field);
            }
        }
        spec.set("claims", Node { at: spec.at, value: Content::List(vec![term]) });
    }
    terms(spec, path, findings);
}

/// The terms below `claims`.
fn terms(spec: &mut Node, path: &Path, findings: &mut Findings) {
    let path = path.key("claims");
    let Some(claims) = spec.get_mut("claims").and_then(Node::items_mut) else { return };
    let several = claims.len() > 1;
    for (index, claim) in claims.iter_mut().enumerate() {
        term(claim, &path.index(index), findings);
        if !claim.has("name") {
            let name = if several { format!("claim-{index}") } else { "main".to_owned() };
            claim.set("name", Node::string_at(claim.at, name));
        }
    }
}

pub(super) fn term(term: &mut Node, path: &Path, findings: &mut Findings) {
    device_request(term, path, findings);
    let path = path.key("oneOf");
    for (index, alternative) in
        term.get_mut("oneOf").and_then(Node::items_mut).into_iter().flatten().enumerate()
    {
        let path = path.index(index);
        if let Some((key, _)) = alternative.take("oneOf") {
            let text = "an alternative has no alternatives of its own; list them one level up";
            findings.error_at(&path.key("oneOf"), key.at, text);
        }
        device_request(alternative, &path, findings);
    }
}

fn device_request(ask: &mut Node, path: &Path, findings: &mut Findings) {
    alias::rewrite_at(&TERM_ALIASES, ask, path, findings);
    attribute_matches(ask, path, findings);
    access_mode(ask, "accessMode");
    if let Some(typed) = ask.get_mut("requests") {
        requests(typed, &path.key("requests"), findings);
    }
    for (old, holder) in LEGACY_COUNT_FIELDS {
        count(ask, old, holder, path, findings);
    }
}

/// Moves a number of devices to where numbers of devices are stated.
fn count(ask: &mut Node, old: &str, holder: &str, path: &Path, findings: &mut Findings) {
    let Some((key, value)) = ask.take(old) else { return };
    if ask.get(holder).is_none() {
        ask.set(holder, Node::empty_map(key.at));
    }
    let Some(target) = ask.get_mut(holder) else { return };
    let new = path.key(holder).key(COUNT);
    let stated = match &target.value {
        Content::Map(_) => target.get(COUNT),
        Content::List(items) => items
            .iter()
            .find(|item| item.get("name").and_then(Node::text) == Some(COUNT))
            .and_then(|item| item.get("counter")?.get("request")),
        // Rejected for its type, whatever the count is.
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => return,
    };
    match stated {
        Some(stated) if same_amount(stated, &value) => {}
        Some(_) => findings.error_at(
            &path.key(old),
            key.at,
            format!("set here and at {new} with different values; keep {new}"),
        ),
        None => match &mut target.value {
            Content::Map(entries) => {
                entries.push((Key { at: key.at, name: COUNT.to_owned() }, value));
            }
            Content::List(items) => items.push(counted(key.at, value)),
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => {}
        },
    }
}

/// The number of devices as an entry of a list of typed requests.
fn counted(at: Position, number: Node) -> Node {
    let mut counter = Node::empty_map(at);
    counter.set("request", number);
    let mut entry = Node::empty_map(at);
    entry.set("name", Node::string_at(at, COUNT));
    entry.set("counter", counter);
    entry
}

fn same_amount(a: &Node, b: &Node) -> bool {
    let amount = |node: &Node| Quantity::parse(&node.scalar_text()?).ok();
    a.same_value(b) || amount(a).is_some_and(|a| Some(a) == amount(b))
}

/// A list of typed requests or a map of amounts. No structural schema can say that, so it is
/// checked here.
fn requests(node: &mut Node, path: &Path, findings: &mut Findings) {
    let schema = match &node.value {
        Content::Map(_) => amounts_schema(),
        Content::List(_) => typed_schema(),
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::String(_) => {
            let text =
                "Invalid value: write a map from resource to amount, or a list of typed requests";
            findings.error(path, text);
            return;
        }
    };
    decode::normalise_values(node, schema, true, path, findings);
    for (index, item) in node.items_mut().into_iter().flatten().enumerate() {
        let path = path.index(index);
        for old in ["capacity", "resource"] {
            let alias = Alias { within: "", old, new: "name", notice: AliasNotice::Silent };
            alias::rewrite_at(&[alias], item, &path, findings);
        }
        if let Some(access) = item.get_mut("accessMode") {
            access_mode(access, "request");
        }
        exactly_one(item, &RequestedCapacity::FIELDS, &path, findings);
    }
    decode::report(schema.check_at(&node.to_json(), path), findings);
}

/// Writes an access mode in its canonical spelling. Invalid modes are left to the schema.
fn access_mode(holder: &mut Node, field: &str) {
    let Some(node) = holder.get_mut(field) else { return };
    if let Some(mode) = node.text().and_then(AccessMode::parse) {
        node.value = Content::String(mode.as_str().to_owned());
    }
}

/// `attributeMatches` listed attributes as constraints spell them, `device.model`.
///
/// Only that name had the prefix: an attribute in `matchAttributes` may well begin with `device.`.
fn attribute_matches(holder: &mut Node, path: &Path, findings: &mut Findings) {
    if let Some(list) = holder.get_mut(ATTRIBUTE_MATCHES.old).and_then(Node::items_mut) {
        let path = path.key(ATTRIBUTE_MATCHES.old);
        for (index, item) in list.iter_mut().enumerate() {
            if let Content::String(text) = &mut item.value
                && let Some(name) = text.strip_prefix("device.")
            {
                let advice = format!("attributes are listed without `device.`; use \"{name}\"");
                findings.warn_at(&path.index(index), item.at, advice);
                *text = name.to_owned();
            }
        }
    }
    alias::rewrite_at(&[ATTRIBUTE_MATCHES], holder, path, findings);
}

pub(super) fn pool_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    devices_under_resources(spec, path, findings);
    attributes(spec, path, findings);
    capacities(spec, "resources", path, findings);
    let path = path.key("devices");
    for (index, device) in
        spec.get_mut("devices").and_then(Node::items_mut).into_iter().flatten().enumerate()
    {
        let path = path.index(index);
        let alias =
            Alias { within: "", old: "capacities", new: "resources", notice: AliasNotice::Silent };
        alias::rewrite_at(&[alias], device, &path, findings);
        attributes(device, &path, findings);
        capacities(device, "resources", &path, findings);
    }
}

/// Devices were once called resources; what tells them apart is that they have capacities.
pub(super) fn devices_under_resources(pool: &mut Node, path: &Path, findings: &mut Findings) {
    let old_form = pool
        .get("resources")
        .and_then(Node::items)
        .is_some_and(|items| items.iter().any(|item| item.has("capacities")));
    if old_form {
        let alias =
            Alias { within: "", old: "resources", new: "devices", notice: AliasNotice::Silent };
        alias::rewrite_at(&[alias], pool, path, findings);
    }
}

pub(super) fn attributes(holder: &mut Node, path: &Path, findings: &mut Findings) {
    let path = path.key("attributes");
    for (index, attribute) in
        holder.get_mut("attributes").and_then(Node::items_mut).into_iter().flatten().enumerate()
    {
        exactly_one(attribute, &AttributeValue::FIELDS, &path.index(index), findings);
    }
}

pub(super) fn capacities(holder: &mut Node, field: &str, path: &Path, findings: &mut Findings) {
    let path = path.key(field);
    for (index, capacity) in
        holder.get_mut(field).and_then(Node::items_mut).into_iter().flatten().enumerate()
    {
        let path = path.index(index);
        let alias = Alias {
            within: "topologies[]",
            old: "groupInResource",
            new: "groupInDevice",
            notice: AliasNotice::Silent,
        };
        alias::rewrite_at(&[alias], capacity, &path, findings);
        exactly_one(capacity, &Shape::FIELDS, &path, findings);
        if capacity.has("blockSize") && !capacity.has("capacity") {
            let text = "only `capacity` has a block size; a `block` has its own `size`";
            findings.error(&path.key("blockSize"), text);
        }
    }
}

pub(super) fn template_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    if let Some((key, mut set)) = spec.take("setClaimSpec") {
        let old = path.key("setClaimSpec");
        set_spec(&mut set, &old, findings);
        if spec.has("claimSpec") {
            findings.error_at(&old, key.at, "set beside \"claimSpec\"; keep that one");
        } else {
            findings.warn_at(&old, key.at, "deprecated; use \"claimSpec\" with \"claims\"");
            spec.set("claimSpec", set);
        }
    }
    if let Some(claim) = spec.get_mut("claimSpec") {
        claim_spec(claim, &path.key("claimSpec"), findings);
    }
    if let Some(claim) = spec.get_mut("privilegedClaimSpec") {
        privileged_spec(claim, &path.key("privilegedClaimSpec"), findings);
    }
    exactly_one(spec, &TemplateSource::FIELDS, path, findings);
}

/// Turns a DeviceSetClaim, which was never served, into the DeviceClaim that says the same.
pub(crate) fn convert_set_claim(node: &mut Node, findings: &mut Findings) {
    let is = |name: &str, text: &str| node.get(name).and_then(Node::text) == Some(text);
    if !is("apiVersion", "devmgmtproto.k8s.io/v1alpha1") || !is("kind", "DeviceSetClaim") {
        return;
    }
    if let Some(kind) = node.get_mut("kind") {
        findings.warn_at(&Path::of("kind"), kind.at, "not served; read as a DeviceClaim");
        kind.value = Content::String("DeviceClaim".to_owned());
    }
    if let Some(spec) = node.get_mut("spec") {
        set_spec(spec, &Path::of("spec"), findings);
    }
}

/// The spec of a set claim lists its terms under `claimSpec`, or `ClaimSpec` if a machine wrote it.
fn set_spec(spec: &mut Node, path: &Path, findings: &mut Findings) {
    let capital =
        Alias { within: "", old: "ClaimSpec", new: "claimSpec", notice: AliasNotice::Rename };
    let terms = Alias { within: "", old: "claimSpec", new: "claims", notice: AliasNotice::Silent };
    alias::rewrite_at(&[capital, terms], spec, path, findings);
}

/// The claims of a pod.
pub(super) fn pod_claims(claims: &mut Node, path: &Path, findings: &mut Findings) {
    for (index, claim) in claims.items_mut().into_iter().flatten().enumerate() {
        let path = path.index(index);
        template_beside_claims(claim, &path, findings);
        exactly_one(claim, &ClaimSource::FIELDS, &path, findings);
        if let Some(spec) = claim.get_mut("claim") {
            claim_spec(spec, &path.key("claim"), findings);
        }
        if let Some(template) = claim.get_mut("template") {
            attribute_matches(template, &path.key("template"), findings);
            terms(template, &path.key("template"), findings);
        }
    }
}

/// Rewrites the content of a template, and fields beside it that are indented wrongly.
pub(super) const TEMPLATE: [&str; 4] =
    ["metadata", "matchAttributes", "distinctAttributes", "claims"];

fn template_beside_claims(claim: &mut Node, path: &Path, findings: &mut Findings) {
    let empty = claim.get("template").is_none_or(|template| {
        template.is_null() || template.entries().is_some_and(<[(Key, Node)]>::is_empty)
    });
    if !empty || !claim.has("claims") {
        return;
    }
    claim.take("template");
    let mut template = Node::empty_map(claim.at);
    for field in TEMPLATE {
        if let (Some(entry), Some(entries)) = (claim.take(field), template.entries_mut()) {
            let text = format!("read as \"template.{field}\"; indent it below \"template\"");
            if field == "claims" {
                findings.warn_at(&path.key(field), entry.0.at, text);
            }
            entries.push(entry);
        }
    }
    claim.set("template", template);
}

/// Rejects a map that has none or several of the fields that exclude each other.
fn exactly_one(node: &Node, fields: &[&str], path: &Path, findings: &mut Findings) {
    if node.entries().is_none() {
        return;
    }
    let mut present = fields.iter().filter(|field| node.has(field));
    match (present.next(), present.next()) {
        (Some(_), None) => {}
        (None, _) => {
            let text = format!("Required value: set exactly one of {}", fields.join(", "));
            findings.error(path, text);
        }
        (Some(first), Some(second)) => {
            let text = format!("set beside \"{first}\"; keep one of {}", fields.join(", "));
            findings.error(&path.key(second), text);
        }
    }
}
