//! A copy to a full disk, and the same command after space has been freed, with the same relay.

use std::fs;

use super::{Ends, MIB, content};
use crate::process::with_disk;

/// The relay goes on after a full disk: its journal, which could not be written either, works again.
#[test]
fn a_copy_continues_after_space_has_been_freed() {
    let ends = Ends::new("copy-full-disk");
    fs::write(ends.path("large"), content(4, 40 * MIB)).expect("written");
    fs::create_dir(ends.path("many")).expect("a folder");
    for number in 0..40 {
        fs::write(ends.path(&format!("many/{number}")), content(number, MIB)).expect("written");
    }
    let script = format!(
        r#"cd {folder} && mkdir "$D/in"
        "$FULLPIPE" relay serve --listen 127.0.0.1:{port} --root "$D/in" --key relay.key --allow {client} 2>/dev/null & relay=$!
        copy() {{ "$FULLPIPE" copy $1 relay://127.0.0.1:{port}/$1 --key client.key --peer {peer} 2>&1; echo exit $?; }}
        until ! copy client.key | grep -q 'exit 3'; do sleep 0.1; done
        copy large; copy many; ls -A "$D/in/many" | grep -c partial
        mount -o remount,size=128m none "$D"
        copy large >/dev/null; copy many >/dev/null
        cmp large "$D/in/large" && diff -r many "$D/in/many" && echo same
        ls -A "$D/in"; kill $relay"#,
        folder = ends.folder.display(),
        port = ends.port,
        client = ends.client,
        peer = ends.relay,
    );
    let Some((code, stdout, stderr)) = with_disk(&ends.folder, 24 << 10, &script) else { return };
    assert_eq!(code, 0, "{stdout}{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let failed = lines.iter().filter(|line| line.contains("No space left on device")).count();
    let hints = lines.iter().filter(|line| line.starts_with("hint: free some disk space")).count();
    assert_eq!((failed, hints), (2, 2), "one line and a hint for each copy: {stdout}");
    assert_eq!(lines[2..3], ["exit 1"], "{stdout}");
    assert_eq!(lines[5..], ["exit 1", "0", "same", ".fullpipe", "client.key", "large", "many"], "{stdout}");
}
