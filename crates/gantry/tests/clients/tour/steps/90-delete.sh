# How things go.

kubectl apply -f files/family.yaml

head=$(kubectl get cm head -o jsonpath='{.metadata.uid}'); for child in one two; do kubectl create cm "child-$child" -o name; kubectl patch cm "child-$child" --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"head\",\"uid\":\"$head\",\"blockOwnerDeletion\":true}]}}"; done

kubectl delete cm head --cascade=orphan && kubectl get cm child-one child-two -o jsonpath='{.items[*].metadata.ownerReferences}'

kubectl apply -f files/family.yaml; head=$(kubectl get cm head -o jsonpath='{.metadata.uid}'); for child in one two; do kubectl patch cm "child-$child" --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"head\",\"uid\":\"$head\",\"blockOwnerDeletion\":true}]}}"; done

kubectl delete cm head --cascade=foreground && kubectl get cm head child-one child-two

kubectl apply -f files/family.yaml; head=$(kubectl get cm head -o jsonpath='{.metadata.uid}'); kubectl create cm child-one; kubectl patch cm child-one --type=merge -p "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"name\":\"head\",\"uid\":\"$head\"}]}}"

kubectl delete cm head --cascade=background && kubectl wait --for=delete cm/child-one --timeout=60s

kubectl delete cm head --ignore-not-found

kubectl delete cm head

kubectl delete deployment web --dry-run=server

kubectl delete deployment web

kubectl delete pod single --wait=false

kubectl get pods

kubectl delete pods --all --grace-period=0 --force

kubectl delete svc,deploy,cm -l part-of=tour

kubectl patch cm settings --type=merge -p '{"metadata":{"finalizers":["tour.example/hold"]}}' && kubectl delete cm settings --wait=false && kubectl get cm settings -o jsonpath='{.metadata.finalizers}{"\n"}'

kubectl patch cm settings --type=merge -p '{"metadata":{"finalizers":["tour.example/hold","tour.example/more"]}}'

kubectl patch cm settings --type=merge -p '{"metadata":{"finalizers":null}}' && kubectl wait --for=delete cm/settings --timeout=30s

kubectl delete cm --all

kubectl delete job,cronjob --all --cascade=orphan

kubectl delete job,cronjob --all

kubectl delete all --all

kubectl delete -f files/refused.yaml

kubectl delete namespace default

kubectl delete namespace tour

kubectl get all,cm -n tour

kubectl delete clusterrole,clusterrolebinding tour-reader tour-readers

kubectl delete priorityclass tour-high system-node-critical

kubectl get namespaces

gantry crds | kubectl delete -f -

kubectl get crds
