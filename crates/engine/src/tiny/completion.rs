//! Requests for text and their responses, in the form of OpenAI's interface. Pure.

use http::StatusCode;
use serde_json::{Value, json};

use crate::exchange::Call;

/// The most tokens of one response.
const MAX_TOKENS: usize = 4096;

/// Returns the pieces in which a text is sent: a word each.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// A prompt with its settings.
pub(super) struct CompletionRequest {
    pub(super) model: String,
    pub(super) prompt: String,
    pub(super) max_tokens: usize,
    pub(super) stream: bool,
    /// Whether it has messages and no prompt.
    pub(super) chat: bool,
}

impl CompletionRequest {
    /// Reads a request. The error has the status of the response.
    pub(super) fn parse(call: &Call, names: &[String]) -> Result<Self, (StatusCode, String)> {
        let bad = |message: String| (StatusCode::BAD_REQUEST, message);
        let body: Value =
            serde_json::from_slice(&call.body).map_err(|error| bad(error.to_string()))?;
        let chat = call.path.ends_with("/chat/completions");
        let model = match &body["model"] {
            Value::Null => names.first().cloned().unwrap_or_default(),
            Value::String(model) if names.iter().any(|it| it == model) => model.clone(),
            other => {
                let message = format!("The model `{other}` does not exist.");
                return Err((StatusCode::NOT_FOUND, message));
            }
        };
        let prompt = match (&body["prompt"], chat) {
            (Value::String(prompt), false) => prompt.clone(),
            (_, false) => return Err(bad("prompt must be a string".to_owned())),
            (_, true) => {
                let messages = body["messages"].as_array();
                let messages = messages.ok_or_else(|| bad("messages must be a list".to_owned()))?;
                let content = messages.iter().filter_map(|it| it["content"].as_str());
                content.collect::<Vec<_>>().join("\n")
            }
        };
        let max_tokens = match (&body["max_tokens"], &body["max_completion_tokens"]) {
            (Value::Null, Value::Null) => 16,
            (Value::Null, count) | (count, _) => {
                let count = count.as_u64().and_then(|it| usize::try_from(it).ok());
                count.ok_or_else(|| bad("max_tokens must be a number".to_owned()))?
            }
        };
        if max_tokens > MAX_TOKENS {
            return Err(bad(format!("max_tokens {max_tokens} is more than {MAX_TOKENS}")));
        }
        let stream = body["stream"].as_bool().unwrap_or(false);
        Ok(Self { model, prompt, max_tokens, stream, chat })
    }

    /// Returns a response, or a piece of a stream: its text, and why it ended, if it has.
    pub(super) fn response(
        &self,
        id: &str,
        created: i64,
        fingerprint: &str,
        text: &str,
        end: &str,
    ) -> Value {
        let end = if end.is_empty() { Value::Null } else { json!(end) };
        let (object, content) = match (self.chat, self.stream) {
            (false, _) => ("text_completion", ("text", json!(text))),
            (true, false) => {
                ("chat.completion", ("message", json!({"role": "assistant", "content": text})))
            }
            (true, true) => ("chat.completion.chunk", ("delta", json!({"content": text}))),
        };
        let (field, content) = content;
        let usage = json!({
            "prompt_tokens": self.prompt.len(),
            "completion_tokens": text.len(),
            "total_tokens": self.prompt.len() + text.len(),
        });
        json!({
            "id": id,
            "object": object,
            "created": created,
            "model": self.model,
            "system_fingerprint": fingerprint,
            "choices": [{"index": 0, field: content, "finish_reason": end}],
            "usage": usage,
        })
    }
}
