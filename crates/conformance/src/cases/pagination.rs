//! Lists in pages, and lists at a revision.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::objects::{CONFIG_MAPS, config_map, labelled, object_path, with_query};
use crate::case::{Case, CaseError, Outcome, case, expect_equal, expect_true};
use crate::response::Response;
use crate::session::Session;

pub(super) const CASES: &[Case] = &[
    case!("pages-of-one-revision", [26], pages),
    case!("pages-with-a-selector", [26], pages_with_selector),
    case!("limit-at-revision-zero", [26], limit_at_zero),
    case!("pages-see-no-later-writes", [26], stable_pages),
    case!("malformed-continue", [27], malformed),
    case!("continue-with-revision", [27], continue_with_revision),
    case!("continue-at-latest", [27], inconsistent),
    case!("list-at-revisions", [28], at_revisions),
    case!("list-from-the-future", [28], future),
    case!("list-options-that-exclude", [28], invalid_combinations),
    case!("get-at-revisions", [28], get_at_revisions),
];

/// Creates five ConfigMaps, of which a, c and e have a label.
async fn create_five(talk: &mut Session) -> Result<u64, CaseError> {
    let mut last = 0;
    for (name, label) in [("a", "1"), ("b", "2"), ("c", "1"), ("d", "2"), ("e", "1")] {
        last = talk.create(CONFIG_MAPS, &labelled(name, &json!({ "l": label }))).await?.revision();
    }
    Ok(last)
}

/// The token of a page.
fn token(page: &Response) -> String {
    page.string("/metadata/continue")
}

/// The document inside a token.
fn decode_token(token: &str) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

async fn pages(talk: &mut Session) -> Outcome {
    create_five(talk).await?;
    let first = talk.get(&with_query(CONFIG_MAPS, "limit=2&labelSelector=")).await?.expect(200)?;
    first.has_names(&["a", "b"])?;
    first.has_value("/metadata/remainingItemCount", &json!(3))?;
    let next =
        |page: &Response| with_query(CONFIG_MAPS, &format!("limit=2&continue={}", token(page)));
    let second = talk.get(&next(&first)).await?.expect(200)?;
    second.has_names(&["c", "d"])?;
    second.has_value("/metadata/remainingItemCount", &json!(1))?;
    let third = talk.get(&next(&second)).await?.expect(200)?;
    third.has_names(&["e"])?;
    third.has_no_value("/metadata/continue")?;
    third.has_no_value("/metadata/remainingItemCount")?;
    expect_equal("the second page's revision", &first.revision(), &second.revision())?;
    expect_equal("the third page's revision", &first.revision(), &third.revision())
}

async fn pages_with_selector(talk: &mut Session) -> Outcome {
    create_five(talk).await?;
    let query = "limit=2&labelSelector=l%3D1";
    let first = talk.get(&with_query(CONFIG_MAPS, query)).await?.expect(200)?;
    first.has_names(&["a", "c"])?;
    first.has_no_value("/metadata/remainingItemCount")?;
    expect_true("a token", !token(&first).is_empty())?;
    let query = format!("{query}&continue={}", token(&first));
    let second = talk.get(&with_query(CONFIG_MAPS, &query)).await?.expect(200)?;
    second.has_names(&["e"])?;
    second.has_no_value("/metadata/continue")
}

async fn limit_at_zero(talk: &mut Session) -> Outcome {
    let last = create_five(talk).await?;
    // Any state will do for such a list, so first make sure that this state has arrived.
    talk.get(&with_query(CONFIG_MAPS, &format!("resourceVersion={last}"))).await?.expect(200)?;
    let all = talk.get(&with_query(CONFIG_MAPS, "limit=2&resourceVersion=0")).await?.expect(200)?;
    all.has_names(&["a", "b", "c", "d", "e"])?;
    all.has_no_value("/metadata/continue")
}

async fn stable_pages(talk: &mut Session) -> Outcome {
    create_five(talk).await?;
    let first = talk.get(&with_query(CONFIG_MAPS, "limit=2")).await?.expect(200)?;
    talk.delete(&object_path(CONFIG_MAPS, "c")).await?.expect(200)?;
    talk.create(CONFIG_MAPS, &config_map("dd", "x")).await?;
    let rest = format!("continue={}", token(&first));
    let rest = talk.get(&with_query(CONFIG_MAPS, &rest)).await?.expect(200)?;
    rest.has_names(&["c", "d", "e"])?;
    expect_equal("revision", &first.revision(), &rest.revision())
}

async fn malformed(talk: &mut Session) -> Outcome {
    let traversal = json!({ "v": "meta.k8s.io/v1", "rv": 1, "start": "../../secrets/a\u{0}" });
    let version = json!({ "v": "meta.k8s.io/v9", "rv": 1, "start": "a\u{0}" });
    let tokens = [
        "nonsense".to_owned(),
        URL_SAFE_NO_PAD.encode("{}"),
        URL_SAFE_NO_PAD.encode(traversal.to_string()),
        URL_SAFE_NO_PAD.encode(version.to_string()),
    ];
    for token in tokens {
        let path = with_query(CONFIG_MAPS, &format!("limit=2&continue={token}"));
        let answer = talk.get(&path).await?;
        answer.expect_error_containing(400, "BadRequest", "continue key is not valid")?;
    }
    Ok(())
}

async fn continue_with_revision(talk: &mut Session) -> Outcome {
    create_five(talk).await?;
    let first = talk.get(&with_query(CONFIG_MAPS, "limit=2")).await?.expect(200)?;
    let with_revision = |revision: u64| {
        let token = token(&first);
        with_query(CONFIG_MAPS, &format!("limit=2&continue={token}&resourceVersion={revision}"))
    };
    let answer = talk.get(&with_revision(first.revision())).await?;
    let message = "specifying resource version is not allowed when using continue";
    answer.expect_error(400, "BadRequest", message)?;
    // Zero is allowed, and makes the limit void as it does without a token.
    talk.get(&with_revision(0)).await?.expect(200)?.has_names(&["c", "d", "e"])
}

async fn inconsistent(talk: &mut Session) -> Outcome {
    create_five(talk).await?;
    let first = talk.get(&with_query(CONFIG_MAPS, "limit=2")).await?.expect(200)?;
    let mut inside = decode_token(&token(&first));
    expect_equal("the version of a token", &json!("meta.k8s.io/v1"), &inside["v"])?;
    expect_equal("the revision of a token", &json!(first.revision()), &inside["rv"])?;
    expect_equal("where it goes on", &json!("/b\u{0}"), &inside["start"])?;
    talk.create(CONFIG_MAPS, &config_map("dd", "x")).await?;
    // What a server gives out with 410 Expired: the same place, at the latest revision.
    inside["rv"] = json!(-1);
    let token = URL_SAFE_NO_PAD.encode(inside.to_string());
    let rest =
        talk.get(&with_query(CONFIG_MAPS, &format!("continue={token}"))).await?.expect(200)?;
    rest.has_names(&["c", "d", "dd", "e"])?;
    expect_true("a later revision", rest.revision() > first.revision())
}

async fn at_revisions(talk: &mut Session) -> Outcome {
    let first = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?.revision();
    let second = talk.create(CONFIG_MAPS, &config_map("b", "x")).await?.revision();
    let table = [
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), vec!["a"]),
        (format!("resourceVersion={second}&resourceVersionMatch=Exact"), vec!["a", "b"]),
        (format!("resourceVersion={first}&limit=5"), vec!["a"]),
        (format!("resourceVersion={second}"), vec!["a", "b"]),
        (format!("resourceVersion={second}&resourceVersionMatch=NotOlderThan"), vec!["a", "b"]),
        (String::new(), vec!["a", "b"]),
    ];
    for (query, names) in table {
        talk.get(&with_query(CONFIG_MAPS, &query)).await?.expect(200)?.has_names(&names)?;
    }
    let exact = format!("resourceVersion={first}&resourceVersionMatch=Exact");
    let exact = talk.get(&with_query(CONFIG_MAPS, &exact)).await?.expect(200)?;
    expect_equal("an exact list's revision", &first, &exact.revision())
}

/// A revision no server of a test will reach.
const FUTURE: u64 = 900_000_000;

async fn future(talk: &mut Session) -> Outcome {
    let answer = talk.get(&with_query(CONFIG_MAPS, &format!("resourceVersion={FUTURE}"))).await?;
    let message = format!("Too large resource version: {FUTURE}, current: ");
    let answer = answer.expect_error_containing(504, "Timeout", &message)?;
    answer.has_values(&[
        ("/details/retryAfterSeconds", json!(1)),
        ("/details/causes/0/reason", json!("ResourceVersionTooLarge")),
        ("/details/causes/0/message", json!("Too large resource version")),
    ])?;
    answer.has_header("retry-after", "1")
}

async fn invalid_combinations(talk: &mut Session) -> Outcome {
    let table = [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
             resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for \
             resourceVersion \"0\"",
        ),
        (
            "resourceVersion=5&resourceVersionMatch=Roughly",
            "resourceVersionMatch: Unsupported value: \"Roughly\": supported values: \"Exact\", \
             \"NotOlderThan\", \"\"",
        ),
        (
            "resourceVersion=5&resourceVersionMatch=Exact&continue=abc",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is \
             provided",
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
    ];
    for (query, problem) in table {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {problem}");
        talk.get(&with_query(CONFIG_MAPS, query)).await?.expect_error(422, "Invalid", &message)?;
    }
    Ok(())
}

async fn get_at_revisions(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = object_path(CONFIG_MAPS, "a");
    let at_least = format!("resourceVersion={}", made.revision());
    let got = talk.get(&with_query(&path, &at_least)).await?.expect(200)?;
    expect_equal("the object", made.json(), got.json())?;
    talk.get(&with_query(&path, "resourceVersion=0")).await?.expect(200)?;
    let future = with_query(&path, &format!("resourceVersion={FUTURE}"));
    talk.get(&future).await?.expect_error_containing(
        504,
        "Timeout",
        "Too large resource version: ",
    )?;
    Ok(())
}
