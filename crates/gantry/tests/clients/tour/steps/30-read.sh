# Every way to look.

kubectl get all

kubectl get all,cm,secret,sa,role,rolebinding,quota,pdb,ingress,hpa -o wide

kubectl get all -A

kubectl get namespaces

kubectl get namespaces --show-labels

kubectl get cm -A --field-selector=metadata.namespace=tour

kubectl get cm -n kube-system

kubectl get deployment web -o json

kubectl get deployment web -o yaml --show-managed-fields

kubectl get deployments,services -o name

kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[*].image}{"\n"}'

kubectl get svc -o custom-columns=NAME:.metadata.name,TYPE:.spec.type,PORT:.spec.ports[0].port --sort-by=.metadata.name

kubectl get svc -o go-template='{{range .items}}{{.metadata.name}} {{end}}'

kubectl get pod single -o yaml

kubectl get job once -o yaml

kubectl get cronjob nightly -o yaml

kubectl get svc outside -o yaml

kubectl get svc balanced -o jsonpath='{.spec.ports[0].nodePort}' | grep -cE '^3[0-9]{4}$'

kubectl get ingress web -o yaml

kubectl get hpa web -o yaml

kubectl get quota budget -o yaml

kubectl get secret password pull -o yaml

kubectl get cm settings empty from-files -o yaml

kubectl get role,rolebinding -o yaml

kubectl get clusterrole tour-reader -o yaml

kubectl get clusterrolebinding tour-readers -o yaml -o wide

kubectl get priorityclass tour-high -o yaml

kubectl get pods -l run=single --show-labels -L run

kubectl get pods --field-selector=status.phase=Pending,spec.restartPolicy=Never -o name

kubectl get pods --field-selector=spec.nosuch=x

kubectl get pods -l '!!'

kubectl get cm --chunk-size=1 -o name

kubectl get deploy web --v=6 2>&1 | grep -c 'GET https'

kubectl get deploy --server-print=false

kubectl get pods -w --request-timeout=2s

timeout 3 kubectl get cm -w --output-watch-events -o name --field-selector=metadata.name=settings; echo "ended $?"

kubectl describe pod single

kubectl describe deployment web

kubectl describe namespace tour

kubectl describe cm settings

kubectl describe secret password

kubectl describe svc web outside

kubectl describe ingress web

kubectl describe quota budget

kubectl describe pdb web

kubectl describe job once

kubectl describe cronjob nightly

kubectl describe hpa web

kubectl describe sa robot

kubectl describe role reader

kubectl describe rolebinding readers

kubectl describe clusterrole tour-reader

kubectl describe pod nosuch

kubectl events --types=Normal

kubectl get events --field-selector=type=Normal

kubectl logs single

kubectl exec single -- true
