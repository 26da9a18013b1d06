//! Tests what the kinds accept, reject and mean.

mod images;
mod laws;
mod merging;
mod rules;
mod samples;
mod spellings;

use super::Module;
use crate::decode::{self, Decoded, Document, LocatedFinding, Options};
use crate::object::Object;

/// The one document of a text.
fn read(text: &str) -> Document {
    let mut documents = decode::documents(text, Options::default()).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

/// A Module with this specification, in flow style.
fn module(spec: &str) -> Document {
    read(&format!(
        "apiVersion: ooto.sigs.k8s.io/v1alpha1\nkind: Module\nmetadata: {{name: m, namespace: drivers}}\nspec: {spec}\n"
    ))
}

/// A Module whose driver container has these fields besides an image and a mapping.
fn driver(fields: &str) -> Document {
    driver_with(r#"kernelMappings: [{literal: 6.8.0}], containerImage: "a:1""#, fields)
}

fn driver_with(basics: &str, fields: &str) -> Document {
    module(&format!("{{selector: {{}}, driverContainer: {{container: {{{basics}, {fields}}}}}}}"))
}

/// The Module that a document holds.
fn accepted(document: &Document) -> &Module {
    match &document.content {
        Decoded::Object(Object::Module(module)) => module,
        _ => panic!("{:?}", document.errors),
    }
}

/// Returns paths and texts of findings.
fn messages(remarks: &[LocatedFinding]) -> Vec<(String, &str)> {
    remarks.iter().map(|remark| (remark.path.to_string(), remark.text.as_str())).collect()
}

/// Checks that a document is rejected for exactly these reasons. Paths below the container may be
/// given from there.
fn refused(why: &str, document: &Document, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(path, text)| (below(path), *text)).collect();
    assert_eq!(messages(&document.errors), expected, "{why}");
    assert_eq!(document.content, Decoded::Refused, "{why}");
}

/// Checks that a document is accepted with exactly these warnings.
fn warned(why: &str, document: &Document, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(path, text)| (below(path), *text)).collect();
    assert_eq!(messages(&document.errors), [], "{why}");
    assert_eq!(messages(&document.warnings), expected, "{why}");
}

fn below(path: &str) -> String {
    match path.strip_prefix("…") {
        Some(rest) => format!("spec.driverContainer.container{rest}"),
        None => path.to_owned(),
    }
}
