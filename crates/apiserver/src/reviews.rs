//! Requests that are questions: who am I, may I.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::answer;
use crate::api::{Api, Ask};
use crate::body::Body;
use crate::decode;
use crate::query::WriteOptions;
use crate::status::Refusal;
use crate::write::{Write, seconds};

impl Api {
    /// Answers a question, if the request is one.
    pub(crate) async fn review(&self, ask: &Ask) -> Result<Option<Response<Body>>, Refusal> {
        let options = || WriteOptions::read(&ask.query, "CreateOptions");
        let (group, plural) = (ask.resource.group.as_str(), ask.resource.plural.as_str());
        if (group, plural) == ("", "bindings") {
            let options = options()?;
            let binding = decode::body(ask, options.validation)?.object;
            self.bind_pod(ask, &options, &binding).await?;
            let status = crate::parts::created();
            return Ok(Some(answer::document(StatusCode::CREATED, ask.style, &status)));
        }
        if !matches!(group, "authorization.k8s.io" | "authentication.k8s.io") {
            return Ok(None);
        }
        let options = options()?;
        let mut review = decode::body(ask, options.validation)?.object;
        ask.resource.own(&Write::of(ask, &options), None, &mut review);
        if plural == "selfsubjectreviews" {
            review["metadata"]["creationTimestamp"] = json!(seconds(ask.now));
        }
        review["status"] = match plural {
            "selfsubjectreviews" => json!({ "userInfo": ask.caller.user_info() }),
            "tokenreviews" => json!({ "user": {}, "error": "[invalid bearer token]" }),
            "selfsubjectaccessreviews" => allowed(ask.caller.is_administrator()),
            "subjectaccessreviews" | "localsubjectaccessreviews" => {
                let groups = review["spec"]["groups"].as_array().into_iter().flatten();
                let groups: Vec<String> =
                    groups.filter_map(Value::as_str).map(str::to_owned).collect();
                allowed(Caller { groups, ..Caller::default() }.is_administrator())
            }
            "selfsubjectrulesreviews" => rules(ask.caller.is_administrator()),
            _ => return Ok(None),
        };
        Ok(Some(answer::document(StatusCode::CREATED, ask.style, &review)))
    }
}

fn allowed(allowed: bool) -> Value {
    json!({ "allowed": allowed })
}

fn rules(administrator: bool) -> Value {
    if !administrator {
        return json!({ "resourceRules": [], "nonResourceRules": [], "incomplete": false });
    }
    json!({
        "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
        "incomplete": false,
    })
}
