//! Privilege escalation checks: users who write roles and bindings may grant only permissions they
//! hold.

use gantry_rbac::{Attributes, Binding, Rule, rules};
use serde_json::{Value, json};

use crate::access::authorizer::GROUP;
use crate::api::Api;
use crate::response::status::StatusError;
use crate::verbs::write::{Write, meta};

impl Api {
    /// Refuses a role or a binding by which the caller would grant more than they hold, unless they
    /// have the permission to do just that: `escalate` for roles, `bind` for bindings. `asked` is
    /// the name in the path, which a create request does not have.
    pub(crate) fn check_escalation(
        &self,
        write: &Write,
        asked: &str,
        live: Option<&Value>,
        object: &Value,
    ) -> Result<(), StatusError> {
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
    ) -> Result<(), StatusError> {
        let escalate = Attributes::resource("escalate", GROUP, &write.resource.plural)
            .in_namespace(&write.namespace)
            .with_name(asked);
        if self.authorize(&write.caller, &escalate).allowed
            || live.is_some_and(|live| only_releases_object(live, role))
        {
            return Ok(());
        }
        self.check_rules(write, role, &rules(role))?;
        // An aggregated role can collect any rules, so only callers who may grant everything can
        // write one, also to make it a role that is not aggregated.
        let is_aggregated = |role: &Value| {
            let selectors = role.pointer("/aggregationRule/clusterRoleSelectors");
            selectors.and_then(Value::as_array).is_some_and(|list| !list.is_empty())
        };
        if write.resource.plural == "clusterroles"
            && (is_aggregated(role) || live.is_some_and(is_aggregated))
        {
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
    ) -> Result<(), StatusError> {
        if live.is_some_and(|live| only_releases_object(live, object)) {
            return Ok(());
        }
        let role = Binding::read(object).role_ref;
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => "",
        };
        let bind = Attributes::resource("bind", &role.api_group, plural)
            .in_namespace(&write.namespace)
            .with_name(&role.name);
        if !plural.is_empty() && self.authorize(&write.caller, &bind).allowed {
            return Ok(());
        }
        let found = self
            .0
            .authorizer
            .with_policy(&self.0.store, |policy| policy.rules_of(&role, &write.namespace));
        match found {
            Some(rules) => self.check_rules(write, object, &rules),
            None if plural.is_empty() => {
                let kind = gantry_schema::quote(&role.kind);
                Err(StatusError::failure(format!("unsupported role reference kind: {kind}")))
            }
            None if plural == "roles" && write.namespace.is_empty() => {
                Err(StatusError::bad_request("Namespace parameter required."))
            }
            // Named after the written resource, as upstream.
            None => Err(StatusError::not_found(GROUP, &write.resource.plural, &role.name)),
        }
    }

    fn check_rules(
        &self,
        write: &Write,
        object: &Value,
        rules: &[Rule],
    ) -> Result<(), StatusError> {
        let why = self.0.authorizer.with_policy(&self.0.store, |policy| {
            policy.escalation_error(
                write.caller.user(),
                &write.namespace,
                &write.resource.plural,
                rules,
            )
        });
        why.map_or(Ok(()), |why| Err(forbidden(write, object, &why)))
    }
}

fn forbidden(write: &Write, object: &Value, why: &str) -> StatusError {
    StatusError::forbidden(GROUP, &write.resource.plural, meta(object, "name"), why)
}

/// Whether a change only affects owners and finalizers, which grant nothing.
fn only_releases_object(live: &Value, new: &Value) -> bool {
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
