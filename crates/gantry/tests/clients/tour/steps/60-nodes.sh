# Nodes, which here are only objects.

kubectl apply -f files/node.yaml

kubectl get nodes

kubectl get nodes -o wide

kubectl describe node tour-node

kubectl cordon tour-node

kubectl get nodes

kubectl cordon tour-node

kubectl uncordon tour-node

kubectl taint node tour-node key=value:NoSchedule

kubectl taint node tour-node key=other:NoSchedule

kubectl taint node tour-node key=other:NoSchedule --overwrite

kubectl taint node tour-node key:NoSchedule-

kubectl label node tour-node zone=here

kubectl patch node tour-node --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Tour","lastHeartbeatTime":"2024-01-02T03:04:05Z","lastTransitionTime":"2024-01-02T03:04:05Z"}]}}'

kubectl get nodes

kubectl get node tour-node -o yaml

kubectl apply -f files/bound.yaml

kubectl get pods -o wide

kubectl describe node tour-node

kubectl drain tour-node --ignore-daemonsets --force --delete-emptydir-data --timeout=2s

kubectl delete pod bound --grace-period=0 --force

kubectl delete node tour-node
