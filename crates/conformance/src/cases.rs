//! The cases, by topic.

mod objects;
mod roles;

mod discovery;
mod errors;
mod negotiation;
mod openapi;
mod protobuf;
mod tables;

mod deletion;
mod dry_run;
mod evictions;
mod field_validation;
mod metadata;
mod pagination;
mod pod_admission;
mod revisions;
mod selectors;
mod watches;

mod apply;
mod apply_lists;
mod patches;
mod strategic_merge;

mod access;
mod certificates;
mod grants;
mod reviews;
mod tokens;

mod cluster;
mod controllers;
mod streams;

mod custom_objects;
mod custom_rules;
mod custom_validation;
mod custom_versions;
mod definitions;

mod conversion;
mod conversion_failures;
mod conversion_storage;
mod policies;
mod policy_case;
mod policy_libraries;
mod policy_matching;
mod policy_validation;
mod quotas;
mod services;

mod webhook_failures;
mod webhook_matching;
mod webhook_mutations;
mod webhooks;

use crate::case::Case;

/// A topic and its cases.
pub type Topic = (&'static str, &'static [Case]);

/// Every topic, in the order in which they are run.
pub const TOPICS: [Topic; 44] = [
    ("discovery", discovery::CASES),
    ("openapi", openapi::CASES),
    ("negotiation", negotiation::CASES),
    ("protobuf", protobuf::CASES),
    ("tables", tables::CASES),
    ("errors", errors::CASES),
    ("revisions", revisions::CASES),
    ("metadata", metadata::CASES),
    ("deletion", deletion::CASES),
    ("evictions", evictions::CASES),
    ("admission of pods", pod_admission::CASES),
    ("paging", pagination::CASES),
    ("watches", watches::CASES),
    ("selectors", selectors::CASES),
    ("dry run", dry_run::CASES),
    ("field validation", field_validation::CASES),
    ("patches", patches::CASES),
    ("strategic merge", strategic_merge::CASES),
    ("apply", apply::CASES),
    ("apply to lists", apply_lists::CASES),
    ("access", access::CASES),
    ("reviews", reviews::CASES),
    ("grants", grants::CASES),
    ("tokens", tokens::CASES),
    ("certificates", certificates::CASES),
    ("streams", streams::CASES),
    ("definitions", definitions::CASES),
    ("custom objects", custom_objects::CASES),
    ("custom validation", custom_validation::CASES),
    ("custom rules", custom_rules::CASES),
    ("custom versions", custom_versions::CASES),
    ("policies", policies::CASES),
    ("policy libraries", policy_libraries::CASES),
    ("policy matching", policy_matching::CASES),
    ("policy validity", policy_validation::CASES),
    ("quotas", quotas::CASES),
    ("services", services::CASES),
    ("conversion", conversion::CASES),
    ("conversion faults", conversion_failures::CASES),
    ("conversion and storage", conversion_storage::CASES),
    ("webhooks", webhooks::CASES),
    ("changes by webhooks", webhook_mutations::CASES),
    ("matching of webhooks", webhook_matching::CASES),
    ("faults of webhooks", webhook_failures::CASES),
];

/// Topics for a server with controllers that forgets old revisions within seconds.
pub const CONTROLLED_TOPICS: [Topic; 1] = [("controllers", controllers::CASES)];

/// Topics for a whole cluster, whose controllers sign tokens and certificates as the server does.
pub const CLUSTER_TOPICS: [Topic; 2] =
    [("cluster", cluster::CASES), ("signed certificates", certificates::CLUSTER_CASES)];

/// Every case for a whole cluster.
pub fn whole_cluster() -> impl Iterator<Item = Case> {
    CLUSTER_TOPICS.iter().flat_map(|(_, cases)| cases.iter().copied())
}

/// Every case for a server with controllers that forgets old revisions within seconds.
pub fn controlled() -> impl Iterator<Item = Case> {
    CONTROLLED_TOPICS.iter().flat_map(|(_, cases)| cases.iter().copied())
}

/// Every case for a server alone.
pub fn all() -> impl Iterator<Item = Case> {
    TOPICS.iter().flat_map(|(_, cases)| cases.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario;

    /// A namespace's name has 63 letters; a run adds a dash and a label of up to 15.
    const LONGEST_NAME: usize = 47;

    #[test]
    fn names_fit_a_namespace_and_differ() {
        let mut seen = BTreeSet::new();
        for Case { name, .. } in all().chain(controlled()).chain(whole_cluster()) {
            let plain = name.chars().all(|it| it.is_ascii_lowercase() || it == '-');
            assert!(plain && !name.starts_with('-') && !name.ends_with('-'), "{name}");
            assert!(name.len() <= LONGEST_NAME, "{name}");
            assert!(seen.insert(name), "{name} twice");
        }
    }

    #[test]
    fn scenarios_exist() {
        for Case { name, scenarios, .. } in all().chain(controlled()).chain(whole_cluster()) {
            for number in scenarios {
                assert!(scenario::title(*number).is_some(), "{name}: {number}");
            }
        }
    }
}
