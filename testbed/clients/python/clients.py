"""The Python client against an API server: create, read, change, watch, delete; kinds it knows and
kinds it finds out about. Prints a line for every part and ends with 1 at the first surprise."""

import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError

SPACE = "python"
GROUP = "python.example"


def expect(got, wanted, what):
    if got != wanted:
        raise SystemExit(f"{what}: {got!r}, not {wanted!r}")


def refused(status, what, *arguments, **options):
    try:
        what(*arguments, **options)
    except ApiException as refusal:
        expect(refusal.status, status, refusal.reason)
        return
    raise SystemExit(f"not refused with {status}: {what}")


def config_maps(core):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"), data={"k": "1"})
    made = core.create_namespaced_config_map(SPACE, body)
    refused(409, core.create_namespaced_config_map, SPACE, body)
    expect(core.read_namespaced_config_map("a", SPACE).to_dict(), made.to_dict(), "read")
    made.data["k"] = "2"
    newer = core.replace_namespaced_config_map("a", SPACE, made)
    refused(409, core.replace_namespaced_config_map, "a", SPACE, made)
    expect(newer.data, {"k": "2"}, "replaced")
    names = [it.metadata.name for it in core.list_namespaced_config_map(SPACE, limit=1).items]
    expect(names, ["a"], "listed")
    core.delete_namespaced_config_map("a", SPACE)
    refused(404, core.read_namespaced_config_map, "a", SPACE)


def patches(apps):
    labels = {"app": "web"}
    container = client.V1Container(name="web", image="nginx:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        selector=client.V1LabelSelector(match_labels=labels), template=template
    )
    body = client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    apps.create_namespaced_deployment(SPACE, body)
    side = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    # The client sends a map as a strategic patch and a list as operations.
    apps.patch_namespaced_deployment("web", SPACE, side)
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    apps.patch_namespaced_deployment("web", SPACE, operations)
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"minReadySeconds": 5},
    }
    deployments = dynamic.DynamicClient(apps.api_client).resources.get(
        api_version="apps/v1", kind="Deployment"
    )
    # Only the dynamic client can apply.
    deployments.server_side_apply(body=applied, namespace=SPACE, field_manager="python")
    end = apps.read_namespaced_deployment("web", SPACE)
    expect([it.name for it in end.spec.template.spec.containers], ["side", "web"], "containers")
    expect((end.spec.replicas, end.spec.min_ready_seconds), (3, 5), "numbers")
    managers = {(it.manager, it.operation) for it in end.metadata.managed_fields}
    expect(("python", "Apply") in managers, True, "managers")
    scale = apps.read_namespaced_deployment_scale("web", SPACE)
    scale.spec.replicas = 1
    expect(apps.replace_namespaced_deployment_scale("web", SPACE, scale).spec.replicas, 1, "scale")


def watching(core):
    start = core.list_namespaced_config_map(SPACE).metadata.resource_version

    def write():
        name = "watched"
        core.create_namespaced_config_map(
            SPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name))
        )
        core.patch_namespaced_config_map(name, SPACE, {"data": {"a": "b"}})
        core.delete_namespaced_config_map(name, SPACE)

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, SPACE, resource_version=start, timeout_seconds=30
    ):
        seen.append(event["type"])
        if event["type"] == "DELETED":
            stream.stop()
    writer.join()
    expect(seen, ["ADDED", "MODIFIED", "DELETED"], "events")


def custom(api):
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    extensions = client.ApiextensionsV1Api(api)
    extensions.create_custom_resource_definition(definition)
    stream = watch.Watch()
    for event in stream.stream(extensions.list_custom_resource_definition, timeout_seconds=30):
        conditions = event["object"].status.conditions or []
        if any(it.type == "Established" and it.status == "True" for it in conditions):
            stream.stop()
    found = dynamic.DynamicClient(api)
    widgets = found.resources.get(api_version=f"{GROUP}/v1", kind="Widget")
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": "small"},
        "spec": {"size": 1, "unknown": True},
    }
    made = widgets.create(body=body, namespace=SPACE)
    expect(made.spec.to_dict(), {"size": 1}, "pruned")
    try:
        widgets.create(body=body, namespace=SPACE)
        raise SystemExit("created twice")
    except ConflictError:
        pass
    patch = {"metadata": {"name": "small"}, "spec": {"size": 2}}
    merge = "application/merge-patch+json"
    changed = widgets.patch(body=patch, namespace=SPACE, content_type=merge)
    expect(changed.spec.size, 2, "patched")
    body["spec"] = {"size": 3}
    applied = widgets.server_side_apply(
        body=body, namespace=SPACE, field_manager="python", force_conflicts=True
    )
    expect(applied.spec.size, 3, "applied")
    expect([it.metadata.name for it in widgets.get(namespace=SPACE).items], ["small"], "listed")
    widgets.delete(name="small", namespace=SPACE)
    try:
        widgets.get(name="small", namespace=SPACE)
        raise SystemExit("still there")
    except NotFoundError:
        pass
    extensions.delete_custom_resource_definition(f"widgets.{GROUP}")


def main():
    config.load_kube_config()
    with client.ApiClient() as api:
        core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
        core.create_namespace({"metadata": {"name": SPACE}})
        for part, arguments in [
            (config_maps, [core]),
            (patches, [apps]),
            (watching, [core]),
            (custom, [api]),
        ]:
            part(*arguments)
            print("ok", part.__name__, flush=True)
        core.delete_namespace(SPACE)
    print("ok all")


main()
