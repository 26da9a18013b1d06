# Prints what gantry has to know about a host, and changes nothing. POSIX sh; no other interpreter.
LC_ALL=C; export LC_ALL
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH
section() { printf '\n@@ %s\n' "$1"; }
section kernel; uname -s; uname -m; uname -r
section hostname; uname -n
section os-release; cat /etc/os-release 2>/dev/null
section machine-id; cat /etc/machine-id 2>/dev/null
section init; cat /proc/1/comm 2>/dev/null
section systemd; systemctl --version 2>/dev/null | head -n 1
section virt; systemd-detect-virt 2>/dev/null
section capabilities; grep CapBnd /proc/1/status 2>/dev/null
section mountinfo; cat /proc/self/mountinfo 2>/dev/null
section cgroups; cat /proc/cgroups 2>/dev/null
section controllers; cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null
section filesystems; cat /proc/filesystems 2>/dev/null
section modules; ls /sys/module 2>/dev/null
section loadable; for m in overlay br_netfilter; do
  modinfo -n "$m" >/dev/null 2>&1 && echo "$m"
done
section cpus; grep -c '^processor' /proc/cpuinfo 2>/dev/null
section meminfo; cat /proc/meminfo 2>/dev/null
section disks; df -P -k /var / 2>/dev/null
section addresses; ip -o addr show 2>/dev/null
section routes; ip -o route show default 2>/dev/null
section links; ip -o link show 2>/dev/null
section resolv; cat /etc/resolv.conf 2>/dev/null
section programs; for p in containerd dockerd podman crio kubelet kubeadm k3s rke2 microk8s ufw \
  firewall-cmd nft iptables apt-get dnf nvidia-smi nvidia-ctk; do
  f=$(command -v "$p" 2>/dev/null) && printf '%s %s\n' "$p" "$f"
done
section containerd; containerd --version 2>/dev/null
section listeners; ss -Hltnp 2>/dev/null
section firewalls; for u in ufw firewalld nftables unattended-upgrades; do
  printf '%s %s\n' "$u" "$(systemctl is-active "$u" 2>/dev/null)"
done
section time; date +%s
section synchronized; timedatectl show -p NTPSynchronized --value 2>/dev/null
section selinux; getenforce 2>/dev/null
section apparmor; cat /sys/module/apparmor/parameters/enabled 2>/dev/null
section pci; cat /sys/bus/pci/devices/*/uevent 2>/dev/null | grep -E '^(PCI_CLASS|PCI_ID)='
section user; id -un; id -u
section sudo; if [ "$(id -u)" = 0 ]; then echo root
elif ! command -v sudo >/dev/null 2>&1; then echo none
elif sudo -n true 2>/dev/null; then echo nopasswd
else echo password; fi
section end
