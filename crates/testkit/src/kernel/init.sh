#!/bin/busybox sh
# The first process of a booted kernel: makes one attempt for each line of /attempts and prints, to
# the second serial port, lines that kernel/outcome.rs reads.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t securityfs securityfs /sys/kernel/security
exec </dev/null >/dev/ttyS1 2>/dev/console

# Prints the kernel's messages since the last call.
messages() { dmesg -c | sed 's/^/message /'; }

# finit_module(2) by its number, because insmod hides errno and never sends the flags.
finit='
    my ($flags, $path) = @ARGV;
    my $parameters = "";
    open(my $file, "<", $path) or exit 1;
    if (syscall(313, fileno($file), $parameters, $flags + 0) == -1) {
        print 0 + $!, "\n$!\n";
    } else {
        print "0\n";
    }'

# The firmware has written to the port, too, and left the line open.
echo
echo begin
echo "release $(uname -r)"
echo "enforced $(cat /sys/module/module/parameters/sig_enforce)"
echo "lockdown $(cat /sys/kernel/security/lockdown)"
grep asymmetri /proc/keys | sed 's/^/key /'
messages

number=0
while read -r loader words; do
    echo "attempt $number"
    case $loader in
        finit)
            # The flags, then the file.
            perl -e "$finit" -- $words >/output
            echo "status $(head -n 1 /output)"
            tail -n +2 /output | sed 's/^/output /'
            ;;
        run)
            # The shell prefers its own insmod, whatever the search path is.
            if [ -x "/kmod/${words%% *}" ]; then words=/kmod/$words; fi
            $words >/output 2>&1
            echo "status $?"
            sed 's/^/output /' /output
            ;;
    esac
    cut -d ' ' -f 1 /proc/modules | sed 's/^/loaded /'
    echo "taint $(cat /proc/sys/kernel/tainted)"
    messages
    # The newest is the first, so a module goes before those it needs.
    for module in $(cut -d ' ' -f 1 /proc/modules); do /kmod/rmmod "$module"; done
    dmesg -c >/dev/null
    number=$((number + 1))
done </attempts
echo end
# Everything is sent before the machine is gone.
sync
poweroff -f
