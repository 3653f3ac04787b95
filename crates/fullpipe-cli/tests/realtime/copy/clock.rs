//! Copies while the clock of the host is set back. Only the clock of a separate kernel can be set, because no namespace
//! contains the wall clock; this kernel is User-Mode Linux, an ordinary process, in real time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{folder, has};

/// Program that the separate kernel runs first. Each line on standard output that begins with `seen` is a result.
const SCRIPT: &str = r#"#!/bin/sh
export PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=FOLDER/guest P=PROGRAM
mount -t proc proc /proc && mount -t tmpfs tmpfs FOLDER/guest && cd FOLDER/guest && ip link set lo up || echo seen no guest
mkdir in spool
for name in large written; do head -c 16000000 /dev/urandom > $name; done
touch -d '2031-01-01' early && touch -d '1971-01-01' late
relay=$($P relay key --key relay.key) client=$($P relay key --key client.key)
serve() { $P relay serve --listen 127.0.0.1:9581 --root in --key relay.key --allow $client 2>>relay.err & server=$!; until ss -Htln | grep -q :9581; do sleep 0.1; done; }
begun() { until ls in/.fullpipe-*.partial >/dev/null 2>&1; do sleep 0.1; done; }
copy() { timeout 60 $P copy "$@" --peer $relay --key client.key; }
serve

# The clock goes back 25 years during a copy.
copy large relay://127.0.0.1/large --limit 40mbit >/dev/null 2>large.err & copying=$!
begun; sleep 1; date -s '2001-01-01' >/dev/null
wait $copying; echo seen upload $? $(cmp large in/large && echo same)

# It goes back once more between two attempts at a copy, of which both ends were killed.
$P copy large relay://127.0.0.1/again --limit 20mbit --peer $relay --key client.key >/dev/null 2>&1 & copying=$!
begun; sleep 3; kill -9 $copying $server; date -s '1999-01-01' >/dev/null
serve
copy large relay://127.0.0.1/again --json >again.json 2>again.err
echo seen resumed $? $(cmp large in/again && echo same) $(grep -c '"resumed_bytes": [1-9]' again.json)

# A source is written after the clock has been set back, so its modification time moves to the past.
copy written relay://127.0.0.1/written --limit 40mbit >/dev/null 2>written.err & copying=$!
begun; sleep 1; date -s '1997-01-01' >/dev/null; echo other | dd of=written bs=1 seek=9000000 conv=notrunc 2>/dev/null
wait $copying; echo seen changed $? $(ls in/written 2>/dev/null)
sed 's/^/seen changed /' written.err

# Times in the future and in the past are kept, and unchanged files are skipped.
for time in once twice; do
    copy early late relay://127.0.0.1/times/ --json 2>/dev/null | grep -o '"same_files": .' | sed "s/^/seen $time /"
done
echo seen times $(stat -c %y in/times/early in/times/late | cut -c1-4)

# The clock goes back while a stream waits in a spool for its relay.
kill -9 $server
head -c 3000000 large > stream
copy - relay://127.0.0.1/stream --stream s --spool spool --retry 30s <stream >/dev/null 2>stream.err & copying=$!
sleep 1; date -s '1995-01-01' >/dev/null; serve
wait $copying; code=$?
[ $code = 0 ] || { copy - relay://127.0.0.1/stream --stream s --spool spool <stream >/dev/null 2>stream.err; code=$?; }
echo seen stream $code $(cmp stream in/stream && echo same)
echo seen left $(ls -A spool | wc -l)
halt -f -p; echo o > /proc/sysrq-trigger
"#;

/// Starts the script as the first process of a separate kernel, and returns its results.
fn results(script: &str) -> String {
    let folder = folder("copy-clock");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    fs::create_dir(path("guest")).expect("a folder");
    let script = script.replace("FOLDER", folder.to_str().expect("UTF-8")).replace("PROGRAM", crate::PROGRAM);
    fs::write(path("first"), script).expect("written");
    fs::set_permissions(path("first"), Permissions::from_mode(0o755)).expect("the owner may do so");
    // Without an order, which the launcher would write, the library leaves the guest in real time, and only completes
    // the processor state. In Cargo's folder, the library beside the program may be from an earlier build.
    let beside = Path::new(crate::PROGRAM).parent().expect("a folder");
    let library = ["deps/libfullpipe_uml.so", "libfullpipe_uml.so"].map(|name| beside.join(name));
    let library = library.into_iter().find(|library| library.exists()).expect("built with the tests");
    let output = Command::new("linux")
        .args(["rootfstype=hostfs", "rootflags=/", "ro", "mem=512M", "con=null", "con0=null,fd:1", "quiet"])
        .arg(format!("init={}", path("first")))
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let console = String::from_utf8_lossy(&output.stdout);
    eprintln!("{console}");
    console
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("seen "))
        // On a slow machine, a copy also prints its progress.
        .filter(|line| !line.contains(" copied "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn a_clock_that_is_set_back_costs_nothing() {
    if !has("linux") {
        return;
    }
    let expected = "upload 0 same\nresumed 0 same 1\nchanged 1\n\
                    changed error: written changed during the copy\n\
                    changed hint: run the same command again when no program writes to the file\n\
                    once \"same_files\": 0\ntwice \"same_files\": 2\ntimes 2031 1971\n\
                    stream 0 same\nleft 0\n";
    assert_eq!(results(SCRIPT), expected);
}
