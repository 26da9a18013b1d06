# The kinds of this project, and one more.

gantry crds >"$HOME/crds.yaml" && kubectl apply --server-side -f "$HOME/crds.yaml"

# A real server is not ready to be asked at once.
until kubectl wait --for=condition=Established crd --all --timeout=30s >/dev/null 2>&1; do sleep 0.2; done

kubectl wait --for=condition=Established crd --all --timeout=30s

kubectl get crds

kubectl get crds -o wide

kubectl api-resources --sort-by=name | grep -vE ' v1 | (apps|batch|policy)/v1 '

for kind in $(kubectl get crds -o jsonpath='{.items[*].metadata.name}'); do echo "== $kind"; kubectl explain "$kind" --recursive; done

kubectl describe crd $(kubectl get crds -o name | grep -v k8s.io$ | cut -d/ -f2)

# The order of the conditions of the others is a race on a real server.
kubectl get crds -o go-template='{{range .items}}{{.metadata.name}}{{range .status.conditions}}{{if eq .type "KubernetesAPIApprovalPolicyConformant"}} {{.status}} {{.reason}} {{.message}}{{end}}{{end}}{{"\n"}}{{end}}'

# What Gantry's own reader accepts of the fixtures, without what is no object of a known kind.
mkdir valid && for file in manifests/*/*.yaml; do if gantry check "$file" >/dev/null 2>&1 && ! grep -qE '^(kind: (Pod|FoozerConfig|DeviceSetClaim)|podClaim:|nodes:|- )' "$file"; then cp "$file" valid/; fi; done; ls valid

kubectl apply --dry-run=server -f valid/

for namespace in $(cat valid/*.yaml | sed -n 's/^ *namespace: *\([a-z0-9-]*\) *$/\1/p' | sort -u); do kubectl create namespace "$namespace"; done

kubectl apply -f valid/

kubectl get "$(kubectl get crds -o jsonpath='{.items[*].metadata.name}' | tr ' ' ,)" -A

kubectl get "$(kubectl get crds -o jsonpath='{.items[*].metadata.name}' | tr ' ' ,)" -A -o wide

kubectl describe "$(kubectl get crds -o jsonpath='{.items[*].metadata.name}' | tr ' ' ,)" -A

kubectl get "$(kubectl get crds -o jsonpath='{.items[*].metadata.name}' | tr ' ' ,)" -A -o yaml --show-managed-fields

kubectl apply -f valid/

kubectl diff -f valid/

kubectl apply --server-side -f valid/ --force-conflicts

kubectl apply -f files/widget-crd.yaml && kubectl wait --for=condition=Established crd/widgets.tour.example --timeout=30s

kubectl apply -f files/widget.yaml

kubectl get widgets

kubectl get wd small -o wide

kubectl get widget small -o yaml --show-managed-fields

kubectl describe widget small

kubectl explain widget --recursive

kubectl explain widget.spec.size

kubectl explain widget --api-version=tour.example/v1alpha1

kubectl scale widget small --replicas=4

kubectl get widget small --subresource=scale -o yaml

kubectl patch widget small --type=merge --subresource=status -p '{"status":{"replicas":4,"ready":true}}'

kubectl patch widget small --type=merge -p '{"spec":{"size":0}}'

kubectl patch widget small --type=merge -p '{"spec":{"colour":"pink","nosuch":1}}'

kubectl patch widget small --type=merge -p '{"spec":{"size":9}}'

kubectl patch widget small -p '{"spec":{"size":4}}'

kubectl patch widget small --type=json -p '[{"op":"replace","path":"/spec/size","value":4}]'

kubectl get widgets.v1alpha1.tour.example small -o yaml

kubectl wait --for=jsonpath='{.status.ready}'=true widget/small --timeout=5s

kubectl get widgets --field-selector=spec.colour=red -o name

kubectl get widgets --field-selector=spec.size=4

kubectl label widget small l=1 && kubectl get widgets -l l=1 -o name

# A real server says what is wrong in any order.
kubectl apply -f files/widget-refused.yaml 2>&1 | sort

kubectl get tours

kubectl delete crd widgets.tour.example

kubectl get widgets
