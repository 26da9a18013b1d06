//! What holds after every move, and what a history must not show.

use std::collections::{BTreeMap, BTreeSet};

use gantry_harness::{Invariant, Server};
use gantry_reconcile::View as _;
use serde_json::Value;

use super::cluster::{invariant, jobs, text};
use super::runners::RETRIED_BY_USER;
use crate::labels::{
    FINALIZER, HASH_ANNOTATION, IMAGE_ANNOTATION, ROLE_LABEL, SKIP_UNLOAD_ANNOTATION,
};
use crate::view::{DaemonSet, Job, Module, ModulePod};

/// The invariants of all scenarios.
pub(super) fn always() -> Vec<Invariant<'static>> {
    vec![
        invariant("one active Job for each image", one_active_job),
        invariant("nothing is created for a Module without finalizer", finalizer_first),
        invariant("device plugins are gone before their driver", plugin_before_driver),
    ]
}

fn one_active_job(server: &Server) -> Result<(), String> {
    let mut active = BTreeSet::new();
    for (_, image, state) in jobs(server) {
        if state == "active" && !active.insert(image.clone()) {
            return Err(format!("two Jobs push {image}"));
        }
    }
    Ok(())
}

fn finalizer_first(server: &Server) -> Result<(), String> {
    let modules = server.list(&Module::RESOURCE);
    let unprotected = modules.iter().filter(|it| {
        let finalizers = it["metadata"]["finalizers"].as_array();
        finalizers.is_none_or(|it| it.iter().all(|it| it != FINALIZER))
    });
    let unprotected: BTreeSet<&str> = unprotected.map(|it| text(it, "/metadata/uid")).collect();
    let sets = server.list(&DaemonSet::RESOURCE);
    for object in sets.into_iter().chain(server.list(&Job::RESOURCE)) {
        let owner = text(object, "/metadata/ownerReferences/0/uid");
        if unprotected.contains(owner) {
            return Err(format!("{} exists", text(object, "/metadata/name")));
        }
    }
    Ok(())
}

/// While a Module is deleted, its drivers stay until its device plugins and their pods are gone.
fn plugin_before_driver(server: &Server) -> Result<(), String> {
    let is_terminating = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    let modules = server.list(&Module::RESOURCE);
    let sets = server.list(&DaemonSet::RESOURCE);
    let pods = server.list(&ModulePod::RESOURCE);
    let skips = |it: &Value| it["metadata"]["annotations"].get(SKIP_UNLOAD_ANNOTATION).is_some();
    for module in modules.into_iter().filter(|it| is_terminating(it) && !skips(it)) {
        let uid = text(module, "/metadata/uid");
        let of_part = |part: &str| {
            sets.iter()
                .filter(|it| text(it, "/metadata/ownerReferences/0/uid") == uid)
                .filter(|it| it["metadata"]["labels"][ROLE_LABEL] == part)
                .copied()
                .collect::<Vec<&Value>>()
        };
        let plugins = of_part("device-plugin");
        let owners: BTreeSet<&str> = plugins.iter().map(|it| text(it, "/metadata/uid")).collect();
        let mut of_plugins =
            pods.iter().filter(|it| owners.contains(text(it, "/metadata/ownerReferences/0/uid")));
        let drivers = of_part("driver-container");
        let going = drivers.iter().any(|it| is_terminating(it));
        if going && (!plugins.is_empty() || of_plugins.next().is_some()) {
            return Err("a driver is deleted while its device plugin runs".to_owned());
        }
    }
    Ok(())
}

/// Every state that objects of a kind had, and whether it was the last.
fn history(server: &Server, resource: &gantry_reconcile::Resource) -> Vec<(Value, bool)> {
    let states = server.history(resource);
    states.map(|(text, is_last)| (serde_json::from_str(text).unwrap(), is_last)).collect()
}

/// Asserts that no Job was created again, with the same inputs, after it had failed, unless a user
/// deleted it for that.
pub(super) fn assert_failures_are_not_repeated(server: &Server) {
    let mut failed: BTreeMap<(String, String), String> = BTreeMap::new();
    for (job, _) in history(server, &Job::RESOURCE) {
        let annotation = |name: &str| {
            job["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
        };
        let made_from = (annotation(IMAGE_ANNOTATION), annotation(HASH_ANNOTATION));
        let uid = text(&job, "/metadata/uid").to_owned();
        if job["metadata"]["annotations"][RETRIED_BY_USER].is_string() {
            failed.remove(&made_from);
        } else if job["status"]["failed"].is_number() {
            failed.insert(made_from, uid);
        } else if let Some(before) = failed.get(&made_from) {
            assert_eq!(*before, uid, "{} was tried again", made_from.0);
        }
    }
}

/// How many Jobs of a type there ever were.
pub(super) fn jobs_created(server: &Server, job_type: &str) -> usize {
    let states = history(server, &Job::RESOURCE);
    let of_type = states
        .iter()
        .filter(|(job, _)| text(job, "/metadata/labels/ooto.sigs.k8s.io~1job-type") == job_type);
    of_type.map(|(job, _)| text(job, "/metadata/uid")).collect::<BTreeSet<_>>().len()
}

/// How many DaemonSets were ever deleted.
pub(super) fn daemon_sets_deleted(server: &Server) -> usize {
    let states = history(server, &DaemonSet::RESOURCE);
    states
        .iter()
        .filter(|(set, is_last)| *is_last || set["metadata"]["deletionTimestamp"].is_string())
        .map(|(set, _)| text(set, "/metadata/uid"))
        .collect::<BTreeSet<_>>()
        .len()
}
