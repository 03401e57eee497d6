#!/bin/sh
# Checks what this machine has before anything is installed: `sh tests/preflight.sh java maven`.
# Names everything that is missing at once, and how to get it.
set -u

DISK_GB=4
MEMORY_GB=6
missing=0

lacks() {
    echo "$1" >&2
    missing=1
}

for tool; do
    case $tool in
    java | javac)
        version=$("$tool" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p; s/.* version "\([0-9]*\).*/\1/p')
        [ "${version:-0}" -ge 17 ] ||
            lacks "Java 17 or later is missing (\`$tool\` is ${version:-not there}). Install it, for example \`apt install openjdk-17-jdk\` or \`brew install openjdk@17\`."
        ;;
    maven)
        command -v mvn >/dev/null ||
            lacks 'Maven, which fetches the Kafka broker of the tests, is missing. Install it, for example `apt install maven` or `brew install maven`.'
        ;;
    esac
done

for folder in . "${TMPDIR:-/tmp}"; do
    free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "${free:-$DISK_GB}" -ge "$DISK_GB" ] ||
        lacks "The disk of $(cd "$folder" && pwd) has $free GB free; $DISK_GB GB are needed. Delete something, or set TMPDIR if it is the temporary folder."
done

if [ -r /proc/meminfo ]; then
    memory=$(awk '/^MemTotal:/ { print int($2 / 1048576 + 0.5) }' /proc/meminfo)
else
    memory=$(sysctl -n hw.memsize 2>/dev/null | awk '{ print int($1 / 1073741824) }')
fi
[ "${memory:-$MEMORY_GB}" -ge "$MEMORY_GB" ] ||
    lacks "This machine has $memory GB of memory; $MEMORY_GB GB are needed. Use a larger one, or give the virtual machine more."

exit "$missing"
