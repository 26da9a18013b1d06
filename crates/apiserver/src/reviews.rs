//! Review requests: SelfSubjectReview, TokenReview and access reviews.

mod access;

use gantry_rbac::Rule;
use gantry_token::TokenError;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::access::AccessReview;
use crate::access::authentication::AuthenticatedToken;
use crate::api::{Api, ResourceRequest};
use crate::request::body::Body;
use crate::request::decode;
use crate::request::query::WriteOptions;
use crate::response;
use crate::response::render::{self, Rendering};
use crate::response::status::StatusError;
use crate::verbs::write::{Write, format_seconds, set_namespace};

impl Api {
    /// Serves a review, if the request is one.
    pub(crate) async fn handle_review(
        &self,
        ask: &ResourceRequest,
    ) -> Result<Option<Response<Body>>, StatusError> {
        let options = || WriteOptions::read(&ask.query, "CreateOptions");
        let (group, plural) = (ask.resource.group.as_str(), ask.resource.plural.as_str());
        if (group, plural) == ("", "bindings") {
            let options = options()?;
            let mut binding = decode::body(ask, options.validation)?.object;
            let said = crate::verbs::subresources::create_options(&options);
            let warnings =
                self.review_subresource(ask, "", &said, options.dry_run, &mut binding).await?;
            self.bind_pod(ask, &options, &binding).await?;
            let status = crate::verbs::subresources::created_status();
            let mut response = response::document(StatusCode::CREATED, ask.style, &status);
            response::add_warnings(&mut response, &warnings);
            return Ok(Some(response));
        }
        if !matches!(group, "authorization.k8s.io" | "authentication.k8s.io") {
            return Ok(None);
        }
        let options = options()?;
        let mut review = decode::body(ask, options.validation)?.object;
        let write = Write::of(ask, &options);
        set_namespace(&write, &mut review)?;
        ask.resource.update_managed_fields(&write, None, &mut review);
        let review = match plural {
            "selfsubjectreviews" => {
                review["metadata"]["creationTimestamp"] = json!(format_seconds(ask.now));
                review["status"] = json!({ "userInfo": ask.caller.user_info() });
                review
            }
            "tokenreviews" => {
                review["status"] = self.review_token(&review)?;
                review
            }
            "selfsubjectaccessreviews" => {
                self.review_access(ask, AccessReview::SelfSubject, review)?
            }
            "subjectaccessreviews" => self.review_access(ask, AccessReview::Subject, review)?,
            "localsubjectaccessreviews" => self.review_access(ask, AccessReview::Local, review)?,
            "selfsubjectrulesreviews" => self.review_rules(ask, &review)?,
            _ => return Ok(None),
        };
        let response = render::object(ask, StatusCode::CREATED, &Rendering::Tree(&review))?;
        Ok(Some(response))
    }

    /// Serves a TokenReview: the user of a token, and whether it is valid for the audiences.
    fn review_token(&self, review: &Value) -> Result<Value, StatusError> {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        if token.is_empty() {
            let words = "token is required for TokenReview in authentication";
            return Err(StatusError::bad_request(words));
        }
        let asked = review["spec"]["audiences"].as_array().into_iter().flatten();
        let mut asked: Vec<String> = asked.filter_map(Value::as_str).map(str::to_owned).collect();
        if asked.is_empty() {
            asked = self.0.settings.authenticator.audiences();
        }
        Ok(match self.authenticate_token(token, &asked) {
            Ok(AuthenticatedToken { caller, audiences }) => json!({
                "authenticated": true, "user": caller.user_info(), "audiences": audiences,
            }),
            // On a real server two authenticators check the token, and one of them knows only its
            // own tokens.
            Err(fault) if fault == TokenError::OtherIssuer => {
                json!({ "user": {}, "error": fault.to_string() })
            }
            Err(fault) => {
                let words = format!("[{}, {fault}]", TokenError::OtherIssuer);
                json!({ "user": {}, "error": words })
            }
        })
    }

    /// Serves access reviews.
    fn review_access(
        &self,
        ask: &ResourceRequest,
        kind: AccessReview,
        mut review: Value,
    ) -> Result<Value, StatusError> {
        let faults = access::validate(kind, &review);
        if !faults.is_empty() {
            return Err(StatusError::invalid(&ask.resource.group, "", "", &faults));
        }
        let asked = access::attributes(&review);
        let decision = match kind {
            AccessReview::SelfSubject => self.authorize(&ask.caller, &asked),
            AccessReview::Subject | AccessReview::Local => {
                self.authorize(&access::subject(&review), &asked)
            }
        };
        let mut status = json!({ "allowed": decision.allowed });
        for (name, words) in
            [("reason", decision.reason), ("evaluationError", access::selector_errors(&review))]
        {
            if !words.is_empty() {
                status[name] = json!(words);
            }
        }
        review["status"] = status;
        Ok(review)
    }

    /// Serves a SelfSubjectRulesReview. The response does not repeat the spec, as on the real
    /// server.
    fn review_rules(&self, ask: &ResourceRequest, review: &Value) -> Result<Value, StatusError> {
        let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
        if namespace.is_empty() {
            return Err(StatusError::bad_request("no namespace on request"));
        }
        let held = self.0.authorizer.effective_rules(&self.0.store, ask.caller.user(), namespace);
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
