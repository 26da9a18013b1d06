//! Admission policies: what their expressions see and may ask, and the libraries they have.

use super::policy_case::Expected::{Allowed, Denied};
use super::policy_case::{case_with_expression, create_and_check_all};
use crate::case::{Case, Outcome, case};
use crate::session::Session;

pub(super) const CASES: &[Case] = &[
    case!("policy-request", [57], request),
    case!("policy-rights", [57], authorizer),
    case!("policy-libraries", [57], libraries),
];

async fn request(talk: &mut Session) -> Outcome {
    create_and_check_all(
        talk,
        &[
            case_with_expression("operation", "request.operation == 'CREATE'", Allowed),
            case_with_expression(
                "name",
                "request.name == 'name' && request.namespace == '{ns}'",
                Allowed,
            ),
            case_with_expression(
                "kind",
                "request.kind.group == '' && request.kind.version == 'v1' && request.kind.kind == \
                 'ConfigMap' && request.requestKind.kind == 'ConfigMap'",
                Allowed,
            ),
            case_with_expression(
                "resource",
                "request.resource.resource == 'configmaps' && request.requestResource.version == \
                 'v1' && !has(request.subResource)",
                Allowed,
            ),
            case_with_expression(
                "user",
                "'system:authenticated' in request.userInfo.groups",
                Allowed,
            ),
            case_with_expression("username", "request.userInfo.username.size() > 0", Allowed),
            case_with_expression("dry-run", "request.dryRun == false", Allowed),
            case_with_expression("options", "request.options.kind == 'CreateOptions'", Allowed),
            case_with_expression("old", "oldObject == null", Allowed),
            case_with_expression(
                "object",
                "object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
                Allowed,
            ),
            case_with_expression(
                "filled",
                "has(object.metadata.uid) && has(object.metadata.creationTimestamp) && \
                 has(object.metadata.managedFields) && object.metadata.namespace == '{ns}'",
                Allowed,
            ),
            case_with_expression("namespace", "namespaceObject.metadata.name == '{ns}'", Allowed),
            case_with_expression(
                "namespace-labels",
                "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == '{ns}'",
                Allowed,
            ),
            case_with_expression(
                "namespace-phase",
                "namespaceObject.status.phase == 'Active'",
                Allowed,
            ),
            case_with_expression(
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

async fn authorizer(talk: &mut Session) -> Outcome {
    create_and_check_all(
        talk,
        &[
            case_with_expression(
                "resource",
                "authorizer.group('').resource('pods').namespace('{ns}').check('create').allowed()",
                Allowed,
            ),
            case_with_expression(
                "detailed",
                "authorizer.group('apps').resource('deployments').subresource('scale')\
                 .namespace('{ns}').name('d').check('update').allowed()",
                Allowed,
            ),
            case_with_expression(
                "selected",
                "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a')\
                 .labelSelector('a=b').check('list').allowed()",
                Allowed,
            ),
            case_with_expression(
                "path",
                "authorizer.path('/healthz').check('get').allowed()",
                Allowed,
            ),
            case_with_expression(
                "own",
                "authorizer.requestResource.check('delete').allowed()",
                Allowed,
            ),
            case_with_expression(
                "errors",
                "!authorizer.requestResource.check('delete').errored()",
                Allowed,
            ),
            case_with_expression(
                "error",
                "authorizer.requestResource.check('delete').error() == ''",
                Allowed,
            ),
            case_with_expression(
                "account",
                "authorizer.serviceAccount('{ns}', 'nobody').group('').resource('pods')\
                 .namespace('{ns}').check('get').allowed()",
                Denied(
                    "failed expression: authorizer.serviceAccount('{ns}', \
                     'nobody').group('').resource('pods').namespace('{ns}').check('get').allowed()",
                ),
            ),
            case_with_expression(
                "bad-account",
                "authorizer.serviceAccount('{ns}', 'A B').path('/x').check('get').allowed()",
                Denied(
                    "expression 'authorizer.serviceAccount('{ns}', \
                     'A B').path('/x').check('get').allowed()' resulted in error: Invalid service \
                     account name",
                ),
            ),
            case_with_expression(
                "no-path",
                "authorizer.path(' ').check('get').allowed()",
                Denied(
                    "expression 'authorizer.path(' ').check('get').allowed()' resulted in error: \
                     path must not be empty",
                ),
            ),
            case_with_expression(
                "two",
                "[1, 2].all(i, authorizer.requestResource.check('get').allowed())",
                Allowed,
            ),
            case_with_expression(
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

async fn libraries(talk: &mut Session) -> Outcome {
    create_and_check_all(
        talk,
        &[
            case_with_expression(
                "optional",
                "object.metadata.?labels['k'].orValue('') == ''",
                Allowed,
            ),
            case_with_expression("optional-there", "object.?data['a'].orValue('') == 'x'", Allowed),
            case_with_expression(
                "strings",
                "object.data.a.upperAscii() + 'y'.replace('y', 'z') == 'Xz'",
                Allowed,
            ),
            case_with_expression("format", "'%s-%d'.format([object.data.a, 3]) == 'x-3'", Allowed),
            case_with_expression(
                "pattern",
                "object.data.a.matches('^[w-y]$') && 'abc'.find('b.') == 'bc'",
                Allowed,
            ),
            case_with_expression(
                "lists",
                "[3, 1, 2].max() == 3 && [1, 2].sum() == 3 && [1, 2].isSorted()",
                Allowed,
            ),
            case_with_expression(
                "sets",
                "sets.contains(['a', 'b'], [object.data.a == 'x' ? 'a' : 'c'])",
                Allowed,
            ),
            case_with_expression(
                "amount",
                "quantity('1Gi').isGreaterThan(quantity('900Mi'))",
                Allowed,
            ),
            case_with_expression(
                "address",
                "ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')",
                Allowed,
            ),
            case_with_expression(
                "url",
                "url('https://example.test:8443/p').getPort() == '8443'",
                Allowed,
            ),
            case_with_expression(
                "version",
                "semver('1.2.3').isLessThan(semver('1.10.0'))",
                Allowed,
            ),
            case_with_expression(
                "named-format",
                "!format.dns1123Label().validate(object.metadata.name).hasValue()",
                Allowed,
            ),
            case_with_expression(
                "two-variables",
                "object.data.all(k, v, k == 'a' && v == 'x')",
                Allowed,
            ),
            case_with_expression(
                "times",
                "timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')",
                Allowed,
            ),
        ],
    )
    .await
}
