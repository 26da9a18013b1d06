//! Images that are built and signed.

use gantry_harness::{Scenario, Server};
use gantry_reconcile::{Key, Propagation, Resource, View as _};
use serde_json::{Value, json};

use super::cluster::{
    EL8, NAMESPACE, SECRETS, Simulation, TestControllers, built, container, daemon_sets,
    edit_module, for_any_kernel, image, jobs, node, secret, set_outside, signed, stored, text,
};
use super::invariants::{assert_failures_are_not_repeated, daemon_sets_deleted, jobs_created};
use super::runners::IMAGES;
use crate::job::{JobType, image_hash, job_name};
use crate::settings::Settings;
use crate::view::{DockerfileMap, Job, Module, ModulePod};

const DRIVER: &str = "driver-container";

/// Runs a test in a cluster with one node and these objects.
pub(super) fn with(
    settings: Settings,
    objects: Vec<(Resource, Value)>,
    test: impl FnOnce(&mut Simulation<'_>),
) {
    let controllers = TestControllers::new(settings);
    let all = controllers.all();
    let node = std::iter::once(node("a", EL8));
    let scenario: Scenario<'_> = controllers.scenario(&all, node.chain(objects).collect());
    test(&mut Simulation::new(&scenario));
}

/// The image of a Module called `hello` for the kernel of the node.
pub(super) fn target() -> String {
    format!("quay.io/vendor/hello:{EL8}")
}

fn unsigned() -> String {
    format!("{}_drivers_hello_unsigned", target())
}

pub(super) fn keys() -> [(Resource, Value); 2] {
    [secret("key"), secret("cert")]
}

fn has_image(server: &Server, name: &str) -> bool {
    server.get(&IMAGES, &Key::cluster(&image_hash(name))).is_some()
}

pub(super) fn created(server: &Server) -> [usize; 2] {
    [jobs_created(server, "build"), jobs_created(server, "sign")]
}

pub(super) fn running(server: &Server) -> Vec<String> {
    daemon_sets(server, DRIVER).into_iter().map(|(_, image)| image).collect()
}

#[test]
fn kms_38_an_image_that_exists_is_not_built() {
    with(Settings::default(), vec![stored(built("hello")), image(&target())], |it| {
        assert_eq!(created(it.run.server()), [0, 0]);
        assert_eq!(running(it.run.server()), [target()]);
        assert_eq!(it.held(), Vec::<String>::new(), "it has no label, and is left alone");
    });
    let objects: Vec<_> =
        keys().into_iter().chain([stored(signed("hello")), image(&target())]).collect();
    with(Settings::default(), objects, |it| {
        assert_eq!(created(it.run.server()), [0, 0]);
        assert_eq!(running(it.run.server()), [target()]);
    });
    // Only the unsigned one is there.
    let objects: Vec<_> =
        keys().into_iter().chain([stored(signed("hello")), image(&unsigned())]).collect();
    with(Settings::default(), objects, |it| {
        assert_eq!(created(it.run.server()), [0, 1]);
        assert_eq!(running(it.run.server()), [target()]);
    });
}

#[test]
fn kms_40_after_success_there_is_a_daemon_set_and_no_job() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        let reasons = it.event_reasons();
        let expected =
            ["BuildCreated", "BuildSucceeded", "DaemonSetCreated", "ImageReady", "ModuleLoaded"];
        for reason in expected {
            assert!(reasons.contains(&reason.to_owned()), "{reasons:?} lack {reason}");
        }
        let server = it.run.server();
        assert_eq!((created(server), jobs(server)), ([1, 0], vec![]));
        assert_eq!(running(server), [target()]);
        assert_eq!(server.list(&DockerfileMap::RESOURCE).len(), 0, "they go with their Jobs");
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 0], "nothing is repeated");
    });
    // The registry is asked as soon as a Job ends, not when it would be asked anyway.
    let day = std::time::Duration::from_secs(86_400);
    let settings = Settings { image_missing_refresh: day, ..Settings::default() };
    with(settings, vec![stored(built("hello"))], |it| {
        assert_eq!((jobs(it.run.server()), running(it.run.server())), (vec![], vec![target()]));
    });
    let mut settings = Settings::default();
    settings.jobs.collection_delay = std::time::Duration::from_secs(600);
    with(settings, vec![stored(built("hello"))], |it| {
        assert_eq!(running(it.run.server()), [target()]);
        it.advance(500);
        assert_eq!(jobs(it.run.server()), [("build".to_owned(), target(), "succeeded")]);
        it.advance(100);
        assert_eq!(jobs(it.run.server()), []);
    });
}

/// A pod of a Job whose container has failed with these words.
fn failed_pod(server: &Server, job: &str, words: &str) -> Value {
    let job = server.get(&Job::RESOURCE, &Key::new(NAMESPACE, job)).unwrap();
    json!({
        "metadata": {
            "name": format!("{}-x", text(job, "/metadata/name")),
            "namespace": NAMESPACE,
            "labels": job["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"],
                "uid": job["metadata"]["uid"], "controller": true,
            }],
        },
        "spec": {"nodeName": "a"},
        "status": {"phase": "Failed", "containerStatuses": [{
            "name": "build", "state": {"terminated": {"exitCode": 6, "message": words}},
        }]},
    })
}

#[test]
fn kms_41_a_failure_is_kept_reported_and_not_repeated() {
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        let failed = ("build".to_owned(), target(), "failed");
        assert_eq!(jobs(it.run.server()), std::slice::from_ref(&failed));
        assert!(it.event_reasons().contains(&"BuildFailed".to_owned()));
        let held = it.held();
        assert!(
            held[0].contains("BackoffLimitExceeded") && held[0].contains("kubectl logs"),
            "{held:?}"
        );
        // Its pod says more than the Job.
        let name = job_name(JobType::Build, &target());
        it.act(|server| {
            let pod = failed_pod(server, &name, "STEP 1\nerror: no file hello.c\n");
            let (key, status) =
                (Key::new(NAMESPACE, text(&pod, "/metadata/name")), pod["status"].clone());
            server.create(&ModulePod::RESOURCE, pod);
            server.edit(&ModulePod::RESOURCE, &key, |it| it["status"] = status);
        });
        let held = it.held();
        assert!(
            held[0].contains(&format!(
                "Job {name} failed: its last words: \"STEP 1 error: no file hello.c\"; see"
            )),
            "{held:?}"
        );
        it.run.restart();
        it.advance(7200);
        assert_eq!((created(it.run.server()), jobs(it.run.server())), ([1, 0], vec![failed]));
        assert_eq!(running(it.run.server()), Vec::<String>::new());
        assert_failures_are_not_repeated(it.run.server());
        // A user deletes the Job to try again.
        set_outside(it.run.server(), "build", "succeed");
        it.act(|server| {
            server.delete(&Job::RESOURCE, &Key::new(NAMESPACE, &name), Propagation::Background);
        });
        assert_eq!((created(it.run.server()), running(it.run.server())), ([2, 0], vec![target()]));
    });
}

#[test]
fn kms_42_another_dockerfile_or_argument_replaces_the_job() {
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["build"]["dockerfile"] = json!("FROM b");
            });
        });
        assert_eq!(created(it.run.server()), [2, 0], "another Dockerfile");
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["build"]["buildArgs"] = json!([{"name": "A", "value": "1"}]);
            });
        });
        assert_eq!(created(it.run.server()), [3, 0], "another argument");
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                spec["devicePlugin"]["container"]["image"] = json!("quay.io/vendor/plugin:2");
            });
        });
        assert_eq!(created(it.run.server()), [3, 0], "something else");
        assert_failures_are_not_repeated(it.run.server());
    });
}

/// An image that exists is not the right one any more: that is said, and only that.
#[test]
fn kms_42_an_outdated_image_is_reported_and_kept() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        it.event_reasons();
        it.act(|server| {
            edit_module(server, "hello", |spec| {
                container(spec)["build"]["dockerfile"] = json!("FROM b");
            });
        });
        assert!(it.event_reasons().contains(&"ImageOutdated".to_owned()));
        assert!(it.holds("ImageOutdated"), "{:?}", it.held());
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 0], vec![target()]));
    });
}

#[test]
fn kms_43_a_missing_dockerfile_is_reported_and_waited_for() {
    let mut module = built("hello");
    module["spec"]["driverContainer"]["container"]["build"] =
        json!({"dockerfileConfigMap": {"name": "map"}});
    let map =
        |data: Value| json!({"metadata": {"name": "map", "namespace": NAMESPACE}, "data": data});
    with(Settings::default(), vec![stored(module)], |it| {
        assert!(it.holds("DockerfileNotFound"), "{:?}", it.held());
        it.act(|server| {
            server.create(&DockerfileMap::RESOURCE, map(json!({"Dockerfile": "FROM a"})));
        });
        let held = it.held();
        assert!(held[0].contains("no key dockerfile"), "{held:?}");
        assert_eq!(created(it.run.server()), [0, 0]);
        let key = Key::new(NAMESPACE, "map");
        let write = |it: &mut Simulation<'_>, text: &str| {
            it.act(|server| {
                server.edit(&DockerfileMap::RESOURCE, &key, |it| {
                    it["data"] = json!({"dockerfile": text});
                });
            });
        };
        write(it, "RUN make");
        let held = it.held();
        let expected = "InvalidDockerfile: kernel 4.18.0-348.el8.x86_64: ConfigMap drivers/map, \
                        key dockerfile: no FROM instruction; start with FROM image or FROM scratch";
        assert_eq!(held, [expected]);
        assert_eq!(created(it.run.server()), [0, 0]);
        write(it, "FROM a");
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 0], vec![target()]));
        assert_eq!(it.run.server().list(&DockerfileMap::RESOURCE).len(), 1, "it is the user's");
    });
}

#[test]
fn kms_46_a_registry_that_refuses_starts_no_build() {
    for error in
        ["403 Forbidden", "401 Unauthorized", "429 Too Many Requests", "503", "connection refused"]
    {
        with(Settings::default(), Vec::new(), |it| {
            set_outside(it.run.server(), "registryError", error);
            it.act(|server| {
                server.create(&Module::RESOURCE, built("hello"));
            });
            it.advance(1800);
            assert_eq!(created(it.run.server()), [0, 0], "{error}");
            let held = it.held();
            assert!(it.holds("ImageCheckFailed") && held[0].contains(error), "{held:?}");
            set_outside(it.run.server(), "registryError", "");
            it.advance(600);
            assert_eq!(
                (created(it.run.server()), running(it.run.server())),
                ([1, 0], vec![target()])
            );
            // What was there before stays, and is not built again.
            set_outside(it.run.server(), "registryError", error);
            it.advance(3600);
            it.run.restart();
            it.advance(600);
            assert_eq!(
                (created(it.run.server()), running(it.run.server())),
                ([1, 0], vec![target()])
            );
            assert_eq!(daemon_sets_deleted(it.run.server()), 0);
        });
    }
}

#[test]
fn missing_secrets_are_waited_for() {
    let mut module = signed("hello");
    module["spec"]["driverContainer"]["imageRepoSecrets"] = json!([{"name": "repo"}]);
    let fields = container(&mut module["spec"]);
    fields["build"]["secrets"] = json!([{"name": "git"}]);
    let image = json!({"name": "${CONTAINER_IMAGE}", "pushSecretRef": {"name": "push"}});
    fields["sign"]["signedImage"] = image;
    with(Settings::default(), vec![stored(module)], |it| {
        // Those of a stage are needed when it begins.
        let order = [
            ("repo", [0, 0]),
            ("key", [0, 0]),
            ("cert", [0, 0]),
            ("push", [0, 0]),
            ("git", [0, 0]),
        ];
        for (name, jobs) in order {
            it.advance(60);
            assert_eq!(created(it.run.server()), jobs, "before {name}");
            let held = it.held();
            let expected =
                format!("SecretNotFound: kernel {EL8}: Secret drivers/{name} does not exist");
            assert!(held[0].starts_with(&expected), "{held:?}");
            let (resource, object) = secret(name);
            it.act(|server| {
                server.create(&resource, object);
            });
        }
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 1], vec![target()]));
    });
}

#[test]
fn kms_49_a_job_that_exists_counts_as_created() {
    // Another process has created it, and the cache does not show it yet: the create is refused.
    with(Settings::default(), Vec::new(), |it| {
        it.run.server().intercept(|write| {
            let is_job = *write.resource() == Job::RESOURCE && write.verb() == "create";
            let exists = gantry_reconcile::Outcome::Conflict("already exists".to_owned());
            is_job.then_some(exists)
        });
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        let reasons = it.event_reasons();
        assert!(!reasons.contains(&"BuildCreated".to_owned()), "{reasons:?}");
        assert!(!reasons.contains(&"BuildFailed".to_owned()), "{reasons:?}");
        it.run.server().intercept(|_| None);
        it.advance(120);
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 0], vec![target()]));
    });
}

#[test]
fn kms_63_another_key_signs_again_and_a_failed_signing_never_builds() {
    let objects: Vec<_> = keys().into_iter().collect();
    with(Settings::default(), objects, |it| {
        set_outside(it.run.server(), "sign", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, signed("hello"));
        });
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 1]);
        assert_eq!(jobs(it.run.server()), [("sign".to_owned(), target(), "failed")]);
        assert!(it.holds("SignFailed"), "{:?}", it.held());
        assert!(has_image(it.run.server(), &unsigned()) && !has_image(it.run.server(), &target()));
        assert_eq!(running(it.run.server()), Vec::<String>::new(), "the unsigned image never runs");
        set_outside(it.run.server(), "sign", "succeed");
        let rotate = |server: &mut Server, name: &str, data: &str| {
            server.edit(&SECRETS, &Key::new(NAMESPACE, name), |it| it["data"] = json!(data));
        };
        it.act(|server| rotate(server, "key", "2"));
        assert_eq!((created(it.run.server()), running(it.run.server())), ([1, 2], vec![target()]));
        // An image that is signed with an old key is reported; it is signed again on demand.
        it.act(|server| rotate(server, "cert", "2"));
        assert!(it.holds("ImageOutdated"), "{:?}", it.held());
        assert_eq!(created(it.run.server()), [1, 2]);
    });
}

#[test]
fn a_failed_build_is_never_signed() {
    with(Settings::default(), keys().into_iter().collect(), |it| {
        set_outside(it.run.server(), "build", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, signed("hello"));
        });
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 0]);
        assert!(it.holds("BuildFailed"), "{:?}", it.held());
        // Nor when the key changes.
        it.act(|server| {
            server.edit(&SECRETS, &Key::new(NAMESPACE, "key"), |it| it["data"] = json!("2"));
        });
        assert_eq!(created(it.run.server()), [1, 0]);
    });
}

#[test]
fn a_job_that_pushed_nothing_is_reported_and_not_repeated() {
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "lose");
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        assert_eq!(running(it.run.server()), [target()], "registries may be late");
        it.advance(3600);
        assert_eq!(created(it.run.server()), [1, 0]);
        assert!(it.holds("ImageMissing"), "{:?}", it.held());
        assert_eq!(daemon_sets_deleted(it.run.server()), 0);
    });
}

#[test]
fn an_image_that_is_lost_is_built_again() {
    with(Settings::default(), vec![stored(built("hello"))], |it| {
        it.act(|server| {
            server.delete(&IMAGES, &Key::cluster(&image_hash(&target())), Propagation::Background);
        });
        it.advance(600);
        assert_eq!(created(it.run.server()), [2, 0]);
        assert!(has_image(it.run.server(), &target()));
        assert_eq!(daemon_sets_deleted(it.run.server()), 0, "it runs all the time");
    });
}

/// A node that cannot pull an image knows more than what the registry said before.
#[test]
fn an_image_that_a_node_cannot_pull_is_looked_for_at_once() {
    let day = std::time::Duration::from_secs(86_400);
    let settings = Settings { image_present_refresh: day, ..Settings::default() };
    with(settings, vec![stored(built("hello"))], |it| {
        it.act(|server| {
            server.delete(&IMAGES, &Key::cluster(&image_hash(&target())), Propagation::Background);
        });
        assert_eq!(created(it.run.server()), [1, 0]);
        it.act(|server| {
            let pods = server.list(&ModulePod::RESOURCE);
            let role = "/metadata/labels/ooto.sigs.k8s.io~1role";
            let driver = pods.iter().find(|it| text(it, role) == DRIVER).unwrap();
            let key = Key::new(NAMESPACE, text(driver, "/metadata/name"));
            let now = server.now().to_string();
            server.edit(&ModulePod::RESOURCE, &key, |it| {
                it["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
                it["status"]["containerStatuses"] = json!([{
                    "name": DRIVER, "image": target(),
                    "state": {"waiting": {"reason": "ImagePullBackOff"}},
                }]);
            });
        });
        assert_eq!(created(it.run.server()), [2, 0]);
        assert!(has_image(it.run.server(), &target()));
    });
}

#[test]
fn no_more_jobs_run_than_configured() {
    let mut settings = Settings::default();
    settings.jobs.max_concurrent = 1;
    let kernels = ["5.1.0", "5.2.0", "5.3.0"];
    let nodes = kernels.iter().enumerate().map(|(at, kernel)| node(&format!("n{at}"), kernel));
    with(settings, nodes.collect(), |it| {
        it.run.server().create(&Module::RESOURCE, for_any_kernel(built("hello")));
        for _ in 0..40 {
            it.advance(1);
            let active = jobs(it.run.server()).iter().filter(|it| it.2 == "active").count();
            assert!(active <= 1, "{:?}", jobs(it.run.server()));
        }
        it.advance(600);
        assert_eq!((created(it.run.server()), running(it.run.server()).len()), ([4, 0], 4));
    });
}

#[test]
fn several_architectures_are_not_built_for() {
    with(Settings::default(), vec![node("b", EL8)], |it| {
        super::cluster::set_node(it.run.server(), "b", |node| {
            node["status"]["nodeInfo"]["architecture"] = json!("arm64");
        });
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        assert!(it.holds("MixedArchitectures"), "{:?}", it.held());
        assert_eq!(created(it.run.server()), [0, 0]);
    });
}

/// The text of the Dockerfile that a Job reads is never that of the Job before it.
#[test]
fn a_replaced_job_has_its_own_dockerfile() {
    with(Settings::default(), Vec::new(), |it| {
        set_outside(it.run.server(), "build", "fail");
        it.act(|server| {
            server.create(&Module::RESOURCE, built("hello"));
        });
        for text in ["FROM b", "FROM c"] {
            it.act(|server| {
                edit_module(server, "hello", |spec| {
                    container(spec)["build"]["dockerfile"] = json!(text);
                });
            });
            let maps = it.run.server().list(&DockerfileMap::RESOURCE);
            let texts: Vec<&str> =
                maps.iter().map(|it| self::text(it, "/data/dockerfile")).collect();
            assert_eq!(texts, [text]);
        }
    });
}
