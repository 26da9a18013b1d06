//! Roles and bindings, indexed by subject.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::attributes::{Attributes, User};
use crate::binding::{Binding, RoleRef, SubjectKey};
use crate::rule::{Rule, rules};

/// Whether a request is allowed, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// What allows it, or which errors occurred; often empty.
    pub reason: String,
}

/// The rules a user holds in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveRules {
    /// The rules, binding by binding.
    pub rules: Vec<Rule>,
    /// The errors that occurred, in one line; empty if none.
    pub errors: String,
}

/// All roles and bindings.
///
/// Each role is stored once, however many bindings name it, and bindings are indexed by their
/// subjects: a decision only looks at the bindings of the user.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    cluster_bindings: Bindings,
    bindings: HashMap<String, Bindings>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Clone, Debug, Default)]
struct Bindings {
    by_name: BTreeMap<Arc<str>, Arc<Binding>>,
    by_subject: HashMap<SubjectKey, BTreeSet<Arc<str>>>,
}

/// Why a role is looked up, which decides how a missing role is named.
#[derive(Clone, Copy, Debug)]
enum LookupPurpose<'a> {
    /// To decide a request: a missing role is named by its kind, `role.rbac…`.
    Decision,
    /// To write a role or binding: it is named by the written resource, whatever is missing.
    Write(&'a str),
}

impl Policy {
    /// Stores a ClusterRole under its name.
    pub fn set_cluster_role(&mut self, name: &str, role: &Value) {
        self.cluster_roles.insert(name.to_owned(), rules(role).into());
    }

    /// Removes a ClusterRole.
    pub fn remove_cluster_role(&mut self, name: &str) {
        self.cluster_roles.remove(name);
    }

    /// Stores a Role.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: &Value) {
        let roles = self.roles.entry(namespace.to_owned()).or_default();
        roles.insert(name.to_owned(), rules(role).into());
    }

    /// Removes a Role.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    /// Stores a ClusterRoleBinding.
    pub fn set_cluster_binding(&mut self, name: &str, binding: &Value) {
        self.cluster_bindings.set("", name, Binding::read(binding));
    }

    /// Removes a ClusterRoleBinding.
    pub fn remove_cluster_binding(&mut self, name: &str) {
        self.cluster_bindings.remove("", name);
    }

    /// Stores a RoleBinding.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: &Value) {
        let bindings = self.bindings.entry(namespace.to_owned()).or_default();
        bindings.set(namespace, name, Binding::read(binding));
    }

    /// Removes a RoleBinding.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        if let Some(bindings) = self.bindings.get_mut(namespace) {
            bindings.remove(namespace, name);
            if bindings.by_name.is_empty() {
                self.bindings.remove(namespace);
            }
        }
    }

    /// Decides whether a user may do this.
    #[must_use]
    pub fn decide(&self, user: User<'_>, asked: &Attributes) -> Decision {
        if user.is_administrator() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut errors = Vec::new();
        for found in self.bindings_of(user, asked.namespace()) {
            match self.find(&found.binding.role_ref, found.namespace, LookupPurpose::Decision) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    return Decision { allowed: true, reason: found.reason(user) };
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        let reason = match join_errors(errors) {
            errors if errors.is_empty() => errors,
            errors => format!("RBAC: {errors}"),
        };
        Decision { allowed: false, reason }
    }

    /// Returns every reason for which a user may do this, in the order of the bindings.
    /// [`Self::decide`] returns the first of them.
    #[must_use]
    pub fn reasons(&self, user: User<'_>, asked: &Attributes) -> Vec<String> {
        let mut reasons = Vec::new();
        for found in self.bindings_of(user, asked.namespace()) {
            let rules =
                self.find(&found.binding.role_ref, found.namespace, LookupPurpose::Decision);
            if rules.is_ok_and(|rules| rules.iter().any(|rule| rule.allows(asked))) {
                reasons.push(found.reason(user));
            }
        }
        reasons
    }

    /// Returns the rules a user holds in a namespace; in the whole cluster if it is empty.
    #[must_use]
    pub fn effective_rules(&self, user: User<'_>, namespace: &str) -> EffectiveRules {
        self.effective_rules_in(user, namespace, LookupPurpose::Decision)
    }

    /// As [`Self::effective_rules`], for escalation errors, which name a missing role as the
    /// storage does.
    pub(crate) fn effective_rules_of_granter(
        &self,
        user: User<'_>,
        namespace: &str,
        written: &str,
    ) -> EffectiveRules {
        self.effective_rules_in(user, namespace, LookupPurpose::Write(written))
    }

    fn effective_rules_in(
        &self,
        user: User<'_>,
        namespace: &str,
        seeker: LookupPurpose<'_>,
    ) -> EffectiveRules {
        let (mut held, mut errors) = (Vec::new(), Vec::new());
        for found in self.bindings_of(user, namespace) {
            match self.find(&found.binding.role_ref, found.namespace, seeker) {
                Ok(rules) => held.extend(rules.iter().cloned()),
                Err(error) => errors.push(error),
            }
        }
        EffectiveRules { rules: held, errors: join_errors(errors) }
    }

    /// Returns the rules of a role that a binding in `namespace` names; the namespace is empty for
    /// a ClusterRoleBinding. `None` if there is no such role.
    #[must_use]
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<Arc<[Rule]>> {
        self.find(role, namespace, LookupPurpose::Decision).ok().cloned()
    }

    fn find(
        &self,
        role: &RoleRef,
        namespace: &str,
        seeker: LookupPurpose<'_>,
    ) -> Result<&Arc<[Rule]>, String> {
        let RoleRef { kind, name, .. } = role;
        let (found, sort) = match kind.as_str() {
            "ClusterRole" => (self.cluster_roles.get(name), "clusterrole"),
            "Role" => {
                let roles = self.roles.get(namespace);
                (roles.and_then(|roles| roles.get(name)), "role")
            }
            _ => {
                let kind = gantry_schema::quote(kind);
                return Err(format!("unsupported role reference kind: {kind}"));
            }
        };
        found.ok_or_else(|| {
            let sort = match seeker {
                LookupPurpose::Decision => sort,
                LookupPurpose::Write(resource) => resource,
            };
            format!("{sort}.rbac.authorization.k8s.io \"{name}\" not found")
        })
    }

    /// Iterates over the bindings that name a user: ClusterRoleBindings first, each kind by name.
    fn bindings_of<'a>(&'a self, user: User<'_>, namespace: &'a str) -> Vec<MatchedBinding<'a>> {
        let mut found = self.cluster_bindings.matching(user, "");
        if !namespace.is_empty()
            && let Some(bindings) = self.bindings.get(namespace)
        {
            found.extend(bindings.matching(user, namespace));
        }
        found
    }
}

/// A binding that names the user.
struct MatchedBinding<'a> {
    name: &'a str,
    namespace: &'a str,
    binding: &'a Binding,
}

impl MatchedBinding<'_> {
    fn reason(&self, user: User<'_>) -> String {
        let quote = gantry_schema::quote;
        let Self { name, namespace, binding } = self;
        let RoleRef { kind, name: role, .. } = &binding.role_ref;
        let own = match *namespace {
            "" => format!("ClusterRoleBinding {}", quote(name)),
            namespace => format!("RoleBinding {}", quote(&format!("{name}/{namespace}"))),
        };
        let subject = binding.subject(user, namespace);
        let subject = subject.map(|it| it.describe(namespace)).unwrap_or_default();
        format!("RBAC: allowed by {own} of {kind} {} to {subject}", quote(role))
    }
}

impl Bindings {
    fn set(&mut self, namespace: &str, name: &str, binding: Binding) {
        self.remove(namespace, name);
        let name: Arc<str> = name.into();
        for subject in &binding.subjects {
            if let Some(key) = subject.key(namespace) {
                self.by_subject.entry(key).or_default().insert(Arc::clone(&name));
            }
        }
        self.by_name.insert(name, Arc::new(binding));
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for key in binding.subjects.iter().filter_map(|subject| subject.key(namespace)) {
            if let Some(names) = self.by_subject.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    self.by_subject.remove(&key);
                }
            }
        }
    }

    fn matching<'a>(&'a self, user: User<'_>, namespace: &'a str) -> Vec<MatchedBinding<'a>> {
        let groups = user.groups.iter().map(|group| SubjectKey::Group(group.clone()));
        let keys = std::iter::once(SubjectKey::User(user.name.to_owned())).chain(groups);
        let named = keys.filter_map(|key| self.by_subject.get(&key));
        let mut names: Vec<&Arc<str>> = named.flatten().collect();
        names.sort_unstable();
        names.dedup();
        let found = names.into_iter().filter_map(|name| {
            self.by_name.get(name).map(|binding| MatchedBinding { name, namespace, binding })
        });
        found.collect()
    }
}

/// Joins several errors in one line, each once.
fn join_errors(errors: Vec<String>) -> String {
    let mut said: Vec<String> = Vec::new();
    for error in errors {
        if !said.contains(&error) {
            said.push(error);
        }
    }
    match said.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests;
