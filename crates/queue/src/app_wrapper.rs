//! AppWrappers as every controller that decides about them reads them: the queue, and the scaling
//! of nodes.

use gantry_api::queue::{
    AppWrapperState, AppWrapperStatus, PodResources, QueueState, Requeuing, SchedulingSettings,
};
use gantry_reconcile::world::IndexValue;
use gantry_reconcile::{Meta, ObjectReference, Resource, View};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::amounts::{Amounts, OtherResources};
use crate::demand::{Demand, declared_pod_request};
use crate::gang;
use crate::privilege::Privilege;

/// The label that names the instance types of an AppWrapper.
pub const ORDERED_INSTANCE_LABEL: &str = "orderedinstance";
/// The annotation that lists the nodes that were found to make an AppWrapper fit that names no
/// instance types: `type=2`.
pub const NODES_ANNOTATION: &str = "instascale.codeflare.dev/nodes";
/// The annotation that gives users the same information, and the reason why nodes of other types do
/// not help.
pub const SHAPES_ANNOTATION: &str = "instascale.codeflare.dev/shapes";

/// The annotation that names the author of an AppWrapper: the user that last wrote its items, in
/// JSON. Only the queue's webhook can write it.
pub const AUTHOR_ANNOTATION: &str = "workload.codeflare.dev/gantry-author";

/// The queue's message for an AppWrapper for which there is no free capacity. It has other messages
/// for one without quota, and for one whose pods did not come up: more nodes would help neither.
const INSUFFICIENT_RESOURCES: &str = "Insufficient resources";

/// An AppWrapper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AppWrapper {
    /// Metadata.
    pub metadata: Meta,
    /// The desired state.
    pub spec: Spec,
    /// The observed state.
    pub status: AppWrapperStatus,
}

impl View for AppWrapper {
    const RESOURCE: Resource =
        Resource::namespaced("workload.codeflare.dev", "v1beta1", "appwrappers", "AppWrapper");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    /// Most AppWrappers do not ask for nodes: those that do are indexed, and so are those for which
    /// there is no free capacity and that do not say which nodes would help. The permissions of an
    /// author concern all AppWrappers of that author, and whether the server has a kind concerns
    /// the admitted AppWrappers that wrap it.
    fn index_values(&self) -> Vec<IndexValue> {
        let Meta { labels, annotations, .. } = &self.metadata;
        let named = labels.contains_key(ORDERED_INSTANCE_LABEL);
        let asks = named || annotations.contains_key(NODES_ANNOTATION);
        let short = !named && self.awaits_dispatch() && self.awaits_resources();
        let asks = asks.then(Self::requests_nodes_tag);
        let author = self.author().map(Self::author_tag);
        let mut tags: Vec<IndexValue> = asks
            .into_iter()
            .chain(short.then(Self::insufficient_resources_tag))
            .chain(author)
            .collect();
        if self.status.can_run {
            let mut kinds: Vec<&TypeName> =
                self.items().iter().filter_map(|it| it.name.as_ref()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            tags.extend(kinds.into_iter().map(Self::admitted_kind_tag));
        }
        tags
    }
}

/// The spec of an AppWrapper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its priority; the larger is admitted first.
    pub priority: i32,
    /// Priority gained per second of waiting.
    #[serde(rename = "priorityslope")]
    pub slope: f64,
    /// The wrapped objects.
    pub resources: Resources,
    /// When it counts as running, and what happens when it does not get there.
    pub scheduling_spec: Option<SchedulingSettings>,
}

/// The wrapped objects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// One entry per wrapped object.
    #[serde(rename = "GenericItems")]
    pub items: Vec<Item>,
}

/// One wrapped object. Its text is stored unparsed: it is parsed when the object is created, and
/// the demand of its pods was counted when the AppWrapper was read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawItem")]
pub struct Item {
    template: Option<Box<str>>,
    /// Its type; `None` where it has no template.
    pub name: Option<TypeName>,
    /// Condition types of the object that mean it has finished, as the user wrote them.
    pub completion: String,
    /// How many pods each entry of `custompodresources` declares.
    pub replicas: Box<[i64]>,
    /// What each of those pods requests, entry by entry.
    pub declared: Box<[Amounts]>,
    /// Whether its pods claim devices.
    pub claims_devices: bool,
    /// What its pods request.
    pub demand: Demand,
    /// Whether the demand was declared, and not inferred from the object.
    pub is_declared: bool,
    /// The right that its author needs beside the right to create it.
    pub privilege: Option<Privilege>,
}

/// The type of an object: API version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeName {
    /// Group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
}

impl TypeName {
    /// Returns the type of the objects of a kind.
    #[must_use]
    pub fn of(resource: &Resource) -> Self {
        Self { api_version: resource.api_version().into(), kind: resource.kind.as_ref().into() }
    }

    /// Returns the type of an object.
    #[must_use]
    pub fn of_object(object: &Value) -> Self {
        let text = |name: &str| object[name].as_str().unwrap_or_default().into();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }
}

/// An item as the server stores it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawItem {
    generictemplate: Option<Box<RawValue>>,
    custompodresources: Vec<PodResources>,
    completionstatus: Option<String>,
}

impl From<RawItem> for Item {
    fn from(raw: RawItem) -> Self {
        let RawItem { generictemplate: template, custompodresources, completionstatus } = raw;
        let template = template.map(|it| Box::<str>::from(it.get()));
        let object: Option<Value> = template.as_deref().and_then(|it| parse_object(it).ok());
        Self {
            demand: Demand::of(&custompodresources, object.as_ref()),
            is_declared: !custompodresources.is_empty(),
            completion: completionstatus.unwrap_or_default(),
            name: object.as_ref().map(TypeName::of_object),
            replicas: custompodresources.iter().map(|it| it.replicas).collect(),
            declared: custompodresources
                .iter()
                .map(|it| declared_pod_request(it, OtherResources::Counted))
                .collect(),
            claims_devices: object.as_ref().is_some_and(gang::claims_devices),
            privilege: object.as_ref().and_then(Privilege::of),
            template,
        }
    }
}

/// Parses the text of an object. The server would have rejected a text that is not an object.
fn parse_object(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

impl Item {
    /// Returns the object to create, as the user wrote it; `None` where there is none.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        self.template.as_deref().and_then(|it| parse_object(it).ok()).filter(Value::is_object)
    }
}

impl AppWrapper {
    /// Returns the index value of AppWrappers with the label [`ORDERED_INSTANCE_LABEL`] or the
    /// annotation [`NODES_ANNOTATION`].
    #[must_use]
    pub fn requests_nodes_tag() -> IndexValue {
        IndexValue { index: "label", value: ORDERED_INSTANCE_LABEL.to_owned() }
    }

    /// Returns the index value of AppWrappers that [wait for
    /// resources](AppWrapper::awaits_resources) and name no instance types.
    #[must_use]
    pub fn insufficient_resources_tag() -> IndexValue {
        IndexValue { index: "waits", value: "resources".to_owned() }
    }

    /// Returns the index value of AppWrappers with this author, as [`AppWrapper::author`] returns
    /// it.
    #[must_use]
    pub fn author_tag(author: &str) -> IndexValue {
        IndexValue { index: "author", value: author.to_owned() }
    }

    /// Returns the index value of AppWrappers that were admitted and wrap an object of this kind.
    #[must_use]
    pub fn admitted_kind_tag(kind: &TypeName) -> IndexValue {
        let TypeName { api_version, kind } = kind;
        IndexValue { index: "admitted-kind", value: format!("{api_version} {kind}") }
    }

    /// Returns its recorded author; `None` where none is recorded.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        self.metadata.annotations.get(AUTHOR_ANNOTATION).map(String::as_str)
    }

    /// Whether it is pending for lack of resources, by the queue's last message about it.
    #[must_use]
    pub fn awaits_resources(&self) -> bool {
        if !self.is_pending() || self.metadata.is_terminating() {
            return false;
        }
        let conditions = self.status.conditions.iter().enumerate();
        let backoffs = conditions.filter(|(_, it)| it.kind == "Backoff");
        // An entry is rewritten in place, so its position alone does not show which is newest.
        let newest = backoffs
            .max_by_key(|(place, it)| (it.last_update_micro_time.as_ref().map(|it| it.0), *place));
        let said = newest.and_then(|(_, it)| it.message.as_deref());
        said.is_some_and(|it| it.contains(INSUFFICIENT_RESOURCES))
    }

    /// The wrapped objects.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.spec.resources.items
    }

    /// Returns what all its pods request.
    #[must_use]
    pub fn demand(&self) -> Demand {
        let mut sum = Demand::default();
        for item in self.items() {
            sum.add(&item.demand);
        }
        sum
    }

    /// Whether its pods claim devices.
    #[must_use]
    pub fn claims_devices(&self) -> bool {
        self.items().iter().any(|it| it.claims_devices)
    }

    /// Returns how many pods must be running or have succeeded; zero for none.
    #[must_use]
    pub fn min_available(&self) -> i64 {
        self.scheduling().map_or(0, |it| it.min_available.max(0))
    }

    /// Returns what happens when too few pods come up in time, if that is set.
    #[must_use]
    pub fn requeuing(&self) -> Option<&Requeuing> {
        self.scheduling()?.requeuing.as_ref()
    }

    /// Returns how many seconds it may run; zero for no limit.
    #[must_use]
    pub fn dispatch_limit_seconds(&self) -> i64 {
        let duration = self.scheduling().and_then(|it| it.dispatch_duration.as_ref());
        duration.map_or(0, |it| it.limit.max(0))
    }

    /// Returns the node labels that its pods need, if they are set.
    #[must_use]
    pub fn scheduling(&self) -> Option<&SchedulingSettings> {
        self.spec.scheduling_spec.as_ref()
    }

    /// Returns when the queue first observed it; its creation time, where that is not written yet.
    #[must_use]
    pub fn first_seen(&self) -> Timestamp {
        let seen = self.status.first_seen.as_ref().map(|it| it.0);
        seen.or(self.metadata.creation_timestamp).unwrap_or(Timestamp::MAX)
    }

    /// Returns its state; `None` before the queue has observed it.
    #[must_use]
    pub fn state(&self) -> Option<&AppWrapperState> {
        self.status.state.as_ref()
    }

    /// Returns the last notable step.
    #[must_use]
    pub fn queue_state(&self) -> Option<&QueueState> {
        self.status.queue_state.as_ref()
    }

    /// Whether it is pending, to be dispatched.
    #[must_use]
    pub fn awaits_dispatch(&self) -> bool {
        self.is_pending() && !self.status.can_run && !self.metadata.is_terminating()
    }

    /// Whether the queue decides about it: it is pending, or new and without a state yet.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.awaits_dispatch()
            || self.is_new() && !self.status.can_run && !self.metadata.is_terminating()
    }

    /// Whether it has no status yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.state().is_none()
    }

    /// Whether it has not been dispatched yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.state() == Some(&AppWrapperState::Pending)
    }

    /// Whether it is in a terminal state.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.state() {
            Some(
                AppWrapperState::Completed | AppWrapperState::Failed | AppWrapperState::Deleted,
            ) => true,
            None
            | Some(
                AppWrapperState::Pending
                | AppWrapperState::Running
                | AppWrapperState::RunningHoldCompletion
                | AppWrapperState::Other(_),
            ) => false,
        }
    }

    /// Returns a reference to it, to record events about.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        ObjectReference::to(&Self::RESOURCE, &self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_from_text_and_from_value() {
        let object = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "spec": {"priority": 3, "priorityslope": 0.5, "resources": {"Items": [], "GenericItems": [
                {"replicas": 1, "completionstatus": "Complete", "generictemplate":
                    {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [
                        {"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]}}},
                {"custompodresources": [{"replicas": 2, "requests": {"cpu": 1}}]},
            ]}},
            "status": {"state": "Pending", "controllerfirsttimestamp": "2026-01-01T00:00:00.000001Z"},
        });
        let text: AppWrapper = serde_json::from_str(&object.to_string()).unwrap();
        let tree = AppWrapper::deserialize(&object).unwrap();
        for it in [text, tree] {
            assert_eq!((it.spec.priority, it.items().len()), (3, 2));
            assert_eq!(it.items()[0].object().unwrap()["kind"], "Pod");
            assert_eq!(it.items()[1].object(), None);
            assert_eq!(it.demand().compat.cpu, 3500);
            assert!(it.awaits_dispatch());
        }
    }
}
