# What ends well.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: plain}
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=condition=Complete job/plain --timeout=60s
kubectl get job plain --no-headers

# Three of five fail. Their pods wait at a gate, so that nobody but the test says how they end.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: five}
spec:
  completions: 5
  parallelism: 5
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=jsonpath='{.status.active}'=5 job/five --timeout=60s

for index in 0 1 2; do sh files/end five $index 1; done
for index in 3 4; do sh files/end five $index 0; done
kubectl wait --for=jsonpath='{.status.failed}'=3 job/five --timeout=60s
kubectl wait --for=jsonpath='{.status.succeeded}'=2 job/five --timeout=60s
kubectl wait --for=jsonpath='{.status.active}'=3 job/five --timeout=60s

# Then they pass.
for index in 0 1 2; do sh files/end five $index 0; done
kubectl wait --for=condition=Complete job/five --timeout=60s
kubectl get job five --no-headers

# The first failure is one too many.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: strict}
spec:
  completions: 2
  parallelism: 2
  backoffLimit: 0
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=jsonpath='{.status.active}'=2 job/strict --timeout=60s

sh files/end strict 1 3
kubectl wait --for=condition=Failed job/strict --timeout=60s

# A code that ends it all, and one that does not count.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: policy}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  podFailurePolicy:
    rules:
    - {action: FailJob, onExitCodes: {containerName: main, operator: In, values: [42]}}
    - {action: Ignore, onExitCodes: {containerName: main, operator: In, values: [43]}}
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=jsonpath='{.status.active}'=3 job/policy --timeout=60s

sh files/end policy 0 0
sh files/end policy 1 42
kubectl wait --for=condition=Failed job/policy --timeout=60s

# Each number has failures of its own.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: numbers}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 0
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=jsonpath='{.status.active}'=3 job/numbers --timeout=60s

sh files/end numbers 1 1
kubectl wait --for=jsonpath='{.status.failedIndexes}'=1 job/numbers --timeout=60s

sh files/end numbers 0 0
sh files/end numbers 2 0
kubectl wait --for=condition=Failed job/numbers --timeout=60s

# Two of three are enough.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: enough}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  successPolicy: {rules: [{succeededCount: 2}]}
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=jsonpath='{.status.active}'=3 job/enough --timeout=60s

sh files/end enough 0 0
sh files/end enough 2 0
kubectl wait --for=condition=Complete job/enough --timeout=60s

# Suspended, resumed, suspended again, and out of time.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: late}
spec:
  suspend: true
  activeDeadlineSeconds: 2
  template:
    spec:
      restartPolicy: Never
      schedulingGates: [{name: example.com/held}]
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=condition=Suspended job/late --timeout=60s

kubectl patch job late --type=merge -p '{"spec":{"suspend":false}}'
kubectl wait --for=condition=Failed job/late --timeout=60s

# What has ended goes after its time.
kubectl create -f - <<END
apiVersion: batch/v1
kind: Job
metadata: {name: brief}
spec:
  ttlSecondsAfterFinished: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "example.com/work:1"}]
END
kubectl wait --for=delete job/brief --timeout=60s >gone

kubectl delete job --all --cascade=foreground
