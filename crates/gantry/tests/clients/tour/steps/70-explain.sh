# The schemas, as a person reads them.

kubectl explain pods

kubectl explain deployment.spec.strategy

kubectl explain pod.spec.containers.resources --recursive

kubectl explain deployments --recursive

kubectl explain service.spec.type

kubectl explain cronjob --api-version=batch/v1

kubectl explain pod.spec.nosuch

kubectl explain nosuch

kubectl explain configmap -o plaintext-openapiv2

kubectl explain resourceclaims.spec --recursive

kubectl explain customresourcedefinitions.spec.versions
