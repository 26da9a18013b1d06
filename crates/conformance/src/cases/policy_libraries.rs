//! Admission policies: what their expressions see and may ask, and the libraries they have.

use super::policies::Then::{Allowed, Denied};
use super::policies::{ask_all, rule};
use crate::case::{Case, Outcome, case};
use crate::conversation::Conversation;

pub(super) const CASES: &[Case] = &[
    case!("policy-request", [57], request),
    case!("policy-rights", [57], rights),
    case!("policy-libraries", [57], libraries),
];

async fn request(talk: &mut Conversation) -> Outcome {
    ask_all(
        talk,
        &[
            rule("operation", "request.operation == 'CREATE'", Allowed),
            rule("name", "request.name == 'name' && request.namespace == '{ns}'", Allowed),
            rule(
                "kind",
                "request.kind.group == '' && request.kind.version == 'v1' && request.kind.kind == \
                 'ConfigMap' && request.requestKind.kind == 'ConfigMap'",
                Allowed,
            ),
            rule(
                "resource",
                "request.resource.resource == 'configmaps' && request.requestResource.version == \
                 'v1' && !has(request.subResource)",
                Allowed,
            ),
            rule("user", "'system:authenticated' in request.userInfo.groups", Allowed),
            rule("username", "request.userInfo.username.size() > 0", Allowed),
            rule("dry-run", "request.dryRun == false", Allowed),
            rule("options", "request.options.kind == 'CreateOptions'", Allowed),
            rule("old", "oldObject == null", Allowed),
            rule("object", "object.kind == 'ConfigMap' && object.apiVersion == 'v1'", Allowed),
            rule(
                "filled",
                "has(object.metadata.uid) && has(object.metadata.creationTimestamp) && \
                 has(object.metadata.managedFields) && object.metadata.namespace == '{ns}'",
                Allowed,
            ),
            rule("namespace", "namespaceObject.metadata.name == '{ns}'", Allowed),
            rule(
                "namespace-labels",
                "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == '{ns}'",
                Allowed,
            ),
            rule("namespace-phase", "namespaceObject.status.phase == 'Active'", Allowed),
            rule(
                "not-account",
                "request.userInfo.username.matches('^system:serviceaccount:[^:]+:[^:]*-ctl$')",
                Denied(
                    "failed expression: \
                     request.userInfo.username.matches('^system:serviceaccount:[^:]+:[^:]*-ctl$')",
                ),
            ),
        ],
    )
    .await
}

async fn rights(talk: &mut Conversation) -> Outcome {
    ask_all(
        talk,
        &[
            rule(
                "resource",
                "authorizer.group('').resource('pods').namespace('{ns}').check('create').allowed()",
                Allowed,
            ),
            rule(
                "detailed",
                "authorizer.group('apps').resource('deployments').subresource('scale')\
                 .namespace('{ns}').name('d').check('update').allowed()",
                Allowed,
            ),
            rule(
                "selected",
                "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a')\
                 .labelSelector('a=b').check('list').allowed()",
                Allowed,
            ),
            rule("path", "authorizer.path('/healthz').check('get').allowed()", Allowed),
            rule("own", "authorizer.requestResource.check('delete').allowed()", Allowed),
            rule("errors", "!authorizer.requestResource.check('delete').errored()", Allowed),
            rule("error", "authorizer.requestResource.check('delete').error() == ''", Allowed),
            rule(
                "account",
                "authorizer.serviceAccount('{ns}', 'nobody').group('').resource('pods')\
                 .namespace('{ns}').check('get').allowed()",
                Denied(
                    "failed expression: authorizer.serviceAccount('{ns}', \
                     'nobody').group('').resource('pods').namespace('{ns}').check('get').allowed()",
                ),
            ),
            rule(
                "bad-account",
                "authorizer.serviceAccount('{ns}', 'A B').path('/x').check('get').allowed()",
                Denied(
                    "expression 'authorizer.serviceAccount('{ns}', \
                     'A B').path('/x').check('get').allowed()' resulted in error: Invalid service \
                     account name",
                ),
            ),
            rule(
                "no-path",
                "authorizer.path(' ').check('get').allowed()",
                Denied(
                    "expression 'authorizer.path(' ').check('get').allowed()' resulted in error: \
                     path must not be empty",
                ),
            ),
            rule(
                "two",
                "[1, 2].all(i, authorizer.requestResource.check('get').allowed())",
                Allowed,
            ),
            rule(
                "three",
                "[1, 2, 3].all(i, authorizer.requestResource.check('get').allowed())",
                Denied(
                    "expression '[1, 2, 3].all(i, \
                     authorizer.requestResource.check('get').allowed())' resulted in error: \
                     operation cancelled: actual cost limit exceeded",
                ),
            ),
        ],
    )
    .await
}

async fn libraries(talk: &mut Conversation) -> Outcome {
    ask_all(
        talk,
        &[
            rule("optional", "object.metadata.?labels['k'].orValue('') == ''", Allowed),
            rule("optional-there", "object.?data['a'].orValue('') == 'x'", Allowed),
            rule("strings", "object.data.a.upperAscii() + 'y'.replace('y', 'z') == 'Xz'", Allowed),
            rule("format", "'%s-%d'.format([object.data.a, 3]) == 'x-3'", Allowed),
            rule(
                "pattern",
                "object.data.a.matches('^[w-y]$') && 'abc'.find('b.') == 'bc'",
                Allowed,
            ),
            rule(
                "lists",
                "[3, 1, 2].max() == 3 && [1, 2].sum() == 3 && [1, 2].isSorted()",
                Allowed,
            ),
            rule("sets", "sets.contains(['a', 'b'], [object.data.a == 'x' ? 'a' : 'c'])", Allowed),
            rule("amount", "quantity('1Gi').isGreaterThan(quantity('900Mi'))", Allowed),
            rule(
                "address",
                "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
                Allowed,
            ),
            rule("url", "url('https://example.test:8443/p').getPort() == '8443'", Allowed),
            rule("version", "semver('1.2.3').isLessThan(semver('1.10.0'))", Allowed),
            rule(
                "named-format",
                "!format.dns1123Label().validate(object.metadata.name).hasValue()",
                Allowed,
            ),
            rule("two-variables", "object.data.all(k, v, k == 'a' && v == 'x')", Allowed),
            rule(
                "times",
                "timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')",
                Allowed,
            ),
        ],
    )
    .await
}
