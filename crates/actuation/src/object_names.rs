//! Deterministic names of providers and launchers.
//!
//! A create whose response was lost is repeated under the same name, and so creates nothing twice.

use gantry_reconcile::Uid;

use crate::digest::hex_sha256;

/// The longest name: label values hold names of pods, nodes and LauncherConfigs.
pub const MAX_NAME_LENGTH: usize = 63;
/// How many hexadecimal digits of a hash a name ends with.
const HASH_LENGTH: usize = 8;

/// The name of a requester's direct provider.
#[must_use]
pub fn direct_provider(requester: &str, uid: &Uid, nominal_hash: &str) -> String {
    join(&format!("{requester}-dual"), &[uid.as_str(), nominal_hash])
}

/// The name of a launcher that is created for a requester.
#[must_use]
pub fn requested_launcher(launcher_config: &str, requester: &Uid) -> String {
    join(&format!("launcher-{launcher_config}"), &[requester.as_str()])
}

/// The place of a launcher that a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LauncherPlace<'a> {
    /// The node.
    pub node: &'a str,
    /// The UID of the LauncherConfig.
    pub config: &'a Uid,
    /// The hash of the template.
    pub template_hash: &'a str,
    /// Which of the node's launchers it is. A create that arrives once more after its launcher was
    /// deleted makes one that is wanted, or one too many, which is deleted.
    pub place: usize,
}

/// The name of a launcher that a policy wants.
#[must_use]
pub fn stocked_launcher(launcher_config: &str, place: LauncherPlace<'_>) -> String {
    let LauncherPlace { node, config, template_hash, place } = place;
    let place = place.to_string();
    let parts = [node, config.as_str(), template_hash, &place];
    join(&format!("launcher-{launcher_config}"), &parts)
}

/// What is wrong with a name that must be a label value; `None` if it is short enough.
#[must_use]
pub fn length_problem(what: &str, name: &str) -> Option<String> {
    (name.len() > MAX_NAME_LENGTH).then(|| {
        format!(
            "the name of {what} \"{name}\" has {} characters; labels hold at most \
             {MAX_NAME_LENGTH}: use a shorter name",
            name.len()
        )
    })
}

/// The readable part, cut as needed, and a hash of the parts.
fn join(readable: &str, parts: &[&str]) -> String {
    let hash = hex_sha256(&[&parts.join("\n")]);
    let most = MAX_NAME_LENGTH - HASH_LENGTH - 1;
    let cut = readable.char_indices().map(|(at, it)| at + it.len_utf8());
    let cut = cut.take_while(|end| *end <= most).last().unwrap_or_default();
    // A name of a pod may not have a dot before a hyphen.
    let readable = readable[..cut].trim_end_matches(['-', '.']);
    format!("{readable}-{}", &hash[..HASH_LENGTH])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_78_long_names_are_cut_and_reported() {
        let uid = Uid::new("u");
        assert_eq!(direct_provider("web", &uid, "h"), direct_provider("web", &uid, "h"));
        assert!(direct_provider("web", &uid, "h").starts_with("web-dual-"));
        let long = requested_launcher(&"x".repeat(80), &uid);
        assert_eq!(long.len(), 63, "{long}");
        assert_eq!(length_problem("requester", &"x".repeat(63)), None);
        let problem = length_problem("requester", &"x".repeat(64)).unwrap();
        assert!(problem.contains("has 64 characters"), "{problem}");
    }

    proptest! {
        /// Names are valid, and distinct for distinct inputs.
        #[test]
        fn names_are_short_and_distinct(
            config in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?([.][a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?){0,2}",
            places in proptest::collection::btree_set((0_usize..81, "[a-z]{1,3}"), 1..40),
        ) {
            let uid = Uid::new("7d0c");
            let names: BTreeSet<String> = places.iter().map(|(place, node)| {
                let (config_uid, place) = (&uid, *place);
                let place = LauncherPlace { node, config: config_uid, template_hash: "h", place };
                stocked_launcher(&config, place)
            }).collect();
            prop_assert_eq!(names.len(), places.len());
            for name in names {
                prop_assert!(name.len() <= MAX_NAME_LENGTH, "{}", name);
                prop_assert_eq!(gantry_api::meta::dns_subdomain_problem(&name), None, "{}", name);
            }
        }
    }
}
