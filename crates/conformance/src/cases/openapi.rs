//! The forms in which schemas are served, and conditional requests of clients that cache them.
//!
//! What the one document of version 2 says is compared with a real server's in the golden files of
//! the crate that makes it: it is large, changes with every definition, and takes an unoptimised
//! server many seconds to make while other cases define kinds.

use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{RequestSpec, Session};

pub(super) const CASES: &[Case] = &[
    case!("swagger-not-acceptable", [3], not_acceptable),
    case!("openapi-not-modified", [3], not_modified),
];

async fn not_acceptable(talk: &mut Session) -> Outcome {
    let refused =
        talk.send(RequestSpec::get("/openapi/v2").accept("text/html")).await?.expect(406)?;
    expect_equal("nothing is said", &"", &refused.text())?;
    expect_true("it varies by both", refused.header("vary") == ["Accept-Encoding", "Accept"])
}

/// A client that has a document learns that it has not changed.
async fn not_modified(talk: &mut Session) -> Outcome {
    let path = "/openapi/v3/apis/coordination.k8s.io/v1";
    let answer = talk.send_unrecorded(RequestSpec::get(path)).await?.expect(200)?;
    let tag = answer.header("etag").first().cloned().unwrap_or_default();
    expect_true("a tag in quotes", tag.len() == 130 && tag.starts_with('"') && tag.ends_with('"'))?;
    let weak = format!("\"other\", W/{tag}");
    for said in [tag.clone(), weak, "*".to_owned()] {
        let answer =
            talk.send_unrecorded(RequestSpec::get(path).header("if-none-match", said)).await?;
        let answer = answer.expect(304)?;
        expect_equal("no body", &"", &answer.text())?;
        expect_true("the same tag", answer.header("etag") == [tag.clone()])?;
        expect_true("no type of nothing", answer.header("content-type").is_empty())?;
    }
    let other = RequestSpec::get(path).header("if-none-match", "\"other\"");
    talk.send_unrecorded(other).await?.expect(200)?;
    Ok(())
}
