//! Matches requests: rules about resources, and selectors of namespaces and objects.

use serde_json::Value;

use crate::request::{AdmissionContext, Operation, Request, ResourceView};

/// Who is meant by a policy, a binding or a webhook.
#[derive(Clone, Debug)]
pub struct Criteria {
    include: Vec<Rule>,
    exclude: Vec<Rule>,
    /// Whether having no rules means everything.
    all_without_rules: bool,
    namespaces: Value,
    objects: Value,
    equivalent: bool,
}

/// The namespace that decides is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceNotFound(pub String);

impl std::fmt::Display for NamespaceNotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "namespaces {:?} not found", self.0)
    }
}

impl std::error::Error for NamespaceNotFound {}

impl Criteria {
    /// The constraints of a policy, or the resources of a binding.
    #[must_use]
    pub fn of_policy(resources: &Value) -> Self {
        Self {
            include: Rule::list(&resources["resourceRules"]),
            exclude: Rule::list(&resources["excludeResourceRules"]),
            all_without_rules: true,
            namespaces: resources["namespaceSelector"].clone(),
            objects: resources["objectSelector"].clone(),
            equivalent: resources["matchPolicy"] == "Equivalent",
        }
    }

    /// Whom a webhook wants to be asked about.
    #[must_use]
    pub fn of_webhook(hook: &Value) -> Self {
        Self {
            include: Rule::list(&hook["rules"]),
            exclude: Vec::new(),
            all_without_rules: false,
            namespaces: hook["namespaceSelector"].clone(),
            objects: hook["objectSelector"].clone(),
            equivalent: hook["matchPolicy"] == "Equivalent",
        }
    }

    /// The view of the resource in which a request is meant, if it is.
    ///
    /// # Errors
    /// When the labels of a namespace decide and there is no such namespace.
    pub fn matches(
        &self,
        request: &Request<'_>,
        world: &dyn AdmissionContext,
    ) -> Result<Option<ResourceView>, NamespaceNotFound> {
        // Whether it matters that the namespace is missing shows when all else fits.
        let namespace = self.in_namespace(request, world);
        if namespace == Ok(false) || !self.selects_object(request) {
            return Ok(None);
        }
        if self.matched_by(&self.exclude, request, world).is_some() {
            return Ok(None);
        }
        let view = if self.include.is_empty() && self.all_without_rules {
            Some(request.view.clone())
        } else {
            self.matched_by(&self.include, request, world)
        };
        match view {
            Some(view) => namespace.map(|_| Some(view)),
            None => Ok(None),
        }
    }

    fn in_namespace(
        &self,
        request: &Request<'_>,
        world: &dyn AdmissionContext,
    ) -> Result<bool, NamespaceNotFound> {
        let selector = &self.namespaces;
        let named = request.view.resource == "namespaces";
        // Selectors of namespaces exempt nothing that is in none.
        if (request.namespace.is_empty() && !named)
            || selector.is_null()
            || gantry_kinds::selects_all(selector)
        {
            return Ok(true);
        }
        let changes = matches!(request.operation, Operation::Create | Operation::Update);
        // A namespace that is being written is known by what is written.
        if named && request.subresource.is_empty() && changes {
            return Ok(request.object.is_some_and(|object| selects(selector, object)));
        }
        let Some(namespace) = world.namespace(request.namespace) else {
            return Err(NamespaceNotFound(request.namespace.to_owned()));
        };
        Ok(selects(selector, &namespace))
    }

    fn selects_object(&self, request: &Request<'_>) -> bool {
        let selector = &self.objects;
        if selector.is_null() || gantry_kinds::selects_all(selector) {
            return true;
        }
        let mut objects = [request.object, request.old].into_iter().flatten();
        objects.any(|object| selects(selector, object))
    }

    fn matched_by(
        &self,
        rules: &[Rule],
        request: &Request<'_>,
        world: &dyn AdmissionContext,
    ) -> Option<ResourceView> {
        if rules.iter().any(|rule| rule.matches(request, request.view)) {
            return Some(request.view.clone());
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let others = world.equivalents();
        // Rules decide before views do, in the order they are written.
        rules
            .iter()
            .find_map(|rule| {
                others.iter().find(|view| *view != request.view && rule.matches(request, view))
            })
            .cloned()
    }
}

fn selects(selector: &Value, object: &Value) -> bool {
    gantry_kinds::selects(selector, &object["metadata"]["labels"])
}

/// One rule about resources.
#[derive(Clone, Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    fn list(rules: &Value) -> Vec<Self> {
        rules.as_array().into_iter().flatten().map(Self::read).collect()
    }

    fn read(rule: &Value) -> Self {
        let words = |name: &str| {
            let list = rule[name].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            operations: words("operations"),
            groups: words("apiGroups"),
            versions: words("apiVersions"),
            resources: words("resources"),
            names: words("resourceNames"),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    fn matches(&self, request: &Request<'_>, view: &ResourceView) -> bool {
        let in_cluster = request.namespace.is_empty() || request.is_namespace();
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => in_cluster,
            Scope::Namespaced => !in_cluster,
        };
        scope
            && has(&self.operations, request.operation.as_str())
            && has(&self.groups, &view.group)
            && has(&self.versions, &view.version)
            && self.resources.iter().any(|wanted| {
                let (resource, part) = wanted.split_once('/').unwrap_or((wanted, ""));
                (resource == "*" || resource == view.resource)
                    && (part == "*" || part == request.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| name == request.name))
    }
}

fn has(wanted: &[String], found: &str) -> bool {
    wanted.iter().any(|it| it == "*" || it == found)
}
