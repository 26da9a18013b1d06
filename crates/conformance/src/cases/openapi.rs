//! In which forms schemas are given, and what a client that keeps documents is told.
//!
//! What the one document of version 2 says is compared with a real server's in the golden files of
//! the crate that makes it: it is large, changes with every definition, and takes an unoptimised
//! server many seconds to make while other cases define kinds.

use crate::case::{Case, Outcome, case, holds, same};
use crate::conversation::{Ask, Conversation};

pub(super) const CASES: &[Case] = &[
    case!("swagger-not-acceptable", [3], not_acceptable),
    case!("openapi-not-modified", [3], not_modified),
];

async fn not_acceptable(talk: &mut Conversation) -> Outcome {
    let refused = talk.ask(Ask::get("/openapi/v2").accept("text/html")).await?.expect(406)?;
    same("nothing is said", &"", &refused.text())?;
    holds("it varies by both", refused.header("vary") == ["Accept-Encoding", "Accept"])
}

/// Who has a document is told that it has not changed.
async fn not_modified(talk: &mut Conversation) -> Outcome {
    let path = "/openapi/v3/apis/coordination.k8s.io/v1";
    let answer = talk.ask_unrecorded(Ask::get(path)).await?.expect(200)?;
    let tag = answer.header("etag").first().cloned().unwrap_or_default();
    holds("a tag in quotes", tag.len() == 130 && tag.starts_with('"') && tag.ends_with('"'))?;
    let weak = format!("\"other\", W/{tag}");
    for said in [tag.clone(), weak, "*".to_owned()] {
        let answer = talk.ask_unrecorded(Ask::get(path).header("if-none-match", said)).await?;
        let answer = answer.expect(304)?;
        same("no body", &"", &answer.text())?;
        holds("the same tag", answer.header("etag") == [tag.clone()])?;
        holds("no type of nothing", answer.header("content-type").is_empty())?;
    }
    let other = Ask::get(path).header("if-none-match", "\"other\"");
    talk.ask_unrecorded(other).await?.expect(200)?;
    Ok(())
}
