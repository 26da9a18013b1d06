//! Whoever writes roles and bindings may give away only what they hold.

use gantry_rbac::{Attributes, Binding, Rule, rules};
use serde_json::{Value, json};

use crate::api::Api;
use crate::authority::GROUP;
use crate::status::Refusal;
use crate::write::{Write, meta};

impl Api {
    /// Refuses a role or a binding by which the caller would give away more than they hold, unless
    /// they have the right to do just that: `escalate` for roles, `bind` for bindings. `asked` is the
    /// name in the path, which a request for a new object has none of.
    pub(crate) fn check_grant(
        &self,
        write: &Write,
        asked: &str,
        live: Option<&Value>,
        object: &Value,
    ) -> Result<(), Refusal> {
        if write.resource.group != GROUP || write.caller.user().is_administrator() {
            return Ok(());
        }
        match write.resource.plural.as_str() {
            "roles" | "clusterroles" => self.check_role(write, asked, live, object),
            "rolebindings" | "clusterrolebindings" => self.check_binding(write, live, object),
            _ => Ok(()),
        }
    }

    fn check_role(
        &self,
        write: &Write,
        asked: &str,
        live: Option<&Value>,
        role: &Value,
    ) -> Result<(), Refusal> {
        let escalate = Attributes::resource("escalate", GROUP, &write.resource.plural)
            .inside(&write.namespace)
            .named(asked);
        if self.authorize(&write.caller, &escalate).allowed
            || live.is_some_and(|live| frees_only(live, role))
        {
            return Ok(());
        }
        self.check_rules(write, role, &rules(role))?;
        // One that gathers others can gather anything, and one that did cannot be cut down by
        // whoever may not give everything away.
        let gathers = |role: &Value| {
            let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
            selectors.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
        };
        if write.resource.plural == "clusterroles" && (gathers(role) || live.is_some_and(gathers)) {
            let all = json!({ "rules": [
                { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
                { "verbs": ["*"], "nonResourceURLs": ["*"] },
            ] });
            if self.check_rules(write, role, &rules(&all)).is_err() {
                let why = "must have cluster-admin privileges to use the aggregationRule";
                return Err(forbidden(write, role, why));
            }
        }
        Ok(())
    }

    fn check_binding(
        &self,
        write: &Write,
        live: Option<&Value>,
        object: &Value,
    ) -> Result<(), Refusal> {
        if live.is_some_and(|live| frees_only(live, object)) {
            return Ok(());
        }
        let role = Binding::read(object).role_ref;
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => "",
        };
        let bind = Attributes::resource("bind", &role.api_group, plural)
            .inside(&write.namespace)
            .named(&role.name);
        if !plural.is_empty() && self.authorize(&write.caller, &bind).allowed {
            return Ok(());
        }
        let found = self
            .0
            .authority
            .policy(&self.0.store, |policy| policy.rules_of(&role, &write.namespace));
        match found {
            Some(rules) => self.check_rules(write, object, &rules),
            None if plural.is_empty() => {
                let kind = gantry_schema::quote(&role.kind);
                Err(Refusal::failure(format!("unsupported role reference kind: {kind}")))
            }
            None if plural == "roles" && write.namespace.is_empty() => {
                Err(Refusal::bad_request("Namespace parameter required."))
            }
            // Named after what is written, as the real server does it.
            None => Err(Refusal::not_found(GROUP, &write.resource.plural, &role.name)),
        }
    }

    fn check_rules(&self, write: &Write, object: &Value, rules: &[Rule]) -> Result<(), Refusal> {
        let why = self.0.authority.policy(&self.0.store, |policy| {
            policy.escalation(write.caller.user(), &write.namespace, &write.resource.plural, rules)
        });
        why.map_or(Ok(()), |why| Err(forbidden(write, object, &why)))
    }
}

fn forbidden(write: &Write, object: &Value, why: &str) -> Refusal {
    Refusal::forbidden(GROUP, &write.resource.plural, meta(object, "name"), why)
}

/// Whether a change only lets an object go: owners and finalizers grant nothing.
fn frees_only(live: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for name in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.shift_remove(name);
            }
        }
        object
    };
    rest(live) == rest(new)
}
