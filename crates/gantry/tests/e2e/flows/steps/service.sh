# Before there is anything behind it.
kubectl create -f - <<END
apiVersion: v1
kind: Service
metadata: {name: front, labels: {team: a}}
spec:
  selector: {app: back}
  ports:
  - {name: http, port: 80, targetPort: web}
  - {name: metrics, port: 9090}
---
apiVersion: v1
kind: Service
metadata: {name: none}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: back}
---
apiVersion: v1
kind: Service
metadata: {name: by-hand}
spec: {ports: [{port: 80}]}
END
kubectl wait --for=create endpoints/front endpoints/none --timeout=60s

kubectl create -f - <<END
apiVersion: apps/v1
kind: Deployment
metadata: {name: back}
spec:
  replicas: 2
  selector: {matchLabels: {app: back}}
  template:
    metadata: {labels: {app: back}}
    spec:
      containers:
      - name: main
        image: example.com/back:1
        ports: [{name: web, containerPort: 8080}]
END
kubectl rollout status deployment/back --timeout=60s | tail -n 1

# Not all of them answer any more.
kubectl label service front team=b
kubectl patch service front --type=merge -p '{"spec":{"ports":[{"name":"http","port":80,"targetPort":"web"}]}}'
kubectl scale deployment/back --replicas=1
kubectl wait --for=jsonpath='{.status.replicas}'=1 deployment/back --timeout=60s

kubectl scale deployment/back --replicas=0
kubectl wait --for=delete pod -l app=back --timeout=60s >gone

kubectl delete service --all
