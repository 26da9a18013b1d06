# The commands that make objects without a manifest.

kubectl create namespace tour

kubectl config set-context --current --namespace=tour >/dev/null

kubectl create namespace tour

kubectl create serviceaccount default

kubectl create serviceaccount robot -o yaml

kubectl create configmap settings --from-literal=mode=fast --from-literal=level=3

kubectl create configmap empty

kubectl create configmap settings --from-literal=mode=slow

kubectl create configmap from-files --from-file=files/settings.properties --from-env-file=files/settings.properties

kubectl create configmap Bad_Name

kubectl create secret generic password --from-literal=user=me --from-literal=password=secret

kubectl create secret docker-registry pull --docker-server=registry.example --docker-username=u --docker-password=p

kubectl create secret tls broken --cert=files/settings.properties --key=files/settings.properties

kubectl create deployment web --image=nginx:1.27 --replicas=2 --port=80

kubectl create deployment web --image=nginx:1.27

kubectl create role reader --verb=get,list --resource=pods,deployments.apps

kubectl create rolebinding readers --role=reader --serviceaccount=tour:robot --user=jane

kubectl create clusterrole tour-reader --verb=get --resource=nodes --non-resource-url=/metrics

kubectl create clusterrolebinding tour-readers --clusterrole=tour-reader --group=tourists

kubectl create job once --image=busybox:1.36 -- echo once

kubectl create cronjob nightly --image=busybox:1.36 --schedule='0 3 * * *' -- echo nightly

kubectl create cronjob wrong --image=busybox:1.36 --schedule='never'

kubectl create job by-hand --from=cronjob/nightly

kubectl create service clusterip internal --tcp=80:8080

kubectl create service nodeport outside --tcp=80 --node-port=30123

kubectl create service nodeport again --tcp=80 --node-port=30123

kubectl create service externalname elsewhere --external-name=example.com

kubectl create service loadbalancer balanced --tcp=443:8443

kubectl expose deployment web --port=80 --target-port=http

kubectl create ingress web --rule='tour.example/*=web:80,tls=web-tls' --class=none

kubectl create quota budget --hard=pods=5,requests.cpu=2,limits.memory=4Gi

kubectl create poddisruptionbudget web --selector=app=web --min-available=1

kubectl create poddisruptionbudget wrong --selector=app=web --min-available=101%

kubectl create priorityclass tour-high --value=1000 --description='for the tour'

kubectl autoscale deployment web --min=2 --max=5 --cpu=80%

kubectl run single --image=busybox:1.36 --restart=Never --requests=cpu=100m --limits=memory=64Mi -- sleep 3600

kubectl run single --image=busybox:1.36 --overrides='{"spec":{"containers":[]}}'

kubectl run limited --image=busybox:1.36 --restart=Never --overrides='{"spec":{"containers":[{"name":"c","image":"busybox:1.36","resources":{"requests":{"cpu":"100m"},"limits":{"memory":"64Mi"}}}]}}'

kubectl create token robot >/dev/null && echo "a token"

kubectl create -f files/refused.yaml

kubectl create --dry-run=server -o yaml -f files/web.yaml

kubectl create --validate=strict -f files/unknown-field.yaml

kubectl create --validate=warn --dry-run=server -f files/unknown-field.yaml

kubectl create --validate=ignore --dry-run=server -f files/unknown-field.yaml
