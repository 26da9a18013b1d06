//! Tables for each rule, and properties for many concurrent users.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::inventory::FMA_GROUP;

/// A manifest with these versions; the first is the one it wants.
fn manifest(versions: &[&str]) -> Manifest {
    let version = |(index, name): (usize, &&str)| version(name, index == 0, "as the commit has it");
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{FMA_GROUP}")},
        "spec": {"group": FMA_GROUP, "names": {"plural": "things"}, "versions": versions},
    });
    Manifest::read(object).unwrap()
}

fn version(name: &str, storage: bool, text: &str) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "description": text}},
    })
}

/// The object of a cluster, as it was created from a manifest.
fn cluster(versions: &[&str], stored: &[&str]) -> Value {
    let mut object = manifest(versions).object().clone();
    object["metadata"]["resourceVersion"] = json!("42");
    object["spec"]["conversion"] = json!({"strategy": "None"});
    object["status"] = json!({"storedVersions": stored});
    for version in object["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["description"] = json!("as the cluster has it");
    }
    object
}

fn names(object: &Value) -> Vec<&str> {
    list(object, "/spec/versions").iter().map(|it| text(it, "/name")).collect()
}

fn applied(decision: &ApplyDecision) -> &PlannedApply {
    match decision {
        ApplyDecision::Apply(apply) => apply,
        other => panic!("nothing is applied: {other:?}"),
    }
}

const MODES: [ApplyMode; 4] =
    [ApplyMode::IfVersionMissing, ApplyMode::IfDiffers, ApplyMode::Always, ApplyMode::Never];

#[test]
fn cs_20_applied_if_absent_or_the_version_is_missing() {
    let ours = manifest(&["v1alpha1"]);
    let mode = ApplyMode::IfVersionMissing;
    let absent = decide(&ours, None, mode, ForeignVersions::Refuse);
    assert_eq!(applied(&absent).why, ApplyReason::NotFound);
    // Other contents are left alone.
    let present = cluster(&["v1alpha1"], &["v1alpha1"]);
    let left = ApplyDecision::Leave(SkipReason::VersionPresent("v1alpha1".to_owned()));
    assert_eq!(decide(&ours, Some(&present), mode, ForeignVersions::Refuse), left);
    // A commit that adds a version knows the old one.
    let newer = manifest(&["v1alpha2", "v1alpha1"]);
    let decision = decide(&newer, Some(&present), mode, ForeignVersions::Refuse);
    let apply = applied(&decision);
    assert_eq!(apply.why, ApplyReason::VersionMissing("v1alpha2".to_owned()));
    assert_eq!(names(&apply.object), ["v1alpha2", "v1alpha1"]);
}

#[test]
fn cs_14_a_version_under_review_is_changed_where_it_differs() {
    let ours = manifest(&["v1alpha1"]);
    let mut found = cluster(&["v1alpha1"], &["v1alpha1"]);
    let decision = decide(&ours, Some(&found), ApplyMode::IfDiffers, ForeignVersions::Refuse);
    assert_eq!(applied(&decision).why, ApplyReason::Differs);
    // Defaults that the server set are not a difference.
    found["spec"]["versions"] = ours.object()["spec"]["versions"].clone();
    let decision = decide(&ours, Some(&found), ApplyMode::IfDiffers, ForeignVersions::Refuse);
    assert_eq!(decision, ApplyDecision::Leave(SkipReason::Same));
}

#[test]
fn cs_13_no_version_goes_unasked_and_no_stored_one_at_all() {
    let ours = manifest(&["v1alpha2"]);
    let stored = cluster(&["v1alpha1"], &["v1alpha1"]);
    let unstored = cluster(&["v1alpha1", "v1beta1"], &["v1beta1"]);
    let removes = |versions: &[&str]| {
        let versions = versions.iter().map(|it| (*it).to_owned()).collect();
        ApplyDecision::Refuse(ApplyRefusal::RemovesVersions {
            versions,
            wanted: "v1alpha2".to_owned(),
        })
    };
    for mode in [ApplyMode::IfVersionMissing, ApplyMode::IfDiffers, ApplyMode::Always] {
        let decision = |found| decide(&ours, Some(found), mode, ForeignVersions::Refuse);
        assert_eq!(decision(&stored), removes(&["v1alpha1"]), "{mode:?}");
        assert_eq!(decision(&unstored), removes(&["v1alpha1", "v1beta1"]), "{mode:?}");
        let forced = decide(&ours, Some(&stored), mode, ForeignVersions::Remove);
        let expected = ApplyRefusal::Stored { versions: vec!["v1alpha1".to_owned()] };
        assert_eq!(forced, ApplyDecision::Refuse(expected), "{mode:?}");
        let ours = manifest(&["v1alpha2", "v1beta1"]);
        let forced = decide(&ours, Some(&unstored), mode, ForeignVersions::Remove);
        assert_eq!(applied(&forced).removes, ["v1alpha1"], "{mode:?}");
    }
}

#[test]
fn foreign_versions_are_kept_as_they_are() {
    let ours = manifest(&["v1alpha2"]);
    let found = cluster(&["v1alpha1", "v1beta1"], &["v1alpha1"]);
    let decision = decide(&ours, Some(&found), ApplyMode::IfVersionMissing, ForeignVersions::Keep);
    let apply = applied(&decision);
    assert_eq!(names(&apply.object), ["v1alpha1", "v1beta1", "v1alpha2"]);
    assert_eq!(apply.object["spec"]["versions"][0], found["spec"]["versions"][0]);
    // Objects are still stored in the same version.
    let storage: Vec<_> =
        list(&apply.object, "/spec/versions").iter().map(|it| it["storage"] == true).collect();
    assert_eq!(storage, [true, false, false]);
    // Where the commit knows the storage version, it decides.
    let ours = manifest(&["v1alpha2", "v1alpha1"]);
    let decision = decide(&ours, Some(&found), ApplyMode::IfVersionMissing, ForeignVersions::Keep);
    let versions = &applied(&decision).object["spec"]["versions"];
    assert_eq!(versions[0]["storage"], false);
    assert_eq!(versions[2]["storage"], true);
}

#[test]
fn every_apply_is_fenced() {
    let ours = manifest(&["v1"]);
    let found = cluster(&["v1"], &["v1"]);
    for (found, revision) in [(None, NEVER_EXISTING_REVISION), (Some(&found), "42")] {
        let decision = decide(&ours, found, ApplyMode::Always, ForeignVersions::Refuse);
        assert_eq!(applied(&decision).object["metadata"]["resourceVersion"], revision);
    }
}

#[test]
fn terminating_waits_and_never_skips() {
    let ours = manifest(&["v1"]);
    let mut found = cluster(&["v1"], &["v1"]);
    found["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for mode in MODES {
        let expected = match mode {
            ApplyMode::Never => ApplyDecision::Leave(SkipReason::Never),
            ApplyMode::IfVersionMissing | ApplyMode::IfDiffers | ApplyMode::Always => {
                ApplyDecision::Wait
            }
        };
        assert_eq!(decide(&ours, Some(&found), mode, ForeignVersions::Refuse), expected);
    }
    assert_eq!(
        decide(&ours, None, ApplyMode::Never, ForeignVersions::Keep),
        ApplyDecision::Leave(SkipReason::Never)
    );
}

#[test]
fn refusals_say_what_to_do() {
    let versions = vec!["v1".to_owned(), "v2".to_owned()];
    let removes =
        ApplyRefusal::RemovesVersions { versions: versions.clone(), wanted: "v3".to_owned() };
    let said = removes.to_string();
    for words in ["v1, v2", "v3", "--merge-versions", "--allow-version-removal"] {
        assert!(said.contains(words), "{said}");
    }
    let said = ApplyRefusal::Stored { versions }.to_string();
    assert!(said.contains("v1, v2") && said.contains("storedVersions"), "{said}");
}

/// A server that stores what is applied.
#[derive(Clone, Debug, Default)]
struct Server {
    object: Option<Value>,
    revision: u64,
}

impl Server {
    /// Applies, or refuses because of a concurrent change.
    fn apply(&mut self, object: &Value) -> Result<(), ()> {
        let named = text(object, "/metadata/resourceVersion");
        let mut next = object.clone();
        if let Some(live) = &self.object {
            // An apply without a revision replaces any.
            if !named.is_empty() && named != text(live, "/metadata/resourceVersion") {
                return Err(());
            }
            next["status"] = live["status"].clone();
        }
        let storage = list(&next, "/spec/versions").iter().find(|it| it["storage"] == true);
        let storage = storage.map(|it| it["name"].clone()).unwrap();
        let mut stored = list(&next, "/status/storedVersions").to_vec();
        if !stored.contains(&storage) {
            stored.push(storage);
        }
        self.revision += 1;
        next["status"]["storedVersions"] = Value::Array(stored);
        next["metadata"]["resourceVersion"] = json!((self.revision + 10).to_string());
        self.object = Some(next);
        Ok(())
    }
}

fn any_foreign() -> impl Strategy<Value = ForeignVersions> {
    prop_oneof![Just(ForeignVersions::Refuse), Just(ForeignVersions::Keep)]
}

fn any_mode() -> impl Strategy<Value = ApplyMode> {
    prop_oneof![
        Just(ApplyMode::IfVersionMissing),
        Just(ApplyMode::IfDiffers),
        Just(ApplyMode::Always)
    ]
}

proptest! {
    /// Users that read and apply in any order: no version is ever lost, one is always stored, and
    /// in the end every user who kept the others' versions has their own.
    #[test]
    fn many_hands_lose_no_version(
        hands in prop::collection::vec((0..4u8, any_mode(), any_foreign()), 1..6),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 0..24),
    ) {
        let mut server = Server::default();
        let mut seen: Vec<Option<Option<Value>>> = vec![None; hands.len()];
        let wanted = |hand: usize| manifest(&[["v1", "v2", "v3", "v4"][usize::from(hands[hand].0)]]);
        let step = |hand: usize, server: &mut Server, seen: &mut Vec<Option<Option<Value>>>| {
            let Some(found) = seen[hand].take() else {
                seen[hand] = Some(server.object.clone());
                return;
            };
            let (_, mode, foreign) = hands[hand];
            let decision = decide(&wanted(hand), found.as_ref(), mode, foreign);
            let before: Vec<String> = server.object.iter().flat_map(names).map(str::to_owned).collect();
            if let ApplyDecision::Apply(apply) = decision && server.apply(&apply.object).is_ok() {
                let after = names(server.object.as_ref().unwrap());
                assert!(before.iter().all(|it| after.contains(&it.as_str())), "{before:?} {after:?}");
                let stored = list(server.object.as_ref().unwrap(), "/spec/versions");
                assert_eq!(stored.iter().filter(|it| it["storage"] == true).count(), 1);
            }
        };
        for turn in turns {
            step(turn.index(hands.len()), &mut server, &mut seen);
        }
        // Every user tries until there is no concurrent change.
        for hand in 0..hands.len() {
            seen[hand] = None;
            step(hand, &mut server, &mut seen);
            step(hand, &mut server, &mut seen);
        }
        let present = server.object.as_ref().unwrap();
        for (hand, (_, _, foreign)) in hands.iter().enumerate() {
            if *foreign == ForeignVersions::Keep {
                prop_assert!(names(present).contains(&wanted(hand).version()));
            }
        }
        // And a user who applies only missing versions never changes it again.
        let settled = present.clone();
        for (hand, (_, _, foreign)) in hands.iter().enumerate() {
            let decision = decide(&wanted(hand), Some(&settled), ApplyMode::IfVersionMissing, *foreign);
            prop_assert!(!matches!(decision, ApplyDecision::Apply(_)), "{decision:?}");
        }
    }
}
