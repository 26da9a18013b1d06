//! Webhooks a case offers to the server it talks to.

use gantry_testkit::hook::{Hooks, Reply};
use serde_json::{Value, json};

use super::Conversation;
use crate::answer::{Answer, Body};
use crate::case::CaseError;
use crate::transcript::{Party, Sent};

impl Conversation {
    /// Answers calls of the case's webhook `name` from now on. Returns the `clientConfig` with which
    /// a server calls it. What it heard before is forgotten.
    ///
    /// # Errors
    /// There can be no webhooks on this machine.
    pub fn hook(
        &self,
        name: &str,
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Result<Value, CaseError> {
        let hooks = Hooks::shared()?;
        let path = self.hook_path(name);
        hooks.answer(&path, answer);
        Ok(hooks.config(&path))
    }

    /// What a webhook of the case has heard.
    ///
    /// # Errors
    /// There can be no webhooks on this machine.
    pub fn heard(&self, name: &str) -> Result<Vec<Value>, CaseError> {
        let heard = Hooks::shared()?.heard(&self.hook_path(name));
        let heard = heard.into_iter().map(|mut call| {
            // Who asks differs between servers; that somebody does is enough.
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
    pub fn record_heard(&mut self, name: &str) -> Result<Vec<Value>, CaseError> {
        let heard = self.heard(name)?;
        let request = Sent {
            party: Party::Stranger,
            method: "HEARD".to_owned(),
            path: name.to_owned(),
            headers: Vec::new(),
            body: None,
        };
        let answer = Answer {
            asked: format!("HEARD {name}"),
            status: 200,
            headers: std::collections::BTreeMap::new(),
            body: Body::Json(Value::Array(heard.clone())),
        };
        self.record(request, answer);
        Ok(heard)
    }

    fn hook_path(&self, name: &str) -> String {
        self.fill(&format!("/{{ns}}/{name}"))
    }
}
