//! AppWrappers as all read them who decide about them: what is queued, and what nodes are bought for.

use gantry_api::queue::{
    AppWrapperState, AppWrapperStatus, PodResources, QueueState, Requeuing, SchedulingSettings,
};
use gantry_reconcile::world::Tag;
use gantry_reconcile::{Meta, Reference, Resource, View};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::amounts::{Amounts, Rest};
use crate::demand::{Demand, one};
use crate::gang;
use crate::privilege::Privilege;

/// The label that names the instance types of a job.
pub const ORDERED_INSTANCE: &str = "orderedinstance";
/// The annotation that says which nodes were found to make a job fit that names no types: `type=2`.
pub const NODES: &str = "instascale.codeflare.dev/nodes";
/// The annotation that says the same to people, and why nodes of other types would not.
pub const SHAPES: &str = "instascale.codeflare.dev/shapes";

/// The annotation that says who an AppWrapper is made for: the user of the API server who last wrote its
/// items, in JSON. The queue's webhook writes it, and nobody else can.
pub const AUTHOR: &str = "workload.codeflare.dev/gantry-author";

/// What the queue says of a job for which there is no room. It says other things of one that has no
/// quota, and of one whose pods did not come up: more nodes would help neither.
const NO_ROOM: &str = "Insufficient resources";

/// An AppWrapper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AppWrapper {
    /// Metadata.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: Spec,
    /// Where it stands.
    pub status: AppWrapperStatus,
}

impl View for AppWrapper {
    const RESOURCE: Resource =
        Resource::namespaced("workload.codeflare.dev", "v1beta1", "appwrappers", "AppWrapper");

    fn meta(&self) -> &Meta {
        &self.metadata
    }

    /// Most jobs do not ask for nodes: those that do are found without a search, and so are those for
    /// which there is no room and that do not say which nodes would help. What an author may do concerns
    /// all that it made, and whether the server has a kind concerns those that were admitted with it.
    fn tags(&self) -> Vec<Tag> {
        let Meta { labels, annotations, .. } = &self.metadata;
        let named = labels.contains_key(ORDERED_INSTANCE);
        let asks = named || annotations.contains_key(NODES);
        let short = !named && self.waits() && self.waits_for_room();
        let asks = asks.then(Self::labelled);
        let author = self.author().map(Self::made_by);
        let mut tags: Vec<Tag> =
            asks.into_iter().chain(short.then(Self::short_of_room)).chain(author).collect();
        if self.status.can_run {
            let mut kinds: Vec<&TypeName> =
                self.items().iter().filter_map(|it| it.name.as_ref()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            tags.extend(kinds.into_iter().map(Self::admitted_with));
        }
        tags
    }
}

/// What is wanted of an AppWrapper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Larger goes first.
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

/// One wrapped object. Its text is kept as it is: it is read when it is created, and the demand of
/// its pods was counted when it came.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawItem")]
pub struct Item {
    template: Option<Box<str>>,
    /// Its kind; nothing where it has no template.
    pub name: Option<TypeName>,
    /// Condition types of the object that mean it has finished, as the user wrote them.
    pub completion: String,
    /// How many pods each entry of `custompodresources` declares.
    pub replicas: Box<[i64]>,
    /// What each of those pods asks for, entry by entry.
    pub declared: Box<[Amounts]>,
    /// Whether pods of it claim devices.
    pub claims_devices: bool,
    /// What its pods ask for.
    pub demand: Demand,
    /// Whether that was declared, and not found in the object.
    pub is_declared: bool,
    /// What its author must be allowed to do beside creating it.
    pub privilege: Option<Privilege>,
}

/// How objects name their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeName {
    /// Group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
}

impl TypeName {
    /// What objects of a kind say.
    #[must_use]
    pub fn of(resource: &Resource) -> Self {
        Self { api_version: resource.api_version().into(), kind: resource.kind.as_ref().into() }
    }

    /// What an object says.
    #[must_use]
    pub fn of_object(object: &Value) -> Self {
        let text = |name: &str| object[name].as_str().unwrap_or_default().into();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }
}

/// An item as the server has it.
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
        let object: Option<Value> = template.as_deref().and_then(|it| read(it).ok());
        Self {
            demand: Demand::of(&custompodresources, object.as_ref()),
            is_declared: !custompodresources.is_empty(),
            completion: completionstatus.unwrap_or_default(),
            name: object.as_ref().map(TypeName::of_object),
            replicas: custompodresources.iter().map(|it| it.replicas).collect(),
            declared: custompodresources.iter().map(|it| one(it, Rest::Counted)).collect(),
            claims_devices: object.as_ref().is_some_and(gang::claims_devices),
            privilege: object.as_ref().and_then(Privilege::of),
            template,
        }
    }
}

/// Nobody could make an object of a text that is none; the server would not have taken it.
fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

impl Item {
    /// The object to create, as the user wrote it; nothing where there is none.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        self.template.as_deref().and_then(|it| read(it).ok()).filter(Value::is_object)
    }
}

impl AppWrapper {
    /// What jobs with the label [`ORDERED_INSTANCE`] or the annotation [`NODES`] are filed under.
    #[must_use]
    pub fn labelled() -> Tag {
        Tag { index: "label", value: ORDERED_INSTANCE.to_owned() }
    }

    /// What jobs are filed under that [wait](AppWrapper::waits) for want of resources and name no types.
    #[must_use]
    pub fn short_of_room() -> Tag {
        Tag { index: "waits", value: "room".to_owned() }
    }

    /// What jobs are filed under that have this author, as [`AppWrapper::author`] has it.
    #[must_use]
    pub fn made_by(author: &str) -> Tag {
        Tag { index: "author", value: author.to_owned() }
    }

    /// What jobs are filed under that were admitted and wrap an object of this kind.
    #[must_use]
    pub fn admitted_with(kind: &TypeName) -> Tag {
        let TypeName { api_version, kind } = kind;
        Tag { index: "admitted-kind", value: format!("{api_version} {kind}") }
    }

    /// Who it is made for, as recorded; nothing where nobody is.
    #[must_use]
    pub fn author(&self) -> Option<&str> {
        self.metadata.annotations.get(AUTHOR).map(String::as_str)
    }

    /// Whether it waits for want of resources, by what the queue said about it last.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        if !self.is_pending() || self.metadata.is_going() {
            return false;
        }
        let conditions = self.status.conditions.iter().enumerate();
        let backoffs = conditions.filter(|(_, it)| it.kind == "Backoff");
        // An entry is written again in its old place, so the place alone does not tell which is newest.
        let newest = backoffs
            .max_by_key(|(place, it)| (it.last_update_micro_time.as_ref().map(|it| it.0), *place));
        let said = newest.and_then(|(_, it)| it.message.as_deref());
        said.is_some_and(|it| it.contains(NO_ROOM))
    }

    /// The wrapped objects.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.spec.resources.items
    }

    /// What all its pods ask for.
    #[must_use]
    pub fn demand(&self) -> Demand {
        let mut sum = Demand::default();
        for item in self.items() {
            sum.add(&item.demand);
        }
        sum
    }

    /// Whether pods of it claim devices.
    #[must_use]
    pub fn claims_devices(&self) -> bool {
        self.items().iter().any(|it| it.claims_devices)
    }

    /// How many pods must be running or have succeeded; zero for none.
    #[must_use]
    pub fn min_available(&self) -> i64 {
        self.scheduling().map_or(0, |it| it.min_available.max(0))
    }

    /// What happens when too few pods come up in time, as far as that is said.
    #[must_use]
    pub fn requeuing(&self) -> Option<&Requeuing> {
        self.scheduling()?.requeuing.as_ref()
    }

    /// How many seconds it may run; zero for without end.
    #[must_use]
    pub fn limit(&self) -> i64 {
        let duration = self.scheduling().and_then(|it| it.dispatch_duration.as_ref());
        duration.map_or(0, |it| it.limit.max(0))
    }

    /// Node labels that its pods need, as far as that is said.
    #[must_use]
    pub fn scheduling(&self) -> Option<&SchedulingSettings> {
        self.spec.scheduling_spec.as_ref()
    }

    /// When the queue saw it first; when it was made, where that is not written yet.
    #[must_use]
    pub fn first_seen(&self) -> Timestamp {
        let seen = self.status.first_seen.as_ref().map(|it| it.0);
        seen.or(self.metadata.creation_timestamp).unwrap_or(Timestamp::MAX)
    }

    /// Where it stands; `None` before the queue has seen it.
    #[must_use]
    pub fn state(&self) -> Option<&AppWrapperState> {
        self.status.state.as_ref()
    }

    /// The last notable step.
    #[must_use]
    pub fn step(&self) -> Option<&QueueState> {
        self.status.queue_state.as_ref()
    }

    /// Whether it waits to be dispatched.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.is_pending() && !self.status.can_run && !self.metadata.is_going()
    }

    /// Whether the queue decides about it: it waits, or came and was not told so yet.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.waits() || self.is_new() && !self.status.can_run && !self.metadata.is_going()
    }

    /// Whether nothing was ever said about it.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.state().is_none()
    }

    /// Whether it has not been started yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.state() == Some(&AppWrapperState::Pending)
    }

    /// Whether it is in a state that it never leaves.
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

    /// Itself, to say something about.
    #[must_use]
    pub fn about(&self) -> Reference {
        Reference::to(&Self::RESOURCE, &self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_is_read_from_text_and_from_a_tree() {
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
            assert!(it.waits());
        }
    }
}
