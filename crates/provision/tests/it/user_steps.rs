//! Steps of users.

use gantry_inventory::Backend;
use gantry_provision::{Verdict, user_steps};

use crate::planning::Fixture;

pub(crate) const STEPS: &str = r#"
- name: tuned
  about: Sets a limit.
  tags: [config, site]
  when: {facts.distribution.family: [debian, redhat], gantry_environment: dev}
  actions:
    - file: {path: /etc/site/limits.conf, content: "a = 1\n", mode: "0640"}
    - directory: {path: /srv/site, mode: "0750"}
    - link: {path: /etc/site/current, target: limits.conf}
    - sysctl: {key: net.core.somaxconn, value: "4096"}
    - packages: [chrony]
    - unit: {name: chrony.service}
    - run: {argv: [/usr/bin/make-key], creates: /etc/site/key, undo: [/bin/rm, /etc/site/key]}
- name: banner
  hosts: minion
  stage: addons
  actions:
    - file: {path: /etc/motd, content: "welcome\n"}
"#;

#[test]
fn prv_63_conditions_are_printed_when_they_skip() {
    let steps = user_steps("site.yaml", STEPS).unwrap();
    let mut fixture = Fixture::new(crate::facts::DEBIAN, Backend::Bare);
    let reason = |fixture: &Fixture, index: usize| steps[index].skip(&fixture.context());
    assert_eq!(
        reason(&fixture, 0).as_deref(),
        Some("when: gantry_environment is not set, not dev")
    );
    assert_eq!(reason(&fixture, 1).as_deref(), Some("hosts: minion only"));
    fixture.set("gantry_environment", "dev");
    assert_eq!(reason(&fixture, 0), None);
    fixture.facts.distribution.family = gantry_provision::Family::Suse;
    assert_eq!(
        reason(&fixture, 0).as_deref(),
        Some("when: facts.distribution.family is suse, not debian or redhat")
    );
    assert!(matches!(
        steps[0].plan(&fixture.context(), &gantry_provision::Observed::default()),
        Verdict::Skipped(_)
    ));
}

#[test]
fn prv_66_a_wrong_step_is_refused_with_its_place() {
    let table = [
        ("x: 1", "1:1: expected a list of steps"),
        ("- nam: a\n  actions: []", "1:3: unknown key `nam`"),
        ("- name: A\n  actions: [{packages: [a]}]", "`name` has to be lower-case"),
        ("- name: a", "`actions` has to be a list"),
        ("- name: a\n  actions: []", "`actions` is empty"),
        ("- name: a\n  actions: [{copy: {}}]", "unknown key `copy`"),
        ("- name: a\n  stage: preflight\n  actions: [{packages: [a]}]", "`stage` has to be one"),
        ("- name: a\n  hosts: everyone\n  actions: [{packages: [a]}]", "`hosts` has to be all"),
        ("- name: a\n  when: {facts.color: red}\n  actions: [{packages: [a]}]", "no fact `color`"),
        ("- name: a\n  actions: [{packages: [--force]}]", "names of packages"),
        ("- name: a\n  actions: [{file: {path: etc, content: x}}]", "absolute path"),
        ("- name: a\n  actions: [{file: {path: /a/../b, content: x}}]", "absolute path"),
        ("- name: a\n  actions: [{file: {path: /a, content: x, mode: 420}}]", "octal digits"),
        ("- name: a\n  actions: [{run: {argv: [/bin/x], creates: /x}}]", "needs `undo`"),
        (
            "- name: a\n  actions: [{run: {argv: [/bin/x], creates: /x, no_undo: ' '}}]",
            "why it cannot be undone",
        ),
        (
            "- name: a\n  actions: [{run: {argv: [x], creates: /x, undo: [/bin/y]}}]",
            "absolute path of a program",
        ),
        ("- name: a\n  actions: [{unit: {name: -x.service}}]", "that of a unit"),
        ("- name: a\n  actions: [{sysctl: {key: a/../b, value: 1}}]", "with dots"),
        (
            "- {name: a, actions: [{packages: [a]}]}\n- {name: a, actions: [{packages: [a]}]}",
            "two steps are named user.a",
        ),
        ("a: [", "1:1: "),
    ];
    for (text, expected) in table {
        let errors = user_steps("site.yaml", text).unwrap_err();
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            all.iter().any(|it| it.starts_with("site.yaml:") && it.contains(expected)),
            "{text}: {all:?}"
        );
    }
}
