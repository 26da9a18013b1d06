# One node, and what is to be on each.
sh files/node daemon-a daemons
kubectl create -f - <<END
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      nodeSelector: {pool: daemons}
      tolerations: [{key: pool, operator: Exists}]
      containers: [{name: main, image: "example.com/agent:1"}]
END
kubectl rollout status daemonset/agent --timeout=60s | tail -n 1

# It follows a new node.
sh files/node daemon-b daemons
kubectl wait --for=jsonpath='{.status.numberReady}'=2 daemonset/agent --timeout=60s
kubectl get daemonset agent --no-headers

# A node that is closed keeps what it has.
kubectl cordon daemon-b
kubectl set image daemonset/agent main=example.com/agent:2
kubectl rollout status daemonset/agent --timeout=60s | tail -n 1
kubectl rollout history daemonset/agent

kubectl rollout undo daemonset/agent
kubectl rollout status daemonset/agent --timeout=60s | tail -n 1

# One that is deleted comes back.
kubectl delete pod -l app=agent --field-selector=spec.nodeName=daemon-a
kubectl rollout status daemonset/agent --timeout=60s | tail -n 1

# A node that leaves the pool loses its own.
kubectl label node daemon-b pool-
kubectl wait --for=jsonpath='{.status.currentNumberScheduled}'=1 daemonset/agent --timeout=60s
kubectl wait --for=jsonpath='{.status.desiredNumberScheduled}'=1 daemonset/agent --timeout=60s

# Nothing changes but by hand.
kubectl patch daemonset agent --type=merge -p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'
kubectl set image daemonset/agent main=example.com/agent:3
kubectl wait --for=jsonpath='{.status.observedGeneration}'=5 daemonset/agent --timeout=60s

kubectl delete daemonset agent --cascade=foreground
kubectl delete node daemon-a daemon-b
