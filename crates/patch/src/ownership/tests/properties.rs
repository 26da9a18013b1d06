//! Properties of ownership.

use proptest::prelude::*;

use super::*;
use crate::fixtures::{self, any_json, any_widget};
use crate::typed::{extract, field_set, merge};

fn fixture() -> OwnershipFixture {
    OwnershipFixture::new(fixtures::widget(), "case.test/v1")
}

/// Every field of the object that anybody owns.
fn all_owned(object: &Value) -> FieldSet {
    let entries = ManagedFieldsEntry::read_all(&object["metadata"]["managedFields"]).unwrap();
    entries.iter().fold(FieldSet::new(), |all, entry| all.union(&entry.fields))
}

proptest! {
    #[test]
    fn apply_is_idempotent(before in any_widget(), config in any_widget()) {
        let mut story = fixture();
        story.update("before", &before);
        let once = story.apply_with("m", &config, true).unwrap();
        story.now = "2030-01-01T00:00:00Z".to_owned();
        prop_assert_eq!(story.apply("m", &config).unwrap(), once);
    }

    #[test]
    fn applied_fields_are_owned(before in any_widget(), config in any_widget()) {
        let mut story = fixture();
        story.update("before", &before);
        let after = story.apply_with("m", &config, true).unwrap();
        let mentioned = field_set(fixtures::widget(), &config);
        let there = extract(fixtures::widget(), &after, &mentioned.leaves());
        prop_assert_eq!(field_set(fixtures::widget(), &there).leaves(), mentioned.leaves());
        prop_assert_eq!(
            &extract(fixtures::widget(), &after, &mentioned)["spec"]["whole"],
            &config["spec"]["whole"]
        );
        let own = FieldSet::from_fields(&owned(&after, "m")).unwrap();
        prop_assert_eq!(own, mentioned.difference(never_owned()));
    }

    #[test]
    fn merging_keeps_every_leaf_of_the_config(object in any_widget(), config in any_widget()) {
        let schema = fixtures::widget();
        let merged = merge(schema, &object, &config).unwrap();
        let leaves = field_set(schema, &config).leaves();
        let missing = leaves.difference(&field_set(schema, &merged));
        prop_assert!(missing.is_empty(), "{:?}", missing);
        prop_assert_eq!(merge(schema, &merged, &config).unwrap(), merged);
    }

    /// A manager that applies nothing any more leaves nothing behind that no other manager owns.
    #[test]
    fn released_fields_are_removed(first in any_widget(), second in any_widget()) {
        let mut story = fixture();
        story.apply("m1", &first).unwrap();
        if story.apply("m2", &second).is_err() {
            return Ok(());
        }
        let nothing = json!({
            "apiVersion": "case.test/v1", "kind": "Widget", "metadata": { "name": "w" },
        });
        let after = story.apply("m1", &nothing).unwrap();
        prop_assert_eq!(owned(&after, "m1"), Value::Null);
        let left = field_set(fixtures::widget(), &after).leaves().difference(never_owned());
        let orphans = left.difference(&all_owned(&after));
        prop_assert!(orphans.is_empty(), "{:?} in {}", orphans, after);
    }

    /// Two managers whose configs do not contradict each other may come in any order.
    #[test]
    fn agreeing_managers_commute(first in any_widget(), second in any_widget()) {
        let (mut one, mut other) = (fixture(), fixture());
        one.apply("m1", &first).unwrap();
        other.apply("m2", &second).unwrap();
        let (Ok(one), Ok(other)) = (one.apply("m2", &second), other.apply("m1", &first)) else {
            return Ok(());
        };
        let fields = |object: &Value| {
            (owned(object, "m1"), owned(object, "m2"), field_set(fixtures::widget(), object))
        };
        prop_assert_eq!(fields(&one), fields(&other));
    }

    /// A write owns what it changed, and fields that do not exist have no owner.
    #[test]
    fn owned_fields_exist(writes in prop::collection::vec(any_widget(), 1..5)) {
        let mut story = fixture();
        for (place, write) in writes.iter().enumerate() {
            let after = story.update(&format!("m{place}"), write);
            let there = field_set(fixtures::widget(), &after);
            let leaves = all_owned(&after).leaves();
            let inner = crate::typed::with_named_fields(fixtures::widget(), &there);
            let ghosts = leaves.difference(&inner);
            prop_assert!(ghosts.is_empty(), "{:?} in {}", ghosts, after);
            let unowned = there.leaves().difference(&all_owned(&after)).difference(never_owned());
            prop_assert!(unowned.is_empty(), "{:?} in {}", unowned, after);
        }
    }

    #[test]
    fn nothing_panics(
        live in prop::option::of(any_json()),
        new in any_json(),
        force in any::<bool>(),
        entries in any_json(),
    ) {
        for schema in [fixtures::deployment(), fixtures::widget(), fixtures::config_map()] {
            let story = OwnershipFixture::new(schema, "v1");
            let context = story.context("kubectl");
            let mut live = live.clone();
            if let Some(Value::Object(live)) = &mut live {
                live.insert(
                    "metadata".to_owned(),
                    json!({ "uid": "u", "managedFields": entries }),
                );
            }
            let _ = update(&context, live.as_ref(), &mut new.clone());
            let _ = apply(&context, live.as_ref(), &new, force);
            let _ = is_unchanged(&new, live.as_ref().unwrap_or(&Value::Null));
        }
    }
}
