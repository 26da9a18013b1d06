# One after the other.
kubectl create -f - <<END
apiVersion: v1
kind: Service
metadata: {name: db}
spec:
  clusterIP: None
  selector: {app: db}
  ports: [{port: 5432}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "example.com/db:1"}]}
END
kubectl rollout status statefulset/db --timeout=60s | tail -n 1
kubectl get statefulset db --no-headers
kubectl get pods --no-headers

# The highest go first.
kubectl scale statefulset/db --replicas=1
kubectl wait --for=jsonpath='{.status.replicas}'=1 statefulset/db --timeout=60s
kubectl wait --for=delete pod/db-1 pod/db-2 --timeout=60s >gone

kubectl scale statefulset/db --replicas=3
kubectl rollout status statefulset/db --timeout=60s | tail -n 1

# A part of them first.
kubectl patch statefulset db --type=merge -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}'
kubectl set image statefulset/db main=example.com/db:2
kubectl rollout status statefulset/db --timeout=60s | tail -n 1
kubectl wait --for=jsonpath='{.status.updatedReplicas}'=1 statefulset/db --timeout=60s

kubectl patch statefulset db --type=merge -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'
kubectl rollout status statefulset/db --timeout=60s | tail -n 1
kubectl rollout history statefulset/db

kubectl rollout undo statefulset/db
kubectl rollout status statefulset/db --timeout=60s | tail -n 1

# One that is lost comes back under its name. Nobody waits for its end: kubectl takes the next one for it
# when that is there too soon.
uid=$(kubectl get pod db-1 -o jsonpath='{.metadata.uid}')
kubectl delete pod db-1 --wait=false
until kubectl get pod db-1 -o jsonpath='{.metadata.uid}' 2>/dev/null | grep -v "$uid" | grep -q .; do sleep 0.1; done
kubectl rollout status statefulset/db --timeout=60s | tail -n 1

kubectl delete statefulset db --cascade=orphan

kubectl create -f - <<END
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  podManagementPolicy: Parallel
  ordinals: {start: 1}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: "example.com/db:1"}]}
END
kubectl wait --for=delete pod/db-0 --timeout=60s >gone
kubectl rollout status statefulset/db --timeout=60s | tail -n 1

kubectl delete statefulset db --cascade=foreground
