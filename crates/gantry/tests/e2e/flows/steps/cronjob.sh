# Once a year, and the last time was missed.
kubectl create -f - <<END
apiVersion: batch/v1
kind: CronJob
metadata: {name: yearly}
spec:
  schedule: "0 0 1 1 *"
  timeZone: Etc/UTC
  successfulJobsHistoryLimit: 1
  jobTemplate:
    metadata: {labels: {app: yearly}}
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers: [{name: main, image: "example.com/tick:1"}]
END

kubectl patch cronjob yearly --subresource=status --type=merge -p '{"status":{"lastScheduleTime":"2025-12-31T00:00:00Z"}}'
kubectl wait --for=create job -l app=yearly --timeout=60s
kubectl wait --for=jsonpath='{.status.lastSuccessfulTime}' cronjob/yearly --timeout=60s

# By hand.
kubectl create job by-hand --from=cronjob/yearly
kubectl wait --for=condition=Complete job/by-hand --timeout=60s

kubectl patch cronjob yearly --type=merge -p '{"spec":{"suspend":true}}'
kubectl get cronjob yearly --no-headers

kubectl delete cronjob yearly --cascade=foreground
