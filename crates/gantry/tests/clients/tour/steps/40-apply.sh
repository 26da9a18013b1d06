# Declarative writes, from the client's side and from the server's.

kubectl apply -f files/web.yaml

kubectl apply -f files/web.yaml

sed 's/replicas: 2/replicas: 3/; s/1.27/1.28/' files/web.yaml | kubectl diff -f -

kubectl diff -f files/web.yaml

sed 's/replicas: 2/replicas: 3/; s/1.27/1.28/' files/web.yaml | kubectl apply -f -

kubectl get deploy,svc,cm -l part-of=tour -o yaml

kubectl apply view-last-applied deployment/applied

kubectl apply -f files/web.yaml --dry-run=server

kubectl apply -f files/web.yaml --dry-run=client -o name

kubectl create configmap plain --from-literal=a=1

kubectl create configmap plain --from-literal=a=2 --dry-run=client -o yaml | kubectl apply -f -

kubectl apply --server-side -f files/server-side.yaml

kubectl apply --server-side -f files/server-side.yaml

kubectl apply --server-side --field-manager=other -f files/server-side-other.yaml

kubectl apply --server-side --field-manager=other -f files/server-side-other.yaml --force-conflicts

kubectl apply --server-side -f files/server-side.yaml

kubectl get deployment shared -o yaml --show-managed-fields

kubectl get configmap shared -o yaml --show-managed-fields

kubectl diff --server-side -f files/server-side.yaml --force-conflicts

kubectl apply --server-side --force-conflicts -f files/web.yaml

kubectl get deployment applied -o yaml --show-managed-fields

kubectl apply -f files/refused.yaml

kubectl apply -f files/nosuch.yaml

# A real server stops at any of several unknown fields.
sed /replica:/d files/unknown-field.yaml | kubectl apply --server-side -f -

kubectl apply -f files/unknown-field.yaml --validate=false --dry-run=server

# kubectl checks the objects of a list, and kinds that cannot be patched, by the older schemas.
kubectl apply -f files/list.yaml

kubectl apply -f files/list.yaml

sed 's/replicas: 0/replica: 0/; s/port: 80/port: eighty/' files/list.yaml | kubectl apply -f -

kubectl create -f files/review.yaml -o yaml

sed 's/user: jane/users: jane/' files/review.yaml | kubectl create -f -

kubectl delete -f files/list.yaml
