#!/bin/sh
# Runs the recorder with one core and a small heap. The last flag keeps the JVM from leaving out the
# messages of exceptions that it has thrown many times.
here=$(dirname "$0")
exec java -XX:ActiveProcessorCount=1 -Xmx512m -XX:-OmitStackTraceInFastThrow \
    -cp "$here/target/classes:$here/target/lib/*" io.headrace.conformance.Main "$@"
