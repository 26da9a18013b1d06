# What a server says about itself. A paragraph is one step: a piece of shell that both servers get.

kubectl version

kubectl version -o json

kubectl cluster-info

kubectl api-versions

kubectl api-resources --sort-by=name

kubectl api-resources --namespaced=false -o wide --sort-by=name

kubectl api-resources --api-group=apps --verbs=list,watch -o name --sort-by=name

kubectl auth whoami -o yaml

kubectl auth can-i create pods

kubectl auth can-i '*' '*' --all-namespaces

kubectl auth can-i get /healthz

kubectl auth can-i get nosuchthings

kubectl auth can-i --list | head -3 | tr -s ' '

kubectl get --raw /healthz

kubectl get --raw '/readyz?verbose' | tail -1

kubectl get --raw /api

kubectl get --raw /nosuch

kubectl get componentstatuses

kubectl top nodes

kubectl top pods

kubectl get nosuchkind

kubectl get pod nosuchpod
