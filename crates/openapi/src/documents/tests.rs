use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;

fn paths_of(index: &Document) -> Vec<String> {
    let index: Value = serde_json::from_slice(index.json()).unwrap();
    index["paths"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn documents_are_built_lazily_and_once() {
    let documents = Documents::new();
    let made = Arc::new(AtomicUsize::new(0));
    for version in ["v1", "v2"] {
        let made = Arc::clone(&made);
        documents.set_custom("a.io", version, move |_| {
            made.fetch_add(1, Ordering::Relaxed);
            json!({ "version": version })
        });
    }
    assert_eq!(made.load(Ordering::Relaxed), 0);
    let first = documents.get("apis/a.io/v2").unwrap();
    assert_eq!(first.json(), r#"{"version":"v2"}"#);
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert!(Arc::ptr_eq(&first, &documents.get("apis/a.io/v2").unwrap()));
    let index = documents.index();
    assert_eq!(made.load(Ordering::Relaxed), 2, "the index needs the hash of every document");
    assert!(Arc::ptr_eq(&index, &documents.index()));
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[test]
fn a_change_replaces_the_document_and_the_index() {
    let documents = Documents::new();
    let alone = documents.index();
    documents.set_custom("a.io", "v1", |_| json!({ "first": true }));
    let before = (documents.get("apis/a.io/v1").unwrap(), documents.index());
    documents.set_custom("a.io", "v1", |_| json!({ "second": true }));
    let after = (documents.get("apis/a.io/v1").unwrap(), documents.index());
    assert_eq!(before.0.json(), r#"{"first":true}"#, "a reader of the old document keeps it");
    assert_eq!(after.0.json(), r#"{"second":true}"#);
    assert_ne!(before.1.hash(), after.1.hash());
    documents.remove_custom("a.io", "v1");
    assert!(documents.get("apis/a.io/v1").is_none());
    assert_eq!(documents.index().hash(), alone.hash());
    documents.remove_custom("a.io", "v1");
    assert_eq!(documents.index().hash(), alone.hash(), "removing nothing changes nothing");
}

#[test]
fn the_index_lists_every_document_by_its_hash() {
    let documents = Documents::new();
    documents.set_custom("a.io", "v1", |_| json!({}));
    documents.set_custom("z.io", "v1beta1", |_| json!({}));
    let index = documents.index();
    let paths = paths_of(&index);
    let mut expected: Vec<_> = builtin_paths().map(str::to_owned).collect();
    expected.extend(["apis/a.io/v1".to_owned(), "apis/z.io/v1beta1".to_owned()]);
    expected.sort();
    assert_eq!(paths, expected);
    let index: Value = serde_json::from_slice(index.json()).unwrap();
    for path in paths {
        let hash = documents.get(&path).unwrap().hash().to_owned();
        let address = format!("/openapi/v3/{path}?hash={hash}");
        assert_eq!(index["paths"][&path]["serverRelativeURL"], address);
        assert_eq!(hash.len(), 128);
    }
}

#[test]
fn a_definition_does_not_replace_a_built_in_document() {
    let documents = Documents::new();
    let alone = documents.index();
    documents.set_custom("policy", "v1", |_| json!({ "mine": true }));
    let builtin = builtin_document("apis/policy/v1").unwrap();
    assert!(Arc::ptr_eq(&builtin, &documents.get("apis/policy/v1").unwrap()));
    assert_eq!(documents.index().hash(), alone.hash());
}

#[test]
fn a_document_can_be_asked_for_while_another_is_made() {
    let documents = Arc::new(Documents::new());
    let inner = Arc::clone(&documents);
    documents.set_custom("b.io", "v1", |_| json!({ "b": 1 }));
    documents.set_custom("a.io", "v1", move |_| {
        inner.set_custom("c.io", "v1", |_| json!({ "c": 1 }));
        json!({ "b": inner.get("apis/b.io/v1").unwrap().hash() })
    });
    assert!(documents.get("apis/a.io/v1").is_some());
    assert!(documents.get("apis/c.io/v1").is_some());
}

#[test]
fn readers_and_writers_agree_in_the_end() {
    let documents = Documents::new();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let documents = &documents;
            scope.spawn(move || {
                for round in 0..50 {
                    let group = format!("g{writer}.io");
                    documents.set_custom(&group, "v1", move |_| json!({ "round": round }));
                    assert!(!documents.index().gzip().is_empty());
                }
            });
        }
    });
    let index: Value = serde_json::from_slice(documents.index().json()).unwrap();
    for writer in 0..4 {
        let path = format!("apis/g{writer}.io/v1");
        let document = documents.get(&path).unwrap();
        assert_eq!(document.json(), r#"{"round":49}"#);
        let address = index["paths"][&path]["serverRelativeURL"].as_str().unwrap();
        assert!(address.ends_with(document.hash()), "the index is never stale for good");
    }
}
