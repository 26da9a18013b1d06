//! What the queue decides by, read once: from a cluster, or from files.

mod rights;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context as _;
use gantry_api::decode::{self, Decoded};
use gantry_controller::discovery::ResourceList;
use gantry_queue::app_wrapper::{AppWrapper, TypeName};
use gantry_queue::kind_discovery::{self, ServedKind};
use gantry_queue::outlook::Sight;
use gantry_queue::wrapped::Wrapped;
use gantry_queue::{Dispatch, Live, Settings};
use gantry_reconcile::{ApiPath, Controller as _, Key, Kind, Resource, Scope, View as _, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::files::load;
use crate::cli::reach::{AskError, Reached};
use crate::output::Output;

/// What was read.
pub(in crate::cli) struct Snapshot {
    /// All objects, and what is known of the kinds of items as far as they were looked for.
    pub(in crate::cli) world: World,
    /// How much of what the queue decides by is among them.
    pub(in crate::cli) sight: Sight,
}

impl Snapshot {
    /// Reads a cluster. Where somebody may not read the AppWrappers of all namespaces, those of one.
    pub(in crate::cli) async fn of_cluster(
        cluster: &Reached,
        namespace: Option<&str>,
        settings: &Settings,
        output: &mut Output,
    ) -> anyhow::Result<Self> {
        Self::with_items(cluster, namespace, None, settings, output).await
    }

    /// The same, with the objects of one AppWrapper.
    pub(in crate::cli) async fn with_items(
        cluster: &Reached,
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
        let mut sight = Sight::Whole;
        let wrapped: BTreeSet<&Resource> = wrapped(&kinds).collect();
        let read = world.shelves().map(|it| it.resource()).filter(|it| !wrapped.contains(it));
        for resource in read.collect::<Vec<_>>() {
            let Some(objects) = all(cluster, &resource, namespace, output).await? else {
                sight = Sight::Told;
                continue;
            };
            fill(&world, &resource, &objects, output);
        }
        let access = settings.user_access;
        if access.is_checked() && sight == Sight::Whole {
            rights::fill(cluster, &world, access, output).await?;
        }
        if let Some(wrapper) = of {
            for (resource, key) in places(wrapper, &world) {
                match cluster.get(&resource.path(&key)?).await {
                    Ok(object) => fill(&world, &resource, &[object], output),
                    Err(AskError::Absent { .. }) => {}
                    Err(AskError::Forbidden { path, .. }) => {
                        output
                            .warning(format_args!("may not read {path}: it is shown as not made"));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Self { world, sight })
    }

    /// Reads files. What is an item is taken for a kind that every server has.
    pub(in crate::cli) fn of_files(
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
        let shelves: Vec<Resource> = world.shelves().map(|it| it.resource()).collect();
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
        Ok(Self { world, sight: Sight::Whole })
    }
}

/// A world without objects for all that the queue decides by. Of the kinds that items name, the server has these.
fn world(
    settings: &Settings,
    served: &BTreeSet<Resource>,
    named: impl Iterator<Item = TypeName>,
) -> World {
    let kinds: Vec<Kind> = Dispatch::new(Live::new(*settings)).kinds();
    let wrapped = wrapped(served).map(|it| Kind::at::<Wrapped>(it.clone()));
    let world = World::new(kinds.into_iter().chain(wrapped));
    let facts = world.facts::<ServedKind>();
    for name in named {
        // What was asked now counts for every AppWrapper, whenever it was admitted. Nobody follows the changes.
        let _ = facts.record(name, ServedKind::NotServed, Timestamp::MAX);
    }
    kind_discovery::record(&world, served.iter().cloned(), Timestamp::MAX);
    world
}

/// The kinds of items whose objects are in namespaces and are read for them alone.
fn wrapped(served: &BTreeSet<Resource>) -> impl Iterator<Item = &Resource> {
    let namespaced = served.iter().filter(|it| it.scope == Scope::Namespaced);
    namespaced.filter(|it| kind_discovery::followed_anyway(&TypeName::of(it)).is_none())
}

/// The objects of a list, or the object.
fn flatten(object: Value, into: &mut Vec<Value>) {
    match (object["kind"].as_str(), object["items"].as_array()) {
        (Some("List"), Some(items)) => {
            items.iter().for_each(|it| flatten(it.clone(), into));
        }
        (_, _) => into.push(object),
    }
}

/// All objects of a kind; nothing where whoever asks may not see them.
async fn all(
    cluster: &Reached,
    resource: &Resource,
    namespace: Option<&str>,
    output: &mut Output,
) -> anyhow::Result<Option<Vec<Value>>> {
    let own = *resource == AppWrapper::RESOURCE;
    match cluster.items(&resource.collection("")?).await {
        Ok(objects) => Ok(Some(objects)),
        Err(error @ AskError::Absent { .. }) if own => Err(error).context(
            "the cluster has no AppWrappers; install the kinds with `gantry crds | kubectl apply \
             --server-side -f -`",
        ),
        Err(AskError::Absent { .. }) => Ok(Some(Vec::new())),
        Err(AskError::Forbidden { .. }) if own && namespace.is_some() => {
            let namespace = namespace.unwrap_or_default();
            output.warning(format_args!(
                "may not read AppWrappers of all namespaces: places are those among the ones of \
                 {namespace}"
            ));
            Ok(Some(cluster.items(&resource.collection(namespace)?).await?))
        }
        Err(error @ AskError::Forbidden { .. }) if own => {
            Err(error).context("say -n NAMESPACE to see those of one namespace")
        }
        Err(AskError::Forbidden { .. }) => {
            output.warning(format_args!(
                "may not read {resource}: what the queue said last is shown, not what it would say \
                 now"
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts objects on their shelf, and says which cannot be read.
fn fill(world: &World, resource: &Resource, objects: &[Value], output: &mut Output) {
    let Some(shelf) = world.find(resource) else { return };
    for object in objects {
        if let Err(error) = shelf.saw(&object.to_string()) {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            output.warning(format_args!("{error}: {}", why.unwrap_or_default()));
        }
    }
}

/// The kinds of the items of an AppWrapper that the server has.
async fn discover(
    cluster: &Reached,
    wrapper: &AppWrapper,
    output: &mut Output,
) -> anyhow::Result<BTreeSet<Resource>> {
    let mut kinds = BTreeSet::new();
    for object in wrapper.items().iter().filter_map(|it| it.object()) {
        match served(cluster, &TypeName::of_object(&object)).await {
            Ok(found) => kinds.extend(found),
            Err(AskError::Forbidden { path, .. }) => {
                output.warning(format_args!("may not read {path}: its kinds count as unknown"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(kinds)
}

/// How a server addresses a kind; nothing where it does not have it, which is told as what it is.
async fn served(cluster: &Reached, name: &TypeName) -> Result<Option<Resource>, AskError> {
    // Users write it: what is no group and version is served by nobody.
    let Ok(path) = ApiPath::version(&name.api_version) else { return Ok(None) };
    let list = match cluster.get(&path).await {
        Ok(list) => list,
        Err(AskError::Absent { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let list = ResourceList::read(&name.api_version, &list);
    let list = list.map_err(|error| cluster.no_answer(error.into()))?;
    Ok(list.resource_of(&name.kind).map(|it| it.resource))
}

/// The kind of an object as every server may have it.
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
        status: true,
    }
}

/// Where the items of an AppWrapper are, or would be.
fn places(wrapper: &AppWrapper, world: &World) -> Vec<(Resource, Key)> {
    let items = wrapper.items().iter().enumerate();
    let made = items.filter_map(|(at, item)| {
        let made = gantry_queue::dispatch::make(world, wrapper, at, item).ok()?;
        // Pods were read with the others.
        let is_wrapped = world.shelf_at::<Wrapped>(&made.resource).is_some();
        is_wrapped.then_some((made.resource, made.key))
    });
    made.collect()
}
