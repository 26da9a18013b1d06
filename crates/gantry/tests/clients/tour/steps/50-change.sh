# Changes in place.

kubectl label pod single tier=back

kubectl label pod single tier=front

kubectl label pod single tier=front --overwrite

kubectl label pod single tier-

kubectl label pods --all round=one

kubectl label pod single 'bad key=x'

kubectl label pod single good=bad_value_

kubectl annotate pod single note='first words'

kubectl annotate pod single note-

kubectl annotate --overwrite cm settings note=changed -o jsonpath='{.metadata.annotations.note}{"\n"}'

kubectl patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.29"}]}}}}'

kubectl patch deployment web --type=merge -p '{"spec":{"replicas":4,"template":{"metadata":{"annotations":{"a":"b"}}}}}'

kubectl patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":4},{"op":"replace","path":"/spec/replicas","value":3}]'

kubectl patch deployment web --type=json -p '[{"op":"test","path":"/spec/replicas","value":9}]'

kubectl patch deployment web --type=json -p '[{"op":"remove","path":"/spec/nosuch"}]'

kubectl patch deployment web -p '{"spec":{"replicas":"many"}}'

kubectl patch deployment web -p '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'

kubectl patch deployment web -p '{"spec":{"replicas":3}}'

kubectl patch deployment web --subresource=status --type=merge -p '{"status":{"replicas":3,"readyReplicas":1,"conditions":[{"type":"Available","status":"True","reason":"Tour","message":"set by hand"}]}}'

kubectl patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'

KUBE_EDITOR='sed -i s/fast/faster/' kubectl edit configmap settings

KUBE_EDITOR='true' kubectl edit configmap settings

KUBE_EDITOR='sed -i s/level:.*/level:/' kubectl edit configmap settings -o name

kubectl get cm settings -o yaml --show-managed-fields

kubectl replace -f files/replaced.yaml

kubectl get cm settings -o yaml

kubectl scale deployment web --replicas=5

kubectl scale deployment web --replicas=1 --current-replicas=9

kubectl scale deployment web --replicas=-1

kubectl set image deployment/web nginx=nginx:1.30

kubectl set env deployment/web MODE=fast

kubectl set resources deployment web --requests=cpu=10m,memory=16Mi

kubectl set serviceaccount deployment web robot

kubectl set selector service internal app=elsewhere

kubectl set subject rolebinding readers --user=joe

kubectl rollout history deployment/web

kubectl rollout pause deployment/web

kubectl rollout pause deployment/web

kubectl rollout resume deployment/web

kubectl rollout restart deployment/web

kubectl rollout status deployment/web --timeout=1s

kubectl rollout undo deployment/web

kubectl get deployment web -o yaml --show-managed-fields

kubectl get deployment web

kubectl describe deployment web

kubectl wait --for=condition=Available deployment/web --timeout=10s

kubectl wait --for=jsonpath='{.spec.replicas}'=5 deployment/web --timeout=10s

kubectl wait --for=condition=Ready pod/single --timeout=1s

kubectl wait --for=delete pod/nosuch --timeout=1s

kubectl wait --for=create cm/settings --timeout=1s

kubectl patch pod single -p '{"spec":{"containers":[{"name":"single","image":"busybox:1.37"}]}}'

kubectl patch pod single -p '{"spec":{"restartPolicy":"Always"}}'

kubectl patch pod single --subresource=resize -p '{"spec":{"containers":[{"name":"single","resources":{"requests":{"cpu":"200m"}}}]}}'

kubectl patch service web -p '{"spec":{"type":"NodePort"}}' && kubectl get svc web -o jsonpath='{.spec.type}{"\n"}'

kubectl patch secret password -p '{"immutable":true}'

kubectl patch secret password -p '{"data":{"user":"bWU="}}'

kubectl patch secret password -p '{"stringData":{"user":"you"}}'
