# More than there is.
kubectl create -f - <<END
apiVersion: v1
kind: Pod
metadata: {name: large}
spec: {containers: [{name: main, image: "example.com/x:1", resources: {requests: {cpu: 2k}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nowhere}
spec:
  nodeSelector: {pool: none}
  containers: [{name: main, image: "example.com/x:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: held}
spec:
  schedulingGates: [{name: example.com/held}]
  containers: [{name: main, image: "example.com/x:1"}]
END
kubectl wait --for=condition=PodScheduled=False pod/large pod/nowhere pod/held --timeout=60s
kubectl get pods

# The gate is opened; the others fit once nodes change.
kubectl patch pod held --type=json -p '[{"op":"remove","path":"/spec/schedulingGates"}]'
kubectl wait --for=condition=Ready pod/held --timeout=60s
kubectl label node node-1 pool=none
kubectl wait --for=condition=Ready pod/nowhere --timeout=60s
kubectl delete pod large

# Nodes that are closed.
kubectl taint node node-0 node-1 node-2 example.com/closed:NoSchedule
kubectl run closed --image=example.com/x:1
kubectl wait --for=condition=PodScheduled=False pod/closed --timeout=60s

kubectl taint node node-0 node-1 node-2 example.com/closed-
kubectl wait --for=condition=Ready pod/closed --timeout=60s
kubectl delete pods --all
