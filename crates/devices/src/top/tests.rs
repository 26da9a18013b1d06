use gantry_api::decode::{self, Options};
use gantry_api::finding::Source;

use super::*;

const CLUSTER: &str = "
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceDriver
metadata: {name: gpu.example.com}
deviceTypes: [gpu]
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: large}
spec: {deviceType: gpu, constraints: device.model == 'large'}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: any}
spec: {deviceType: gpu}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: watch}
spec: {deviceType: gpu, adminAccess: true}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: b-gpus}
spec:
  nodeName: b
  driver: gpu.example.com
  devices:
  - {name: g0, attributes: [{name: model, stringValue: large}]}
  - {name: g1, attributes: [{name: model, stringValue: large}], taints: [{key: hot, effect: NoSchedule}]}
  - {name: g2, attributes: [{name: model, stringValue: small}]}
status:
  allocations:
  - {claimRef: {namespace: default, name: c, uid: u}, term: main, deviceName: g2, accessMode: ReadWriteExclusive, state: Bound, since: '2026-01-01T00:00:00Z'}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: a-nics}
spec: {nodeName: a, driver: nic.example.com, deviceCount: 4}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: nics, namespace: default}
spec: {claims: [{deviceType: nic}]}
status: {allocations: [{devicePoolName: a-nics, deviceCount: 3}]}
";

#[test]
fn devices_are_counted_by_node_and_class() {
    let mut objects = Objects::of(Source::File);
    for document in decode::documents(CLUSTER, Options::default()).unwrap() {
        assert_eq!(document.errors, [], "{}", document.subject);
        assert!(objects.add(document.content));
    }
    let expected = "\
NODE   CLASS                                DEVICES   USED   FREE
a      (no class; driver nic.example.com)   4         3      1
b      any                                  3         1      1
b      large                                2         0      1
";
    assert_eq!(table(&top(&objects).unwrap()), expected);
}
