//! The whole structure: its defaults, the rules between keys, and that no key is missing in it.

use gantry_placement::admission::Mode;
use gantry_placement::subsystem::configuration::{Configuration as Devices, Webhook};
use gantry_scaling::subsystem::configuration::{
    Configuration, MachineSetsStrategy, SecretReference,
};

use super::*;
use crate::config::document;
use crate::config::keys::{DefaultValue, Effect, KEYS};
use gantry_subsystem::settings::ValueType;
use serde_json::json;

const QUEUE: ControllerSwitch = ControllerSwitch::on("queue");
const DEPLOYMENT: ControllerSwitch = ControllerSwitch { name: "deployment", on_by_default: false };

fn checked(text: &str) -> Result<CheckedConfig, ConfigReport> {
    let (layer, report) = document::read(text, "f");
    merge_and_check([&layer], report, &[QUEUE, DEPLOYMENT])
}

fn settings(text: &str) -> OperatorSettings {
    checked(text).unwrap_or_else(|report| panic!("{text}: {report:?}")).settings
}

fn queue(text: &str) -> gantry_queue::Settings {
    gantry_queue::subsystem::configuration::settings(&checked(text).unwrap().values).unwrap()
}

fn scaling(text: &str) -> Configuration {
    Configuration::read(&checked(text).unwrap().values).unwrap()
}

fn devices(text: &str) -> Devices {
    Devices::read(&checked(text).unwrap().values).unwrap()
}

fn errors(text: &str) -> Vec<String> {
    let report = checked(text).map(|_| ()).unwrap_err();
    report.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn op_7_there_is_one_of_each_part() {
    for part in ["mcad", "instascale", "devices", "leaderElection"] {
        let said = errors(&format!("{part}: [{{}}, {{}}]"));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("expected a map of keys"), "{said:?}");
    }
    let said = errors("mcad: {}\nmcad: {}");
    assert_eq!(said.len(), 1, "a key is there once: {said:?}");
}

#[test]
fn op_9_every_key_has_a_default() {
    let OperatorSettings {
        client_connection,
        logging,
        metrics,
        health,
        leader_election,
        controllers,
        kuberay: _,
        appwrapper: _,
    } = settings("");
    assert_eq!(client_connection.rate(), Some((50.0, 100)));
    assert_eq!(client_connection.kubeconfig, "");
    assert_eq!(logging.verbosity, None);
    let local = BindAddress::At(([127, 0, 0, 1], 8080).into());
    let (cert_file, key_file) = (String::new(), String::new());
    let expected = MetricsServer { bind_address: local, secure_serving: true, cert_file, key_file };
    assert_eq!(metrics, expected);
    assert_eq!(health.bind_address, BindAddress::AllInterfaces(8081));
    assert_eq!(health.endpoints(), Endpoints::default());
    let seconds = Duration::from_secs;
    let expected = LeaderElection {
        leader_elect: false,
        lease_duration: seconds(15),
        renew_deadline: seconds(10),
        retry_period: seconds(2),
        resource_lock: "leases".to_owned(),
        resource_name: "gantry-operator".to_owned(),
        resource_namespace: None,
    };
    assert_eq!(leader_election, expected);
    assert!(controllers.is_none());
    let values = checked("").unwrap().values;
    assert!(gantry_queue::subsystem::configuration::is_enabled(&values));
    let queue = gantry_queue::subsystem::configuration::settings(&values).unwrap();
    assert_eq!(queue, gantry_queue::Settings::default());
    let expected = Configuration {
        enabled: false,
        max_scaleout_allowed: 5,
        machine_sets_strategy: MachineSetsStrategy::Reuse,
        ocm_secret_ref: None,
        ocm_url: gantry_scaling::effects::OCM_API_URL.to_owned(),
        ocm_token_url: gantry_scaling::effects::OCM_TOKEN_URL.to_owned(),
        provision_timeout: seconds(1200),
        cooldown: seconds(0),
        infer_shapes: false,
    };
    assert_eq!(scaling(""), expected);
    let expected = Devices {
        enabled: false,
        require_admin_quota: false,
        mode: Mode::Scheduler,
        webhook: Webhook {
            enabled: false,
            bind_address: BindAddress::AllInterfaces(9443),
            url: String::new(),
        },
    };
    assert_eq!(devices(""), expected);
    assert!(!values.is_on("simulation.enabled"));
}

#[test]
fn op_11_times_are_what_the_mandate_says() {
    let times = |text: &str| (queue(text).backoff.as_secs(), queue(text).holding.as_secs());
    assert_eq!(times(""), (20, 0));
    assert_eq!(times("mcad: {backoffTime: 3, headOfLineHoldingTime: 4}"), (3, 4));
}

#[test]
fn op_10_scaling_is_off_unless_it_is_switched_on() {
    assert!(!scaling("instascale: {maxScaleoutAllowed: 9}").enabled);
    assert!(scaling("instascale: {enabled: true}").enabled);
}

/// The list of keys and the structure agree: the value of every key arrives.
#[test]
fn op_6_every_key_reaches_the_structure() {
    let all = |text: &str| {
        let checked = checked(text).unwrap_or_else(|report| panic!("{text}: {report:?}"));
        let read = SUBSYSTEMS.iter().map(|it| (it.settings.read)(&checked.values).unwrap());
        format!("{:?} {:?}", checked.settings, read.collect::<Vec<_>>())
    };
    let before = all("");
    for key in KEYS.iter() {
        let word = match (key.value_type, key.default) {
            (ValueType::Word(words), DefaultValue::Text(default)) => {
                words.iter().find(|it| **it != default)
            }
            _ => None,
        };
        let other = match (key.path, key.default) {
            ("controllers", _) => json!({"queue": false}),
            ("devices.webhook.url", _) => json!("https://example.com:9443"),
            ("instascale.ocmUrl" | "instascale.ocmTokenUrl", _) => json!("https://example.com"),
            ("leaderElection.leaseDuration", _) => json!("31s"),
            ("leaderElection.renewDeadline", _) => json!("11s"),
            ("leaderElection.retryPeriod", _) => json!("3s"),
            // The only valid value, what must not be set or has no effect, and pairs.
            (
                "leaderElection.resourceLock"
                | "mcad.dispatcher"
                | "mcad.agentConfigs"
                | "metrics.certFile"
                | "metrics.keyFile"
                | "instascale.ocmSecretRef.name"
                | "instascale.ocmSecretRef.namespace",
                _,
            ) => continue,
            (_, DefaultValue::Text(_)) if word.is_some() => json!(word),
            (_, DefaultValue::Flag(flag)) => json!(!flag),
            (_, DefaultValue::Count(number)) => json!(number + 1),
            (path, DefaultValue::Text(_)) if path.ends_with("bindAddress") => json!(":1"),
            (_, DefaultValue::Text(text)) if text.ends_with('s') => json!("77s"),
            (_, DefaultValue::Text(_)) => json!("other"),
            (_, DefaultValue::Empty) => json!(["a"]),
            ("logging.verbosity", _) => json!(4),
            ("modules.registry.caConfigMap", _) => json!("other"),
            ("modules.job.signSelector", _) => json!({"a": "b"}),
            (_, DefaultValue::Unset) if key.effect == Effect::Restart => json!("other"),
            (_, DefaultValue::Unset) => json!({"a": 1}),
        };
        let text = key.path.rsplit('.').fold(other, |inner, name| json!({ name: inner }));
        let after = all(&text.to_string());
        assert_ne!(after, before, "{text}");
    }
    let reference = "instascale: {ocmSecretRef: {name: a, namespace: b}}";
    let expected = SecretReference { namespace: "b".to_owned(), name: "a".to_owned() };
    assert_eq!(scaling(reference).ocm_secret_ref, Some(expected));
}

#[test]
fn a_webhook_has_an_address_that_a_server_can_call() {
    let url = |url: &str| errors(&format!("devices: {{webhook: {{url: '{url}'}}}}"));
    for wrong in ["http://a", "https://", "a:1", "https://a/b", "https://u@a", "https://a?b"] {
        let said = url(wrong);
        assert!(said[0].contains("expected https://<host>:<port>"), "{wrong}: {said:?}");
    }
    for good in ["", "https://a", "https://[::1]:9443/"] {
        settings(&format!("devices: {{webhook: {{url: '{good}'}}}}"));
    }
    let said = errors("devices: {webhook: {enabled: true, bindAddress: '0'}}");
    assert!(
        said[0].contains("devices.webhook.bindAddress") && said[0].contains("name an address"),
        "{said:?}"
    );
    assert_eq!(devices("devices: {mode: Gate}").mode, Mode::Gate);
}

/// Tokens are sent there: over TLS, or not beyond this machine.
#[test]
fn is_20_the_service_of_pools_is_called_over_tls() {
    for key in ["ocmUrl", "ocmTokenUrl"] {
        for wrong in ["", "http://example.com", "example.com", "https://"] {
            let said = errors(&format!("instascale: {{{key}: '{wrong}'}}"));
            let expected = format!("instascale.{key}: found {wrong:?}, expected https://<host>");
            assert!(said[0].contains(&expected), "{said:?}");
        }
        for good in ["https://api.example.com", "https://a:8443/x", "http://127.0.0.1:9/"] {
            settings(&format!("instascale: {{{key}: '{good}'}}"));
        }
    }
}

#[test]
fn zero_lease_times_are_the_recommended_ones() {
    let zero = "{leaseDuration: 0s, renewDeadline: 0s, retryPeriod: 0s, resourceName: ''}";
    let zero = settings(&format!("leaderElection: {zero}")).leader_election;
    assert_eq!(zero, settings("").leader_election);
}

#[test]
fn leader_election_times_are_ordered() {
    let table = [
        ("all are fine", "60s", "40s", "5s", None),
        (
            "a lease no longer than its renewal",
            "10s",
            "10s",
            "2s",
            Some(
                "f:1:38: leaderElection.renewDeadline: found 10s, expected less than leaderElection.leaseDuration, which is 10s",
            ),
        ),
        (
            "attempts too far apart",
            "15s",
            "12s",
            "10s",
            Some(
                "f:1:58: leaderElection.retryPeriod: found 10s, expected less than leaderElection.renewDeadline, which is 12s, by a fifth at least",
            ),
        ),
        ("just near enough", "15s", "12001ms", "10s", None),
    ];
    for (why, lease, renew, retry, expected) in table {
        let text = format!(
            "leaderElection: {{leaseDuration: {lease}, renewDeadline: {renew}, retryPeriod: {retry}}}"
        );
        match expected {
            None => drop(settings(&text)),
            Some(expected) => assert_eq!(errors(&text), [expected], "{why}"),
        }
    }
    // With leader election there must be time to retry, and for the last write to arrive.
    let held = "leaderElection: {leaderElect: true, leaseDuration: ";
    drop(settings(&format!("{held}3s, renewDeadline: 2s, retryPeriod: 1s}}")));
    assert_eq!(
        errors(&format!("{held}3s, renewDeadline: 2001ms, retryPeriod: 1s}}")),
        [
            "f:1:56: leaderElection.renewDeadline: the renew deadline (2.001s) must be at least 1s below the lease duration (3s)"
        ]
    );
    assert_eq!(
        errors(&format!("{held}15s, renewDeadline: 12s, retryPeriod: 9s}}")),
        [
            "f:1:77: leaderElection.retryPeriod: the retry period (9s) must be above zero and at most half of the renew deadline (12s)"
        ]
    );
    // The key that was set is reported, not the default it conflicts with.
    assert_eq!(
        errors("leaderElection:\n  leaseDuration: 5s\n"),
        [
            "f:2:3: leaderElection.leaseDuration: found 5s, expected more than leaderElection.renewDeadline, which is 10s"
        ]
    );
}

#[test]
fn rules_between_keys_are_checked_together_with_the_rest() {
    let text = "\
mcad: {dispatcher: true, backoffTime: x}
health: {readinessEndpointName: a/b}
instascale: {ocmSecretRef: {name: a}}
controllers: {quue: true, other: false}
leaderElection: {leaseDuration: soon, renewDeadline: 20s}
";
    assert_eq!(
        errors(text),
        [
            "f:1:39: mcad.backoffTime: found \"x\", expected a whole number from 0 to 2147483647",
            "f:5:33: leaderElection.leaseDuration: found \"soon\", expected a duration such as 15s, 1m30s or 0s",
            "f:4:1: controllers: there is no controller \"quue\"; did you mean queue?",
            "f:4:1: controllers: there is no controller \"other\"; choose from queue, deployment",
            "f:2:10: health.readinessEndpointName: cannot use \"a/b\" as an endpoint name: write one path segment such as \"readyz\"",
            "f:1:8: mcad.dispatcher: Gantry does not dispatch to other clusters; remove it",
            "f:3:29: instascale.ocmSecretRef.name: is of no use without instascale.ocmSecretRef.namespace; set both or none",
        ]
    );
}

#[test]
fn dynamic_priority_turns_preemption_off() {
    let checked = checked("mcad: {dynamicPriority: true, preemption: true}").unwrap();
    let queue = gantry_queue::subsystem::configuration::settings(&checked.values).unwrap();
    assert!(queue.dynamic_priority && !queue.preemption);
    let said: Vec<_> = checked.warnings.iter().map(ToString::to_string).collect();
    let expected =
        "f:1:31: mcad.preemption: has no effect: mcad.dynamicPriority turns preemption off";
    assert_eq!(said, [expected]);
}

#[test]
fn controllers_are_chosen_by_map_or_by_list() {
    let table = [
        ("nothing said", "", true, false),
        ("a map changes what it names", "controllers: {deployment: true}", true, true),
        ("or switches off", "controllers: {queue: false}", false, false),
        ("null is as usual", "controllers: {queue: null}", true, false),
        ("a list is all there is", "controllers: [deployment]", false, true),
        ("an empty list is none", "controllers: []", false, false),
    ];
    for (why, text, queue, deployment) in table {
        let settings = settings(text);
        assert_eq!(
            (settings.is_controller_enabled(QUEUE), settings.is_controller_enabled(DEPLOYMENT)),
            (queue, deployment),
            "{why}"
        );
    }
}

#[test]
fn addresses_mean_what_the_table_says() {
    let at = |text: &str| settings(text);
    assert_eq!(at("metrics: {bindAddress: '0'}").metrics.bind_address, BindAddress::Disabled);
    let metrics = at("metrics: {bindAddress: ''}").metrics;
    assert_eq!(metrics.bind_address, BindAddress::At(([127, 0, 0, 1], 8080).into()));
    assert_eq!(at("health: {bindAddress: 0}").health.bind_address, BindAddress::Disabled);
    assert_eq!(at("health: {bindAddress: ''}").health.bind_address, BindAddress::Disabled);
}

#[test]
fn later_layers_win() {
    let (low, report) = document::read("mcad: {backoffTime: 1, preemption: true}", "low");
    let (high, _) = document::read("mcad: {backoffTime: 2}", "high");
    let checked = merge_and_check([&low, &high], report, &[]).unwrap();
    assert_eq!(*checked.values.get("mcad.backoffTime"), 2);
    assert!(checked.values.is_on("mcad.preemption"));
    assert_eq!(checked.values.origin("mcad.backoffTime").to_string(), "high:1:8");
    assert_eq!(checked.values.origin("mcad.preemption").to_string(), "low:1:24");
}

#[test]
fn ds_9_authors_are_asked_for_where_the_server_is_answered() {
    let checked = checked("mcad: {checkUserAccess: true}").unwrap();
    assert!(checked.values.is_on("mcad.checkUserAccess"));
    assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
    let said = errors("mcad: {checkUserAccess: true}\ndevices: {webhook: {bindAddress: '0'}}");
    let words = "switches off what mcad.checkUserAccess switches on; name an address";
    assert!(said[0].contains("devices.webhook.bindAddress") && said[0].contains(words), "{said:?}");
}

#[test]
fn metrics_without_tls_and_tokens_stay_on_loopback() {
    for good in ["127.0.0.1:1", "localhost:1", "[::1]:1", "0"] {
        settings(&format!("metrics: {{bindAddress: '{good}', secureServing: false}}"));
    }
    for wrong in [":1", "0.0.0.0:1", "[::]:1", "10.1.2.3:1"] {
        let said = errors(&format!("metrics: {{bindAddress: '{wrong}', secureServing: false}}"));
        let expected = "metrics.secureServing: found false, expected true: metrics.bindAddress is";
        assert!(said.len() == 1 && said[0].contains(expected), "{wrong}: {said:?}");
        settings(&format!("metrics: {{bindAddress: '{wrong}'}}"));
    }
}

/// A kubelet has no token, so an address that needs one cannot serve probes too.
#[test]
fn metrics_with_tokens_are_apart_from_probes() {
    for same in [":8081", "127.0.0.1:8081"] {
        let both = format!("metrics: {{bindAddress: '{same}'}}\nhealth: {{bindAddress: '{same}'}}");
        let said = errors(&both);
        assert!(said.len() == 1 && said[0].contains("health.bindAddress too"), "{said:?}");
    }
    settings(
        "metrics: {bindAddress: 'localhost:1', secureServing: false}\nhealth: {bindAddress: 'localhost:1'}",
    );
    settings("metrics: {bindAddress: 'localhost:0'}\nhealth: {bindAddress: 'localhost:0'}");
    settings("metrics: {bindAddress: '0'}\nhealth: {bindAddress: '0'}");
}

#[test]
fn a_certificate_of_metrics_has_a_key() {
    let said = errors("metrics: {certFile: /a}");
    assert!(said[0].contains("metrics.certFile: is of no use without metrics.keyFile"), "{said:?}");
    let said = errors("metrics: {keyFile: /a}");
    assert!(said[0].contains("metrics.keyFile: is of no use without metrics.certFile"), "{said:?}");
    let both = settings("metrics: {certFile: /a, keyFile: /b}").metrics;
    assert_eq!((&*both.cert_file, &*both.key_file), ("/a", "/b"));
    let unused = checked("metrics: {certFile: /a, keyFile: /b, secureServing: false}").unwrap();
    assert_eq!(unused.warnings.len(), 1, "{:?}", unused.warnings);
}
