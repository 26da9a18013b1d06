//! The OpenAPI documents of the built-in groups, compressed as they are stored.

use crate::data;

/// The paths below `/openapi/v3` that have a document, sorted: `api`, `api/v1`, `apis/apps/v1`, ….
pub fn paths() -> impl Iterator<Item = &'static str> {
    DOCUMENTS.iter().map(|(path, _)| *path)
}

/// Returns the document at `path`, compressed with gzip.
#[must_use]
pub fn packed(path: &str) -> Option<&'static [u8]> {
    let place = DOCUMENTS.binary_search_by_key(&path, |(path, _)| path).ok()?;
    Some(DOCUMENTS[place].1)
}

/// Returns the document at `path`, as compact JSON.
#[must_use]
pub fn document(path: &str) -> Option<Vec<u8>> {
    packed(path).map(data::inflate)
}

macro_rules! documents {
    ($($path:literal in $file:literal,)*) => {
        &[$(($path, include_bytes!(concat!("../data/openapi/", $file, ".json.gz")))),*]
    };
}

/// Every document, sorted by path.
const DOCUMENTS: &[(&str, &[u8])] = documents![
    ".well-known/openid-configuration" in ".well-known__openid-configuration",
    "api" in "api",
    "api/v1" in "api__v1",
    "apis" in "apis",
    "apis/admissionregistration.k8s.io" in "apis__admissionregistration.k8s.io",
    "apis/admissionregistration.k8s.io/v1" in "apis__admissionregistration.k8s.io__v1",
    "apis/apiextensions.k8s.io" in "apis__apiextensions.k8s.io",
    "apis/apiextensions.k8s.io/v1" in "apis__apiextensions.k8s.io__v1",
    "apis/apiregistration.k8s.io" in "apis__apiregistration.k8s.io",
    "apis/apiregistration.k8s.io/v1" in "apis__apiregistration.k8s.io__v1",
    "apis/apps" in "apis__apps",
    "apis/apps/v1" in "apis__apps__v1",
    "apis/authentication.k8s.io" in "apis__authentication.k8s.io",
    "apis/authentication.k8s.io/v1" in "apis__authentication.k8s.io__v1",
    "apis/authorization.k8s.io" in "apis__authorization.k8s.io",
    "apis/authorization.k8s.io/v1" in "apis__authorization.k8s.io__v1",
    "apis/autoscaling" in "apis__autoscaling",
    "apis/autoscaling/v1" in "apis__autoscaling__v1",
    "apis/autoscaling/v2" in "apis__autoscaling__v2",
    "apis/batch" in "apis__batch",
    "apis/batch/v1" in "apis__batch__v1",
    "apis/certificates.k8s.io" in "apis__certificates.k8s.io",
    "apis/certificates.k8s.io/v1" in "apis__certificates.k8s.io__v1",
    "apis/coordination.k8s.io" in "apis__coordination.k8s.io",
    "apis/coordination.k8s.io/v1" in "apis__coordination.k8s.io__v1",
    "apis/discovery.k8s.io" in "apis__discovery.k8s.io",
    "apis/discovery.k8s.io/v1" in "apis__discovery.k8s.io__v1",
    "apis/events.k8s.io" in "apis__events.k8s.io",
    "apis/events.k8s.io/v1" in "apis__events.k8s.io__v1",
    "apis/flowcontrol.apiserver.k8s.io" in "apis__flowcontrol.apiserver.k8s.io",
    "apis/flowcontrol.apiserver.k8s.io/v1" in "apis__flowcontrol.apiserver.k8s.io__v1",
    "apis/networking.k8s.io" in "apis__networking.k8s.io",
    "apis/networking.k8s.io/v1" in "apis__networking.k8s.io__v1",
    "apis/node.k8s.io" in "apis__node.k8s.io",
    "apis/node.k8s.io/v1" in "apis__node.k8s.io__v1",
    "apis/policy" in "apis__policy",
    "apis/policy/v1" in "apis__policy__v1",
    "apis/rbac.authorization.k8s.io" in "apis__rbac.authorization.k8s.io",
    "apis/rbac.authorization.k8s.io/v1" in "apis__rbac.authorization.k8s.io__v1",
    "apis/resource.k8s.io" in "apis__resource.k8s.io",
    "apis/resource.k8s.io/v1" in "apis__resource.k8s.io__v1",
    "apis/scheduling.k8s.io" in "apis__scheduling.k8s.io",
    "apis/scheduling.k8s.io/v1" in "apis__scheduling.k8s.io__v1",
    "apis/storage.k8s.io" in "apis__storage.k8s.io",
    "apis/storage.k8s.io/v1" in "apis__storage.k8s.io__v1",
    "openid/v1/jwks" in "openid__v1__jwks",
    "version" in "version",
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_document_opens() {
        let mut schemas = 0;
        for path in paths() {
            let text = document(path).unwrap();
            let document: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(document["openapi"], "3.0.0", "{path}");
            schemas += document["components"]["schemas"].as_object().map_or(0, |all| all.len());
        }
        assert!(schemas > 1000, "{schemas}");
        assert!(paths().is_sorted());
        assert!(packed("apis/apps/v2").is_none());
    }

    #[test]
    fn every_served_version_has_a_document() {
        for group in crate::registry::groups() {
            for version in &group.versions {
                let path = match group.name {
                    "" => format!("api/{}", version.name),
                    name => format!("apis/{name}/{}", version.name),
                };
                assert!(packed(&path).is_some(), "{path}");
            }
        }
    }
}
