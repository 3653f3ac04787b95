//! Copies over ssh. A script named `ssh` runs the command on this host, as ssh does on another host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{MIB, content};
use crate::process::{folder, refusal};

/// Installs the script in the folder `bin`. For ssh, `ny` has the address `host`; at the other end, the connection of
/// ssh comes from the address `client`, unless it is empty.
fn install(folder: &Path, host: &str, client: &str) {
    let path = |name: &str| folder.join(name);
    let connection = if client.is_empty() { String::new() } else { format!("{client} 50000 {host} 22") };
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] && echo hostname {host} && exit\n\
         while [ \"$1\" != -- ]; do shift; done\n\
         [ \"$2\" = me@ny ] || exit 255\nshift 2\nexport SSH_CONNECTION='{connection}'\n\
         cd {} && echo Welcome && exec sh -c \"$*\"\n",
        path("home").display()
    );
    fs::write(path("bin/ssh"), script).expect("written");
    fs::set_permissions(path("bin/ssh"), fs::Permissions::from_mode(0o755)).expect("the owner may do so");
    symlink(crate::PROGRAM, path("bin/fullpipe")).expect("a link");
}

#[test]
fn a_copy_over_ssh_starts_the_other_end() {
    let folder = folder("copy-ssh");
    let path = |name: &str| folder.join(name);
    for name in ["bin", "home", "out"] {
        fs::create_dir(path(name)).expect("a folder");
    }
    install(&folder, "127.0.0.1", "");
    fs::write(path("out/large"), content(1, 3 * MIB)).expect("written");
    fs::write(path("out/it's"), "small").expect("written");
    let search = format!("{}:/usr/bin:/bin", path("bin").display());
    let copy = |search: &str, target: &str| {
        let output = Command::new(crate::PROGRAM)
            .args(["copy", path("out").to_str().expect("UTF-8"), target, "--json", "--connections", "4"])
            .env("PATH", search)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
    };
    for same in [0, 2] {
        let (code, stdout, stderr) = copy(&search, "me@ny:~/new dir/");
        assert_eq!((code, stderr.as_str()), (0, ""));
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((&report["files"], &report["same_files"]), (&2.into(), &same.into()));
    }
    for name in ["large", "it's"] {
        let placed = fs::read(path("home/new dir/out").join(name)).expect("placed");
        assert!(placed == fs::read(path("out").join(name)).expect("a file"), "{name}");
    }
    assert_eq!(fs::read_dir(path("home/new dir")).expect("a folder").count(), 1, "no journal is left");
    // The next copy goes in the opposite direction.
    let back = path("back");
    let arguments = ["copy", "me@ny:~/new dir/out", back.to_str().expect("UTF-8"), "--json"];
    let output =
        Command::new(crate::PROGRAM).args(arguments).env("PATH", &search).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["files"], &report["same_files"]), (&2.into(), &0.into()));
    assert!(fs::read(back.join("large")).expect("placed") == fs::read(path("out/large")).expect("a file"));
    assert!(
        !path("home/.fullpipe").exists() && !path(".fullpipe").exists(),
        "no journal is left at either end"
    );
    fs::write(path("home/file"), "").expect("written");
    let (error, _) = refusal(1, copy(&search, "me@ny:file/a"));
    assert!(error.starts_with("me@ny: cannot create the folder file"), "{error}");
    let (code, _, stderr) = copy(&search, "other:a");
    assert!(code == 3 && stderr.contains("ssh other did not start a relay"), "{stderr}");
    // The other host has a build of another version, or one without copies.
    let version = r#"{"failed":{"message":"this host supports only version 2 of the protocol","hint":"install the same version of fullpipe at both ends","temporary":false}}"#;
    for (script, message) in [
        (
            format!("echo 'fullpipe-relay {version}'"),
            "me@ny: this host supports only version 2 of the protocol",
        ),
        ("echo unknown command >&2; exit 2".into(), "ssh me@ny did not start a relay (exit status: 2)"),
    ] {
        fs::remove_file(path("bin/fullpipe")).expect("removed");
        fs::write(path("bin/fullpipe"), format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(path("bin/fullpipe"), fs::Permissions::from_mode(0o755))
            .expect("the owner may do so");
        let (code, _, stderr) = copy(&search, "me@ny:a");
        assert_eq!(code, 3, "{stderr}");
        assert!(stderr.contains(&format!("error: {message}\nhint: ")), "{stderr}");
    }
    let (_, hint) = refusal(1, copy("/nowhere", "me@ny:a"));
    assert_eq!(hint, "install the client of OpenSSH");
}

/// No connection to 255.255.255.255 is possible, so the other end connects to this one, in both directions of a copy.
#[test]
fn the_other_end_connects_if_this_one_cannot() {
    let folder = folder("copy-ssh-reverse");
    let path = |name: &str| folder.join(name);
    for name in ["bin", "home"] {
        fs::create_dir(path(name)).expect("a folder");
    }
    fs::write(path("large"), content(1, 3 * MIB)).expect("written");
    let search = format!("{}:/usr/bin:/bin", path("bin").display());
    let copy = |source: &str, target: &str| {
        let output = Command::new(crate::PROGRAM)
            .args(["copy", source, target, "--json", "--connections", "4"])
            .current_dir(&folder)
            .env("PATH", &search)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("an exit"), text(output.stdout), text(output.stderr))
    };
    install(&folder, "255.255.255.255", "127.0.0.1");
    for (source, target) in [("large", "me@ny:there"), ("me@ny:there", "back")] {
        let (code, stdout, stderr) = copy(source, target);
        assert_eq!(code, 0, "{stderr}");
        assert!(
            stderr.lines().count() == 1 && stderr.contains("that host connects to this one instead"),
            "one line: {stderr}"
        );
        let report: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(report["files"], 1, "{report}");
        assert!(report["most_connections"].as_u64().is_some_and(|count| count > 1), "{report}");
    }
    assert!(fs::read(path("back")).expect("placed") == fs::read(path("large")).expect("a file"));
    // The other end cannot connect to this one, either.
    fs::remove_file(path("bin/fullpipe")).expect("removed");
    install(&folder, "255.255.255.255", "255.255.255.255");
    let (error, hint) = refusal(3, copy("large", "me@ny:else"));
    assert!(error.contains("nor can that host connect to this one"), "{error}");
    assert!(hint.starts_with("permit TCP connections"), "{hint}");
}
