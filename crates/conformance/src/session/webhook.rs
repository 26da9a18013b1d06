//! Webhooks a case offers to the server it talks to.

use gantry_testkit::webhook_server::{Reply, WebhookServer};
use serde_json::{Value, json};

use super::Session;
use crate::case::CaseError;
use crate::response::{Body, Response};
use crate::transcript::{Caller, RecordedRequest};

impl Session {
    /// Answers calls of the case's webhook `name` from now on. Returns the `clientConfig` with
    /// which a server calls it. What it heard before is forgotten.
    ///
    /// # Errors
    /// There can be no webhooks on this machine.
    pub fn serve_webhook(
        &self,
        name: &str,
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Result<Value, CaseError> {
        let hooks = WebhookServer::shared()?;
        let path = self.webhook_path(name);
        hooks.set_handler(&path, answer);
        Ok(hooks.client_config(&path))
    }

    /// What a webhook of the case has heard.
    ///
    /// # Errors
    /// There can be no webhooks on this machine.
    pub fn webhook_calls(&self, name: &str) -> Result<Vec<Value>, CaseError> {
        let heard = WebhookServer::shared()?.calls(&self.webhook_path(name));
        let heard = heard.into_iter().map(|mut call| {
            // The user of the request differs between servers; it is enough that there is one.
            if let Some(user) = call.body.pointer_mut("/request/userInfo") {
                let named = user["username"].as_str().is_some_and(|it| !it.is_empty());
                *user = json!({ "named": named, "has groups": user["groups"].is_array() });
            }
            let headers = call.headers.into_iter().map(|(name, value)| json!({ name: value }));
            json!({
                "query": call.query, "headers": headers.collect::<Vec<_>>(), "body": call.body,
            })
        });
        Ok(heard.collect())
    }

    /// Writes down what a webhook of the case has heard, so that it is compared as well.
    ///
    /// # Errors
    /// There can be no webhooks on this machine.
    pub fn record_webhook_calls(&mut self, name: &str) -> Result<Vec<Value>, CaseError> {
        let heard = self.webhook_calls(name)?;
        let request = RecordedRequest {
            caller: Caller::Anonymous,
            method: "HEARD".to_owned(),
            path: name.to_owned(),
            headers: Vec::new(),
            body: None,
        };
        let answer = Response {
            request_line: format!("HEARD {name}"),
            status: 200,
            headers: std::collections::BTreeMap::new(),
            body: Body::Json(Value::Array(heard.clone())),
        };
        self.record(request, answer);
        Ok(heard)
    }

    fn webhook_path(&self, name: &str) -> String {
        self.with_namespace(&format!("/{{ns}}/{name}"))
    }
}
