use serde_json::json;

use super::*;

/// What a message holds: the number of each field, and its bytes or its number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for place in 0.. {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 127) << (7 * place);
            if first & 128 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let head = varint(&mut bytes);
        let length = match head & 7 {
            0 => {
                found.push((head >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            other => panic!("no such wire type here: {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        found.push((head >> 3, value.to_vec()));
        bytes = rest;
    }
    assert!(found.is_sorted_by_key(|(number, _)| *number), "fields come by number: {found:?}");
    found
}

/// The one field on the way down.
fn down(bytes: &[u8], way: &[u64]) -> Vec<u8> {
    way.iter().fold(bytes.to_vec(), |bytes, number| {
        let mut all = fields(&bytes).into_iter().filter(|(it, _)| it == number);
        let (_, found) = all.next().unwrap();
        assert!(all.next().is_none(), "one {number}");
        found
    })
}

fn text(bytes: &[u8], way: &[u64]) -> String {
    String::from_utf8(down(bytes, way)).unwrap()
}

#[test]
fn a_schema_is_written_by_the_numbers_of_its_fields() {
    let bytes = schema(&json!({
        "description": "d",
        "type": "object",
        "required": ["a", "b"],
        "maximum": 1.5,
        "minLength": 300,
        "maxItems": 0,
        "uniqueItems": true,
        "enum": ["x", 1],
        "items": { "$ref": "#/definitions/x" },
        "additionalProperties": false,
        "properties": { "a": { "type": "string" } },
        "x-kubernetes-list-map-keys": ["a"],
    }));
    let numbers: Vec<_> = fields(&bytes).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [4, 7, 12, 16, 19, 19, 20, 20, 21, 22, 23, 25, 31]);
    assert_eq!(text(&bytes, &[4]), "d");
    assert_eq!(down(&bytes, &[7]), 1.5_f64.to_le_bytes());
    assert_eq!(down(&bytes, &[12]), 300_u64.to_le_bytes());
    assert_eq!(down(&bytes, &[21, 2]), 0_u64.to_le_bytes(), "a choice is made even if it is no");
    assert_eq!(text(&bytes, &[22, 1]), "object");
    assert_eq!(text(&bytes, &[23, 1, 1]), "#/definitions/x");
    assert_eq!(text(&bytes, &[25, 1, 1]), "a");
    assert_eq!(text(&bytes, &[25, 1, 2, 22, 1]), "string");
    assert_eq!(text(&bytes, &[31, 1]), "x-kubernetes-list-map-keys");
    assert_eq!(text(&bytes, &[31, 2, 2]), r#"["a"]"#);
    let mut enums = fields(&bytes).into_iter().filter(|(number, _)| *number == 20);
    assert_eq!(text(&enums.next().unwrap().1, &[2]), r#""x""#);
    assert_eq!(text(&enums.next().unwrap().1, &[2]), "1");
}

#[test]
fn every_kind_of_parameter_has_its_place() {
    let table = [
        (json!({ "$ref": "#/parameters/p" }), vec![2, 1], "#/parameters/p"),
        (json!({ "in": "body", "name": "body", "schema": { "$ref": "r" } }), vec![1, 1, 5, 1], "r"),
        (json!({ "in": "query", "name": "n", "type": "string" }), vec![1, 2, 3, 4], "n"),
        (json!({ "in": "query", "name": "n", "type": "string" }), vec![1, 2, 3, 6], "string"),
        (json!({ "in": "path", "name": "n", "type": "string" }), vec![1, 2, 4, 5], "string"),
    ];
    for (parameter, way, expected) in table {
        assert_eq!(text(&parameter_or_reference(&parameter), &way), expected, "{parameter}");
    }
    let unique = json!({ "in": "query", "uniqueItems": true });
    assert_eq!(down(&parameter(&unique), &[2, 3, 20]), 1_u64.to_le_bytes());
    let unique = json!({ "in": "path", "uniqueItems": true });
    assert_eq!(down(&parameter(&unique), &[2, 4, 19]), 1_u64.to_le_bytes());
}

#[test]
fn a_document_leads_to_what_kubectl_looks_for() {
    let bytes = document(&json!({
        "swagger": "2.0",
        "info": { "title": "t", "version": "v" },
        "paths": { "/p": { "patch": {
            "operationId": "id", "consumes": ["c"], "produces": ["p"], "schemes": ["https"],
            "tags": ["tag"], "parameters": [{ "$ref": "r" }],
            "responses": { "200": { "description": "OK", "schema": { "$ref": "s" } } },
            "x-kubernetes-group-version-kind": { "group": "g", "version": "v1", "kind": "K" },
        } } },
        "definitions": { "d": { "type": "object" } },
        "parameters": { "n": { "in": "query", "name": "q" } },
        "security": [{ "BearerToken": [] }],
        "securityDefinitions": { "BearerToken": { "type": "apiKey", "in": "header" } },
    }));
    let patch = down(&bytes, &[8, 2, 2, 8]);
    let table = [
        (&bytes, vec![1], "2.0"),
        (&bytes, vec![2, 2], "v"),
        (&bytes, vec![8, 2, 1], "/p"),
        (&patch, vec![5], "id"),
        (&patch, vec![6], "p"),
        (&patch, vec![7], "c"),
        (&patch, vec![8, 2, 1], "r"),
        (&patch, vec![9, 1, 1], "200"),
        (&patch, vec![9, 1, 2, 1, 1], "OK"),
        (&patch, vec![9, 1, 2, 1, 2, 1, 1], "s"),
        (&patch, vec![13, 1], "x-kubernetes-group-version-kind"),
        (&patch, vec![13, 2, 2], r#"{"group":"g","version":"v1","kind":"K"}"#),
        (&bytes, vec![9, 1, 1], "d"),
        (&bytes, vec![9, 1, 2, 22, 1], "object"),
        (&bytes, vec![10, 1, 1], "n"),
        (&bytes, vec![10, 1, 2, 2, 3, 4], "q"),
        (&bytes, vec![12, 1, 1], "BearerToken"),
        (&bytes, vec![13, 1, 1], "BearerToken"),
        (&bytes, vec![13, 1, 2, 2, 3], "header"),
    ];
    for (message, way, expected) in table {
        assert_eq!(text(message, &way), expected, "{way:?}");
    }
}
