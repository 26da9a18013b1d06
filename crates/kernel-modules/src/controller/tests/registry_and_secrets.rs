//! Registries without space, and Secrets that change, at every moment of a build and a signature.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use gantry_harness::test_world::assert_proof;
use gantry_harness::{Scenario, Server, UserAction};
use gantry_reconcile::{Controller, Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL8, NAMESPACE, SECRETS, TestControllers, container, jobs, node, secret, set_outside, shape,
    signed, stored,
};
use super::images::{created, running, target, with};
use super::invariants::{assert_failures_are_not_repeated, daemon_sets_deleted};
use super::proofs::{SECRETS_NOTICED, action, drivers, prove, prove_crashes};
use super::runners::{IMAGES, RetryingUser};
use crate::job::image_hash;
use crate::labels::JOB_TYPE_LABEL;
use crate::settings::Settings;
use crate::view::Job;

/// A Module that is built and signed, with credentials, as `rebuild` says.
fn module(rebuild: &str) -> Value {
    let mut module = signed("hello");
    module["spec"]["driverContainer"]["imageRepoSecrets"] = json!([{"name": "repo"}]);
    container(&mut module["spec"])["build"]["rebuild"] = json!(rebuild);
    module
}

fn objects(rebuild: &str) -> Vec<(Resource, Value)> {
    let secrets = ["key", "cert", "repo"].map(secret);
    [node("a", EL8), stored(module(rebuild))].into_iter().chain(secrets).collect()
}

fn rotate(server: &mut Server, name: &str, data: &str) {
    server.edit(&SECRETS, &Key::new(NAMESPACE, name), |it| it["data"] = json!(data));
}

/// The inputs of the image that nodes run.
fn final_inputs(server: &Server) -> Value {
    let image = server.get(&IMAGES, &Key::cluster(&image_hash(&target())));
    image.map(|it| it["inputHash"].clone()).unwrap_or_default()
}

/// Moves of the user that change nothing: those that follow happen later.
fn after(idle_moves: usize, then: Vec<UserAction>) -> Vec<UserAction> {
    let idle = std::iter::repeat_with(|| action(|_| {})).take(idle_moves);
    idle.chain(then).collect()
}

/// The types of the Jobs that were active when an action happened.
type ActiveJobs = Rc<RefCell<BTreeSet<String>>>;

fn observe(active: &ActiveJobs, server: &Server) {
    for (job_type, _, state) in jobs(server) {
        if state == "active" {
            active.borrow_mut().insert(job_type);
        }
    }
}

/// An action on a Secret that records during which Jobs it happened.
fn recorded(
    active: &ActiveJobs,
    name: &'static str,
    act: fn(&mut Server, &'static str),
) -> UserAction {
    let active = Rc::clone(active);
    action(move |server| {
        observe(&active, server);
        act(server, name);
    })
}

fn delete(server: &mut Server, name: &'static str) {
    server.delete(&SECRETS, &Key::new(NAMESPACE, name), Propagation::Background);
}

/// Creates a Secret again, with other content.
fn recreate(server: &mut Server, name: &'static str) {
    let (resource, mut object) = secret(name);
    object["data"] = json!("2");
    server.create(&resource, object);
}

/// Where in a run the action happens, in moves of the user.
const MOMENTS: [usize; 6] = [0, 8, 16, 24, 34, 46];

/// What is proven of every end: the Module is loaded, and nothing is left to do.
fn ended_well(server: &Server) {
    assert_eq!((drivers(server), jobs(server)), (1, vec![]));
    assert_eq!(daemon_sets_deleted(server), 0);
    assert_failures_are_not_repeated(server);
}

#[test]
fn kms_63_secrets_are_rotated_at_any_moment_of_a_build_and_a_signature() {
    let active = ActiveJobs::default();
    for name in ["key", "cert", "repo"] {
        for moment in MOMENTS {
            let rotated = recorded(&active, name, |server, name| rotate(server, name, "2"));
            prove(objects("never"), after(moment, vec![rotated]), 1, ended_well);
        }
    }
    let active = active.borrow();
    assert_eq!(active.iter().collect::<Vec<_>>(), ["build", "sign"], "both were met");
}

#[test]
fn kms_63_secrets_are_deleted_and_recreated_at_any_moment() {
    let active = ActiveJobs::default();
    for name in ["key", "cert", "repo"] {
        for moment in MOMENTS {
            let deleted = recorded(&active, name, delete);
            let script = after(moment, vec![deleted, action(move |server| recreate(server, name))]);
            prove(objects("never"), script, 1, ended_well);
        }
    }
    let active = active.borrow();
    assert_eq!(active.iter().collect::<Vec<_>>(), ["build", "sign"], "both were met");
}

/// With `rebuild: onChange` every order ends with the image that the last key and certificate
/// signed.
#[test]
fn kms_63_an_image_is_signed_by_the_last_key_whenever_it_changes() {
    let controllers = TestControllers::new(Settings::default());
    let all = controllers.all();
    for moment in MOMENTS {
        let mut scenario = controllers.scenario(&all, objects("onChange"));
        scenario.script = after(
            moment,
            vec![
                action(|server| rotate(server, "key", "2")),
                action(|server| delete(server, "cert")),
            ],
        );
        scenario.script.push(action(|server| recreate(server, "cert")));
        let proof = scenario.prove_faults(0..2, |server| {
            ended_well(server);
            let mut shape = shape(server);
            shape["inputs"] = final_inputs(server);
            assert!(shape["inputs"].is_string());
            shape
        });
        assert_proof(proof);
    }
}

#[test]
fn kms_63_a_rotation_is_acted_on_whenever_the_process_ends() {
    let script = || vec![action(|server| rotate(server, "key", "2"))];
    prove_crashes(objects("onChange"), script(), SECRETS_NOTICED, ended_well);
    let script =
        vec![action(|server| delete(server, "cert")), action(|server| recreate(server, "cert"))];
    prove_crashes(objects("never"), script, SECRETS_NOTICED, ended_well);
}

/// While a registry is full, Jobs fail and are not repeated; when it has space and a user deletes
/// them, they succeed.
#[test]
fn kms_41_a_full_registry_is_waited_for_at_any_moment() {
    let controllers = TestControllers::new(Settings::default());
    let modules = controllers.all();
    let all: Vec<&dyn Controller> = modules.into_iter().chain([&RetryingUser as _]).collect();
    let failed = Rc::new(RefCell::new(BTreeSet::new()));
    for moment in MOMENTS {
        let mut scenario: Scenario<'_> = controllers.scenario(&all, objects("never"));
        // The longer the registry is full, the more Jobs fail.
        let full = action(|server| set_outside(server, "space", "full"));
        let observed = Rc::clone(&failed);
        let freed = action(move |server| {
            for job in server.list(&Job::RESOURCE) {
                if job["status"]["failed"].is_number() {
                    observed
                        .borrow_mut()
                        .insert(job["metadata"]["labels"][JOB_TYPE_LABEL].to_string());
                }
            }
            set_outside(server, "space", "");
        });
        let tail = after(60, vec![freed]);
        scenario.script = after(moment, std::iter::once(full).chain(tail).collect());
        let proof = scenario.prove_faults(0..2, |server| {
            ended_well(server);
            shape(server)
        });
        assert_proof(proof);
    }
    let failed = failed.borrow();
    assert_eq!(failed.iter().collect::<Vec<_>>(), ["\"build\"", "\"sign\""], "both failed");
}

#[test]
fn kms_41_a_full_registry_is_reported_and_nothing_is_repeated_before_it_has_space() {
    let secrets = ["key", "cert", "repo"].map(secret);
    with(Settings::default(), secrets.into_iter().collect(), |it| {
        set_outside(it.run.server(), "space", "full");
        it.act(|server| {
            let (resource, object) = stored(module("never"));
            server.create(&resource, object);
        });
        it.advance(7200);
        assert_eq!(created(it.run.server()), [1, 0]);
        assert!(it.holds("BuildFailed"), "{:?}", it.held());
        // Space alone repeats nothing: the failed Job is deleted, or the Module changed.
        set_outside(it.run.server(), "space", "");
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 0]);
        let failed = it.run.server().list(&Job::RESOURCE)[0]["metadata"]["name"].clone();
        let key = Key::new(NAMESPACE, failed.as_str().unwrap());
        it.act(|server| server.delete(&Job::RESOURCE, &key, Propagation::Background));
        it.advance(60);
        assert_eq!((created(it.run.server()), running(it.run.server())), ([2, 1], vec![target()]));
        assert_eq!((jobs(it.run.server()), daemon_sets_deleted(it.run.server())), (vec![], 0));
    });
}

#[test]
fn kms_63_another_key_signs_an_image_again_and_builds_nothing() {
    let secrets = || ["key", "cert", "repo"].map(secret).into_iter();
    let objects: Vec<_> = secrets().chain([stored(module("onChange"))]).collect();
    with(Settings::default(), objects, |it| {
        it.advance(60);
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 1], vec![target()]));
        let before = final_inputs(it.run.server());
        it.act(|server| rotate(server, "key", "2"));
        it.advance(60);
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 2], vec![target()]));
        assert_ne!(final_inputs(it.run.server()), before);
        assert_eq!((it.held(), jobs(it.run.server())), (vec![], vec![]));
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 2], "once");
        assert_eq!(daemon_sets_deleted(it.run.server()), 0);
    });
}

#[test]
fn kms_62_an_image_is_signed_without_a_build() {
    let prebuilt = "quay.io/vendor/hello-unsigned:1";
    let mut module = signed("hello");
    let fields = container(&mut module["spec"]);
    fields.as_object_mut().unwrap().shift_remove("build");
    fields["sign"]["unsignedImage"] = json!({"name": prebuilt});
    let objects: Vec<_> = ["key", "cert"].map(secret).into_iter().chain([stored(module)]).collect();
    with(Settings::default(), objects, |it| {
        it.advance(60);
        let server = it.run.server();
        assert_eq!((created(server), running(server)), ([0, 1], vec![target()]));
        assert_eq!(jobs(server), []);
        let (job, _) = server.history(&Job::RESOURCE).next().unwrap();
        let job: Value = serde_json::from_str(job).unwrap();
        let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
        let pairs: Vec<&str> =
            arguments.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let value = |option: &str| {
            let at = pairs.iter().position(|it| *it == option).unwrap();
            pairs[at + 1].to_owned()
        };
        assert_eq!(value("--unsigned-image"), prebuilt);
        assert_eq!(value("--signed-image"), target());
        it.advance(3600);
        assert_eq!(created(it.run.server()), [0, 1], "nothing is repeated");
    });
}
