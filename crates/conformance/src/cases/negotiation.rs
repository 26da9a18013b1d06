//! Media types of requests and answers.

use serde_json::json;

use super::objects::{CONFIG_MAPS, WIDGETS, config_map, define_widgets, object_path, with_query};
use crate::case::{Case, Outcome, case, expect_equal, expect_true};
use crate::session::{PatchType, RequestSpec, Session, Until};

pub(super) const CASES: &[Case] = &[
    case!("not-acceptable", [8], not_acceptable),
    case!("unsupported-media-type", [8], unsupported_media_type),
    case!("patch-as-plain-json", [8], patch_as_plain_json),
    case!("accept-alternatives", [8], accept_alternatives),
    case!("body-without-words-about-it", [9], bare_body),
    case!("custom-body-without-kind", [9], custom_without_kind),
    case!("yaml-body", [8], yaml_body),
    case!("metadata-only", [11], metadata_only),
    case!("metadata-only-of-a-list", [11], metadata_only_list),
    case!("metadata-only-watch", [11], metadata_only_watch),
    case!("pretty-print", [8], pretty),
    case!("compressed-answers", [13], compressed),
];

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn not_acceptable(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let routed = "406: Not Acceptable\n\nAvailable representations: application/json, \
                  application/yaml, application/vnd.kubernetes.protobuf";
    for accept in ["text/html", "application/*"] {
        let ask = RequestSpec::get(object_path(CONFIG_MAPS, "a")).accept(accept);
        let answer = talk.send(ask).await?.expect_error(406, "NotAcceptable", routed)?;
        answer.has_value("/details", &json!({}))?;
    }
    let ask = RequestSpec::get(object_path(CONFIG_MAPS, "a"))
        .accept("application/json;as=Nonsense;v=v1;g=meta.k8s.io");
    talk.send(ask).await?.expect_error_containing(
        406,
        "NotAcceptable",
        "media types are accepted",
    )?;
    Ok(())
}

async fn unsupported_media_type(talk: &mut Session) -> Outcome {
    let ask = RequestSpec::new("POST", CONFIG_MAPS).text("text/plain", "hello");
    let message = "the body of the request was in an unknown format - accepted media types \
                   include: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
    talk.send(ask).await?.expect_error(415, "UnsupportedMediaType", message)?;
    Ok(())
}

async fn patch_as_plain_json(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let ask = RequestSpec::new("PATCH", object_path(CONFIG_MAPS, "a"))
        .json(&json!({ "data": { "a": "y" } }));
    talk.send(ask).await?.expect(415)?;
    Ok(())
}

async fn accept_alternatives(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let table = [
        "*/*",
        "application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json",
        "text/html,application/json;q=0.5",
        "text/html;q=0.9,*/*;q=0.1",
    ];
    for accept in table {
        let answer = talk
            .send(RequestSpec::get(object_path(CONFIG_MAPS, "a")).accept(accept))
            .await?
            .expect(200)?;
        answer.has_header("content-type", "application/json")?;
        answer.has_value("/kind", &json!("ConfigMap"))?;
    }
    Ok(())
}

async fn bare_body(talk: &mut Session) -> Outcome {
    let body = json!({ "metadata": { "name": "a" }, "data": { "a": "x" } });
    let ask = RequestSpec::new("POST", CONFIG_MAPS).untyped_body(body.to_string());
    let answer = talk.send(ask).await?.expect(201)?;
    answer.has_values(&[("/kind", json!("ConfigMap")), ("/apiVersion", json!("v1"))])
}

async fn custom_without_kind(talk: &mut Session) -> Outcome {
    define_widgets(talk, &json!({ "type": "object" })).await?;
    let body = json!({ "metadata": { "name": "a" } });
    talk.post(WIDGETS, &body).await?.expect_error_containing(
        400,
        "BadRequest",
        "Object 'Kind' is missing",
    )?;
    let body = json!({ "kind": "Widget", "metadata": { "name": "a" } });
    talk.post(WIDGETS, &body).await?.expect(400)?;
    Ok(())
}

async fn yaml_body(talk: &mut Session) -> Outcome {
    let text = "metadata:\n  name: a\ndata:\n  a: \"1\"\n  b: yes it is\n";
    let ask = RequestSpec::new("POST", CONFIG_MAPS).text("application/yaml", text);
    let answer = talk.send(ask).await?.expect(201)?;
    answer.has_value("/data", &json!({ "a": "1", "b": "yes it is" }))
}

async fn metadata_only(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let answer = talk
        .send(RequestSpec::get(object_path(CONFIG_MAPS, "a")).accept(PARTIAL))
        .await?
        .expect(200)?;
    answer.has_values(&[
        ("/kind", json!("PartialObjectMetadata")),
        ("/apiVersion", json!("meta.k8s.io/v1")),
        ("/metadata/name", json!("a")),
    ])?;
    answer.has_no_value("/data")?;
    expect_true("managedFields", answer.at("/metadata/managedFields").is_array())?;
    let labels = json!({ "metadata": { "labels": { "l": "1" } } });
    let ask = RequestSpec::patch(object_path(CONFIG_MAPS, "a"), PatchType::Merge, &labels)
        .accept(PARTIAL);
    let patched = talk.send(ask).await?.expect(200)?;
    patched.has_value("/metadata/labels", &json!({ "l": "1" }))?;
    patched.has_value("/kind", &json!("PartialObjectMetadata"))
}

async fn metadata_only_list(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let list = talk.send(RequestSpec::get(CONFIG_MAPS).accept(PARTIAL_LIST)).await?.expect(200)?;
    list.has_values(&[
        ("/kind", json!("PartialObjectMetadataList")),
        ("/apiVersion", json!("meta.k8s.io/v1")),
        ("/items/0/kind", json!("PartialObjectMetadata")),
        ("/items/0/apiVersion", json!("meta.k8s.io/v1")),
    ])?;
    list.has_names(&["a"])?;
    let single = talk.send(RequestSpec::get(CONFIG_MAPS).accept(PARTIAL)).await?;
    single.expect_error_containing(
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadata, but the requested object is a list",
    )?;
    Ok(())
}

async fn metadata_only_watch(talk: &mut Session) -> Outcome {
    let made = talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    let path = with_query(CONFIG_MAPS, &format!("watch=1&resourceVersion={}", made.revision() - 1));
    let watch = talk.watch(RequestSpec::get(path).accept(PARTIAL)).await?;
    talk.delete(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    let answer = talk.finish_watch(watch, Until::Events(2)).await?;
    answer.has_events(&[("ADDED", "a"), ("DELETED", "a")])?;
    for event in answer.events() {
        expect_equal("its kind", &json!("PartialObjectMetadata"), &event["object"]["kind"])?;
        expect_equal("its data", &json!(null), &event["object"]["data"])?;
    }
    Ok(())
}

async fn pretty(talk: &mut Session) -> Outcome {
    talk.create(CONFIG_MAPS, &config_map("a", "x")).await?;
    // Nothing but white space differs, so the documents must be equal.
    let plain = talk.get(&object_path(CONFIG_MAPS, "a")).await?.expect(200)?;
    let pretty =
        talk.get(&with_query(&object_path(CONFIG_MAPS, "a"), "pretty=true")).await?.expect(200)?;
    expect_equal("the document", plain.json(), pretty.json())
}

/// Large answers are compressed for those who offer to take them so. Not part of the transcript:
/// two compressors need not agree on every byte.
async fn compressed(talk: &mut Session) -> Outcome {
    for (name, size) in [("small", 1_000), ("large", 200_000)] {
        let object = config_map(name, &"x".repeat(size));
        talk.send_unrecorded(RequestSpec::post(CONFIG_MAPS, &object)).await?.expect(201)?;
    }
    let watch = with_query(CONFIG_MAPS, "watch=1&timeoutSeconds=1");
    let (small, large) = (object_path(CONFIG_MAPS, "small"), object_path(CONFIG_MAPS, "large"));
    let list = CONFIG_MAPS.to_owned();
    let table = [
        ("a large object", &large, "gzip", "gzip"),
        ("a large list", &list, "deflate, gzip", "gzip"),
        ("a small object", &small, "gzip", ""),
        ("no offer", &large, "identity", ""),
        ("another offer", &large, "deflate, br", ""),
        ("an offer with a weight", &large, "gzip;q=0.5", ""),
        ("a watch", &watch, "gzip", ""),
    ];
    for (why, path, offer, encoding) in table {
        let ask = RequestSpec::get(path).header("accept-encoding", offer);
        let answer = talk.send_unrecorded(ask).await?.expect(200)?;
        let found = answer.header("content-encoding").first().map_or("", String::as_str);
        expect_equal(why, &encoding, &found)?;
        answer.has_header("vary", if encoding.is_empty() { "" } else { "Accept-Encoding" })?;
    }
    Ok(())
}
