# Two pods on one of two nodes, and a budget that can spare none.
sh files/node drain-a drain
sh files/node drain-b drain
kubectl cordon drain-b
kubectl create -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {pool: drain}
      tolerations: [{key: pool, operator: Exists}]
      containers: [{name: main, image: "example.com/web:1"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: web}}
END
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl wait --for=jsonpath='{.status.currentHealthy}'=2 pdb/web --timeout=60s
kubectl uncordon drain-b

# It is kept.
kubectl drain drain-a --timeout=2s 2>&1 | sort -u
kubectl get node drain-a -o jsonpath='{.spec.unschedulable} {.spec.taints[*].key}'
kubectl get pdb web --no-headers
pod=$(kubectl get pods -l app=web -o name | head -n 1)
echo '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"'${pod#pod/}'"}}' > eviction
kubectl create --raw "/api/v1/namespaces/$NAMESPACE/pods/${pod#pod/}/eviction" -f eviction

# One may be missing: they go one by one, and come back elsewhere.
kubectl patch pdb web --type=merge -p '{"spec":{"minAvailable":1}}'
kubectl wait --for=jsonpath='{.status.disruptionsAllowed}'=1 pdb/web --timeout=60s
kubectl drain drain-a --timeout=60s 2>&1 | grep -v 'will retry' | sort -u
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl wait --for=jsonpath='{.status.currentHealthy}'=2 pdb/web --timeout=60s
kubectl get pods -l app=web -o jsonpath='{.items[*].spec.nodeName}'

# What has no controller is only deleted on demand.
kubectl delete deployment web --cascade=foreground
kubectl run alone --image=example.com/alone:1 --overrides='{"spec":{"nodeName":"drain-b"}}'
kubectl wait --for=condition=Ready pod/alone --timeout=60s
kubectl drain drain-b --timeout=60s 2>&1 | sort -u
kubectl delete pdb web
kubectl drain drain-b --force --timeout=60s 2>&1 | sort -u

kubectl delete node drain-a drain-b
