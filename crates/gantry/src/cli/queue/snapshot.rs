//! Reads what the queue decides by, once: from a cluster, or from files.

mod author_access;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context as _;
use gantry_api::decode::{self, Decoded};
use gantry_controller::discovery::ResourceList;
use gantry_queue::app_wrapper::{AppWrapper, TypeName};
use gantry_queue::kind_discovery::{self, ServedKind};
use gantry_queue::queue_report::Visibility;
use gantry_queue::wrapped::WrappedObject;
use gantry_queue::{Dispatch, LiveSettings, Settings};
use gantry_reconcile::{ApiPath, Controller as _, Key, Kind, Resource, Scope, View as _, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::cluster_client::{ClusterClient, ClusterRequestError};
use crate::cli::files::load;
use crate::output::Output;

/// The objects the queue is evaluated with.
pub(in crate::cli) struct Snapshot {
    /// All objects, and the discovered kinds of the items as far as they were looked up.
    pub(in crate::cli) world: World,
    /// How much of what the queue decides by could be read.
    pub(in crate::cli) visibility: Visibility,
}

impl Snapshot {
    /// Reads a cluster. If the user may not list the AppWrappers of all namespaces, reads those of
    /// one.
    pub(in crate::cli) async fn from_cluster(
        cluster: &ClusterClient,
        namespace: Option<&str>,
        settings: &Settings,
        output: &mut Output,
    ) -> anyhow::Result<Self> {
        Self::with_items(cluster, namespace, None, settings, output).await
    }

    /// Reads a cluster like [`Self::from_cluster`], with the objects of one AppWrapper.
    pub(in crate::cli) async fn with_items(
        cluster: &ClusterClient,
        namespace: Option<&str>,
        of: Option<&AppWrapper>,
        settings: &Settings,
        output: &mut Output,
    ) -> anyhow::Result<Self> {
        let kinds = match of {
            Some(wrapper) => discover(cluster, wrapper, output).await?,
            None => BTreeSet::new(),
        };
        let names = of.iter().flat_map(|it| it.items()).filter_map(|it| it.name.clone());
        let world = world(settings, &kinds, names);
        let mut sight = Visibility::Full;
        let wrapped: BTreeSet<&Resource> = namespaced_item_kinds(&kinds).collect();
        let read = world.stores().map(|it| it.resource()).filter(|it| !wrapped.contains(it));
        for resource in read.collect::<Vec<_>>() {
            let Some(objects) = list_readable(cluster, &resource, namespace, output).await? else {
                sight = Visibility::StatusOnly;
                continue;
            };
            fill(&world, &resource, &objects, output);
        }
        let access = settings.user_access;
        if access.is_checked() && sight == Visibility::Full {
            author_access::record_author_access(cluster, &world, access, output).await?;
        }
        if let Some(wrapper) = of {
            for (resource, key) in item_keys(wrapper, &world) {
                match cluster.get(&resource.path(&key)?).await {
                    Ok(object) => fill(&world, &resource, &[object], output),
                    Err(ClusterRequestError::NotFound { .. }) => {}
                    Err(ClusterRequestError::Forbidden { path, .. }) => {
                        output.warning(format_args!(
                            "may not read {path}: it is shown as not created"
                        ));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Self { world, visibility: sight })
    }

    /// Reads files. Every kind that items use is assumed to be served.
    pub(in crate::cli) fn from_files(
        named: &[PathBuf],
        settings: &Settings,
        output: &mut Output,
    ) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        for loaded in load(named, true, decode::Options::default(), output)? {
            match loaded.document.content {
                Decoded::Object(object) => objects.push(object.to_value()?),
                Decoded::Foreign(value) => objects.push(value),
                Decoded::Nodes(_) | Decoded::CapacityClaim(_) | Decoded::Refused => {}
            }
        }
        let mut flat = Vec::new();
        objects.into_iter().for_each(|it| flatten(it, &mut flat));
        let templates = flat.iter().flat_map(|it| {
            let items = it.pointer("/spec/resources/GenericItems").and_then(Value::as_array);
            items.into_iter().flatten().map(|item| &item["generictemplate"])
        });
        let templates: Vec<&Value> = templates.collect();
        let kinds: BTreeSet<Resource> = templates.iter().filter_map(|it| guess(it)).collect();
        let names = templates.iter().map(|it| TypeName::of_object(it));
        let world = world(settings, &kinds, names);
        let shelves: Vec<Resource> = world.stores().map(|it| it.resource()).collect();
        for mut object in flat {
            let is = |it: &&Resource| {
                object["apiVersion"] == it.api_version() && object["kind"] == it.kind.as_ref()
            };
            let Some(resource) = shelves.iter().find(is) else { continue };
            if resource.scope == Scope::Namespaced && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = "default".into();
            }
            fill(&world, resource, &[object], output);
        }
        Ok(Self { world, visibility: Visibility::Full })
    }
}

/// Creates a world without objects, with a store for every kind the queue reads. `served` are the
/// kinds of items that the server has.
fn world(
    settings: &Settings,
    served: &BTreeSet<Resource>,
    named: impl Iterator<Item = TypeName>,
) -> World {
    let kinds: Vec<Kind> = Dispatch::new(LiveSettings::new(*settings)).kinds();
    let wrapped =
        namespaced_item_kinds(served).map(|it| Kind::with_resource::<WrappedObject>(it.clone()));
    let world = World::new(kinds.into_iter().chain(wrapped));
    let facts = world.facts::<ServedKind>();
    for name in named {
        // The result of this discovery applies to every AppWrapper, whenever it was admitted;
        // changes are not followed.
        let _ = facts.record(name, ServedKind::NotServed, Timestamp::MAX);
    }
    kind_discovery::record_served(&world, served.iter().cloned(), Timestamp::MAX);
    world
}

/// The namespaced kinds of items, which are read only for those items.
fn namespaced_item_kinds(served: &BTreeSet<Resource>) -> impl Iterator<Item = &Resource> {
    let namespaced = served.iter().filter(|it| it.scope == Scope::Namespaced);
    namespaced.filter(|it| kind_discovery::always_watched(&TypeName::of(it)).is_none())
}

/// Returns the objects of a list, or the object itself.
fn flatten(object: Value, into: &mut Vec<Value>) {
    match (object["kind"].as_str(), object["items"].as_array()) {
        (Some("List"), Some(items)) => {
            items.iter().for_each(|it| flatten(it.clone(), into));
        }
        (_, _) => into.push(object),
    }
}

/// Lists all objects of a kind; empty if the user may not list them.
async fn list_readable(
    cluster: &ClusterClient,
    resource: &Resource,
    namespace: Option<&str>,
    output: &mut Output,
) -> anyhow::Result<Option<Vec<Value>>> {
    let own = *resource == AppWrapper::RESOURCE;
    match cluster.items(&resource.collection("")?).await {
        Ok(objects) => Ok(Some(objects)),
        Err(error @ ClusterRequestError::NotFound { .. }) if own => Err(error).context(
            "the cluster does not serve AppWrappers; install the CRDs with `gantry crds | kubectl \
             apply --server-side -f -`",
        ),
        Err(ClusterRequestError::NotFound { .. }) => Ok(Some(Vec::new())),
        Err(ClusterRequestError::Forbidden { .. }) if own && namespace.is_some() => {
            let namespace = namespace.unwrap_or_default();
            output.warning(format_args!(
                "may not list AppWrappers of all namespaces: positions are those within namespace \
                 {namespace}"
            ));
            Ok(Some(cluster.items(&resource.collection(namespace)?).await?))
        }
        Err(error @ ClusterRequestError::Forbidden { .. }) if own => {
            Err(error).context("use -n NAMESPACE to list the AppWrappers of one namespace")
        }
        Err(ClusterRequestError::Forbidden { .. }) => {
            output.warning(format_args!(
                "may not read {resource}: the reasons last recorded by the queue are shown, not \
                 the current ones"
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds objects to their store, and warns about those that cannot be decoded.
fn fill(world: &World, resource: &Resource, objects: &[Value], output: &mut Output) {
    let Some(store) = world.single_store_for(resource) else { return };
    for object in objects {
        if let Err(error) = store.observe(&object.to_string()) {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            output.warning(format_args!("{error}: {}", why.unwrap_or_default()));
        }
    }
}

/// Returns the kinds of an AppWrapper's items that the server has.
async fn discover(
    cluster: &ClusterClient,
    wrapper: &AppWrapper,
    output: &mut Output,
) -> anyhow::Result<BTreeSet<Resource>> {
    let mut kinds = BTreeSet::new();
    for object in wrapper.items().iter().filter_map(|it| it.object()) {
        match find_served_resource(cluster, &TypeName::of_object(&object)).await {
            Ok(found) => kinds.extend(found),
            Err(ClusterRequestError::Forbidden { path, .. }) => {
                output
                    .warning(format_args!("may not read {path}: its kinds are treated as unknown"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(kinds)
}

/// Finds the resource of a kind in the server's discovery; `None` if the server does not have the
/// kind, which is reported as such.
async fn find_served_resource(
    cluster: &ClusterClient,
    name: &TypeName,
) -> Result<Option<Resource>, ClusterRequestError> {
    // The value is written by users: an invalid group and version is never served.
    let Ok(path) = ApiPath::version(&name.api_version) else { return Ok(None) };
    let list = match cluster.get(&path).await {
        Ok(list) => list,
        Err(ClusterRequestError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let list = ResourceList::read(&name.api_version, &list);
    let list = list.map_err(|error| cluster.no_response(error.into()))?;
    Ok(list.resource_of(&name.kind).map(|it| it.resource))
}

/// Returns the resource that a kind has by convention.
fn guess(object: &Value) -> Option<Resource> {
    let name = TypeName::of_object(object);
    let plural = format!("{}s", name.kind.to_lowercase());
    let named = !name.api_version.is_empty() && !name.kind.is_empty();
    named.then(|| resource(&name, plural))
}

fn resource(name: &TypeName, plural: String) -> Resource {
    let TypeName { api_version, kind } = name;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Resource {
        group: Cow::Owned(group.to_owned()),
        version: Cow::Owned(version.to_owned()),
        plural: Cow::Owned(plural),
        kind: Cow::Owned(kind.to_string()),
        scope: Scope::Namespaced,
        has_status: true,
    }
}

/// Returns the keys of the objects that the items of an AppWrapper create.
fn item_keys(wrapper: &AppWrapper, world: &World) -> Vec<(Resource, Key)> {
    let items = wrapper.items().iter().enumerate();
    let made = items.filter_map(|(at, item)| {
        let made = gantry_queue::item_objects::build_item(world, wrapper, at, item).ok()?;
        // Pods were already read with all others.
        let is_wrapped = world.store_for::<WrappedObject>(&made.resource).is_some();
        is_wrapped.then_some((made.resource, made.key))
    });
    made.collect()
}
