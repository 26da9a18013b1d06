//! Requests that are questions: who am I, may I.

mod access;

use gantry_rbac::Rule;
use gantry_token::Fault;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::access::Review;
use crate::answer;
use crate::api::{Api, Ask};
use crate::body::Body;
use crate::decode;
use crate::identity::Vouched;
use crate::query::WriteOptions;
use crate::render::{self, Rendering};
use crate::status::Refusal;
use crate::write::{Write, seconds, settle_namespace};

impl Api {
    /// Answers a question, if the request is one.
    pub(crate) async fn review(&self, ask: &Ask) -> Result<Option<Response<Body>>, Refusal> {
        let options = || WriteOptions::read(&ask.query, "CreateOptions");
        let (group, plural) = (ask.resource.group.as_str(), ask.resource.plural.as_str());
        if (group, plural) == ("", "bindings") {
            let options = options()?;
            let mut binding = decode::body(ask, options.validation)?.object;
            let said = crate::parts::create_options(&options);
            let warnings = self.review_part(ask, "", &said, options.dry_run, &mut binding).await?;
            self.bind_pod(ask, &options, &binding).await?;
            let status = crate::parts::created();
            let mut response = answer::document(StatusCode::CREATED, ask.style, &status);
            answer::warn(&mut response, &warnings);
            return Ok(Some(response));
        }
        if !matches!(group, "authorization.k8s.io" | "authentication.k8s.io") {
            return Ok(None);
        }
        let options = options()?;
        let mut review = decode::body(ask, options.validation)?.object;
        let write = Write::of(ask, &options);
        settle_namespace(&write, &mut review)?;
        ask.resource.own(&write, None, &mut review);
        let review = match plural {
            "selfsubjectreviews" => {
                review["metadata"]["creationTimestamp"] = json!(seconds(ask.now));
                review["status"] = json!({ "userInfo": ask.caller.user_info() });
                review
            }
            "tokenreviews" => {
                review["status"] = self.review_token(&review)?;
                review
            }
            "selfsubjectaccessreviews" => self.review_access(ask, Review::Own, review)?,
            "subjectaccessreviews" => self.review_access(ask, Review::Subject, review)?,
            "localsubjectaccessreviews" => self.review_access(ask, Review::Local, review)?,
            "selfsubjectrulesreviews" => self.review_rules(ask, &review)?,
            _ => return Ok(None),
        };
        let answer = render::object(ask, StatusCode::CREATED, &Rendering::Tree(&review))?;
        Ok(Some(answer))
    }

    /// Whose token is this, and is it good for these?
    fn review_token(&self, review: &Value) -> Result<Value, Refusal> {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            let words = "token is required for TokenReview in authentication";
            return Err(Refusal::bad_request(words));
        }
        let asked = review["spec"]["audiences"].as_array().into_iter().flatten();
        let mut asked: Vec<String> = asked.filter_map(Value::as_str).map(str::to_owned).collect();
        if asked.is_empty() {
            asked = self.0.settings.identity.audiences();
        }
        Ok(match self.vouch(token, &asked) {
            Ok(Vouched { caller, audiences }) => json!({
                "authenticated": true, "user": caller.user_info(), "audiences": audiences,
            }),
            // Two have looked at it on the real server, and one of them knows no token but its own.
            Err(fault) if fault == Fault::Foreign => {
                json!({ "user": {}, "error": fault.to_string() })
            }
            Err(fault) => {
                let words = format!("[{}, {fault}]", Fault::Foreign);
                json!({ "user": {}, "error": words })
            }
        })
    }

    /// May they?
    fn review_access(&self, ask: &Ask, kind: Review, mut review: Value) -> Result<Value, Refusal> {
        let faults = access::faults(kind, &review);
        if !faults.is_empty() {
            return Err(Refusal::invalid(&ask.resource.group, "", "", &faults));
        }
        let asked = access::asked(&review);
        let decision = match kind {
            Review::Own => self.authorize(&ask.caller, &asked),
            Review::Subject | Review::Local => self.authorize(&access::subject(&review), &asked),
        };
        let mut status = json!({ "allowed": decision.allowed });
        for (name, words) in
            [("reason", decision.reason), ("evaluationError", access::misunderstood(&review))]
        {
            if !words.is_empty() {
                status[name] = json!(words);
            }
        }
        review["status"] = status;
        Ok(review)
    }

    /// What may I do? The answer says nothing of the question, as on the real server.
    fn review_rules(&self, ask: &Ask, review: &Value) -> Result<Value, Refusal> {
        let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
        if namespace.is_empty() {
            return Err(Refusal::bad_request("no namespace on request"));
        }
        let held = self.0.authority.held(&self.0.store, ask.caller.user(), namespace);
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for rule in &held.rules {
            if !rule.resources.is_empty() {
                let non_resource_urls = Vec::new();
                resources.push(Rule { non_resource_urls, ..rule.clone() }.to_value());
            }
            if !rule.non_resource_urls.is_empty() {
                let (verbs, non_resource_urls) =
                    (rule.verbs.clone(), rule.non_resource_urls.clone());
                paths.push(Rule { verbs, non_resource_urls, ..Rule::default() }.to_value());
            }
        }
        let mut status = json!({
            "resourceRules": resources, "nonResourceRules": paths, "incomplete": false,
        });
        if !held.errors.is_empty() {
            status["evaluationError"] = json!(held.errors);
        }
        Ok(json!({
            "kind": ask.resource.kind, "apiVersion": ask.resource.api_version(),
            "metadata": {}, "spec": {}, "status": status,
        }))
    }
}
