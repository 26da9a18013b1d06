# Rolled out.
kubectl create -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  revisionHistoryLimit: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "example.com/web:1"}]}
END
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl get deployments,replicasets,pods
kubectl rollout history deployment/web

# Another image.
kubectl set image deployment/web main=example.com/web:2
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl get deployment web --no-headers

# And back.
kubectl rollout undo deployment/web
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl rollout history deployment/web

# Two changes at once, of which nothing is seen before it goes on.
kubectl rollout pause deployment/web
kubectl set image deployment/web main=example.com/web:3
kubectl scale deployment/web --replicas=2
kubectl wait --for=jsonpath='{.status.replicas}'=2 deployment/web --timeout=60s
kubectl wait --for=jsonpath='{.status.observedGeneration}'=6 deployment/web --timeout=60s

kubectl rollout resume deployment/web
kubectl rollout status deployment/web --timeout=60s | tail -n 1

# Old sets beyond the limit of the history go.
kubectl set image deployment/web main=example.com/web:4
kubectl rollout status deployment/web --timeout=60s | tail -n 1
kubectl rollout history deployment/web

kubectl scale deployment/web --replicas=1
kubectl wait --for=jsonpath='{.status.replicas}'=1 deployment/web --timeout=60s

# Its set stays, and is found again.
kubectl delete deployment web --cascade=orphan

kubectl create -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "example.com/web:4"}]}
END
kubectl rollout status deployment/web --timeout=60s | tail -n 1

# All of the old go before the first of the new comes.
kubectl set image deployment/web main=example.com/web:5
kubectl rollout status deployment/web --timeout=60s | tail -n 1

kubectl delete deployment web --cascade=foreground
kubectl wait --for=delete pod -l app=web --timeout=60s >gone

# What never gets ready is given up after its time.
kubectl create -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: stuck}
spec:
  replicas: 2
  progressDeadlineSeconds: 2
  minReadySeconds: 1
  selector: {matchLabels: {app: stuck}}
  template:
    metadata: {labels: {app: stuck}}
    spec:
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/stuck:1"}]
END
kubectl wait --for=condition=Progressing=False deployment/stuck --timeout=60s
kubectl rollout status deployment/stuck --timeout=60s
