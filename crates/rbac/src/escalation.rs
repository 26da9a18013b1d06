//! Privilege escalation checks: users may only grant permissions they hold.

use std::collections::{BTreeSet, HashMap};

use crate::attributes::User;
use crate::policy::Policy;
use crate::rule::{Rule, has_or_wildcard, matches_path, quoted};

/// The largest number of single permissions a grant is broken down into.
///
/// A rule grants every combination of what it lists, so that a small object can grant billions. The
/// largest role Kubernetes itself creates has 3,000, and comparing this many takes milliseconds.
const MAX_PERMISSIONS: usize = 100_000;

/// A grant has more permissions than can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPermissions;

/// Whether the owner's rules allow everything that the other rules allow.
#[must_use]
pub fn covers(owner: &[Rule], other: &[Rule]) -> bool {
    matches!(missing(owner, other), Ok(missing) if missing.is_empty())
}

/// Returns the permissions of the other rules that the owner's rules do not allow, broken down: one
/// verb, one group, one resource and at most one name, or one verb and one path.
///
/// # Errors
/// [`TooManyPermissions`] if the rules have too many permissions to compare.
pub fn missing(owner: &[Rule], other: &[Rule]) -> Result<Vec<Rule>, TooManyPermissions> {
    // A rule that is covered as a whole need not be broken down. Resource names do not apply to
    // paths, so a rule which has both, and is refused later on, is not judged as a whole.
    let whole = |rule: &Rule| rule.non_resource_urls.is_empty() || rule.resource_names.is_empty();
    let covered = |rule: &Rule| whole(rule) && owner.iter().any(|own| own.covers(rule));
    let open: Vec<&Rule> = other.iter().filter(|rule| !covered(rule)).collect();
    let parts =
        open.iter().map(|rule| rule.permission_count()).fold(0_usize, usize::saturating_add);
    if parts > MAX_PERMISSIONS {
        return Err(TooManyPermissions);
    }
    let parts = open.into_iter().flat_map(Rule::breakdown);
    Ok(parts.filter(|part| !owner.iter().any(|own| own.covers(part))).collect())
}

impl Policy {
    /// Returns why a user may not grant these rules in a namespace, or in the cluster if it is
    /// empty; `None` if the user holds all of them. `written` is the resource by which they would
    /// be granted.
    #[must_use]
    pub fn escalation_error(
        &self,
        user: User<'_>,
        namespace: &str,
        written: &str,
        rules: &[Rule],
    ) -> Option<String> {
        let held = self.effective_rules_of_granter(user, namespace, written);
        let lacking = match missing(&held.rules, rules) {
            Ok(lacking) if lacking.is_empty() => return None,
            Ok(lacking) => {
                let shown: BTreeSet<String> =
                    compact(lacking).iter().map(Rule::to_string).collect();
                shown.into_iter().collect::<Vec<_>>().join("\n")
            }
            Err(TooManyPermissions) => {
                format!("more than {MAX_PERMISSIONS} permissions, which are too many to compare")
            }
        };
        let (name, groups) = (gantry_schema::quote(user.name), quoted(user.groups));
        let mut words = format!(
            "user {name} (groups={groups}) is attempting to grant RBAC permissions not currently \
             held:\n{lacking}"
        );
        if !held.errors.is_empty() {
            words.push_str(&format!("; resolution errors: [{}]", held.errors));
        }
        Some(words)
    }
}

/// Merges the verbs of rules that are otherwise the same. Rules about paths stay as they are.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    let mut known: HashMap<Rule, usize> = HashMap::new();
    for rule in rules {
        if !rule.non_resource_urls.is_empty() {
            compacted.push(rule);
            continue;
        }
        let alike = Rule { verbs: Vec::new(), ..rule.clone() };
        let place = *known.entry(alike).or_insert(compacted.len());
        match compacted.get_mut(place) {
            Some(first) => first.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

impl Rule {
    /// Returns the number of single permissions of the rule.
    fn permission_count(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let counts = [self.api_groups.len(), self.resources.len(), self.verbs.len(), names];
        let resources = counts.into_iter().fold(1, usize::saturating_mul);
        let paths = self.non_resource_urls.len().saturating_mul(self.verbs.len());
        resources.saturating_add(paths)
    }

    /// Breaks the rule down into single permissions.
    fn breakdown(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    for name in &self.resource_names {
                        parts.push(Rule { resource_names: one(name), ..part.clone() });
                    }
                }
            }
        }
        for path in &self.non_resource_urls {
            for verb in &self.verbs {
                let (verbs, non_resource_urls) = (one(verb), one(path));
                parts.push(Rule { verbs, non_resource_urls, ..Rule::default() });
            }
        }
        parts
    }

    /// Whether this rule alone allows everything that another rule allows.
    fn covers(&self, other: &Rule) -> bool {
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty()
                && other.resource_names.iter().all(|it| self.resource_names.contains(it)));
        names
            && other.verbs.iter().all(|it| has_or_wildcard(&self.verbs, it))
            && other.api_groups.iter().all(|it| has_or_wildcard(&self.api_groups, it))
            && other.resources.iter().all(|it| self.covers_resource(it))
            && other
                .non_resource_urls
                .iter()
                .all(|path| self.non_resource_urls.iter().any(|own| matches_path(own, path)))
    }

    fn covers_resource(&self, resource: &str) -> bool {
        let part = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
        has_or_wildcard(&self.resources, resource)
            || part.is_some_and(|any| self.resources.contains(&any))
    }
}

#[cfg(test)]
mod tests;
