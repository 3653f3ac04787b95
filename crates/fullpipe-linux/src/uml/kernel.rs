//! Finds a User-Mode Linux kernel, its modules, the library that gives it virtual time, and a program that is the
//! guest's init.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Options;
use super::guest::can_be_init;
use crate::error::{Doing, Error};

/// Names of the kernel in `PATH`, in order of preference. Debian's package installs both.
const NAMES: [&str; 2] = ["linux.uml", "linux"];
/// Folder that contains a folder of modules for each kernel release.
const MODULES: &str = "/usr/lib/uml/modules";
/// File name of the preloaded library.
const LIBRARY: &str = "libfullpipe_uml.so";
/// Environment variable with the path of the preloaded library.
const LIBRARY_VARIABLE: &str = "FULLPIPE_UML_LIBRARY";
/// File name of the program that becomes a guest's init if the running program cannot, as in a Python
/// interpreter.
const INIT: &str = "fullpipe-guest";

/// Hint for a host without a usable kernel.
const INSTALL: &str = "install the package user-mode-linux (Debian, Ubuntu), or pass a kernel: --kernel FILE; \
                       the simulator (--world sim) needs neither";

/// A User-Mode Linux kernel that can run a guest in virtual time.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Path of the executable.
    pub path: PathBuf,
    /// Release of the kernel, such as `6.1.176`.
    pub release: String,
    /// Folder with the modules of this release; `None` if there is no such folder. All features are then
    /// assumed to be built in.
    pub modules: Option<PathBuf>,
    /// Path of the preloaded library.
    pub(super) library: PathBuf,
    /// Path of the program that is the guest's init.
    pub(super) init: PathBuf,
}

impl Kernel {
    /// Finds the kernel that `options` select.
    ///
    /// # Errors
    /// Returns an error of [`Kind::Settings`](crate::Kind::Settings) if there is no kernel, if it cannot run a
    /// guest in virtual time, or if the preloaded library is missing.
    pub fn find(options: &Options) -> Result<Self, Error> {
        check_architecture(env::consts::ARCH)?;
        let path = match &options.kernel {
            Some(path) => path.canonicalize().map_err(|error| {
                Error::settings(format!("cannot read the kernel {}: {error}", path.display()), INSTALL)
            })?,
            None => in_path().ok_or_else(|| {
                Error::settings("there is no User-Mode Linux kernel in PATH (linux.uml)", INSTALL)
            })?,
        };
        check_executable(&path)?;
        let release = release(&path)?;
        let modules = options.modules.clone().unwrap_or_else(|| Path::new(MODULES).join(&release));
        let modules = Some(modules).filter(|folder| folder.is_dir());
        let code = file_of_code().doing("find the file of this code")?;
        let library = library(&code)?;
        let init = if can_be_init() { code } else { init(&code)? };
        Ok(Self { path, release, modules, library, init })
    }

    /// Returns whether the kernel has the congestion control `name`, built in or as a module. A kernel
    /// without a folder of modules is assumed to have it.
    pub(super) fn may_have(&self, name: &str) -> bool {
        let built_in = ["reno", "cubic"].contains(&name);
        let module = |modules: &PathBuf| modules.join(format!("kernel/net/ipv4/tcp_{name}.ko")).exists();
        built_in || self.modules.as_ref().is_none_or(module)
    }
}

/// Checks that a host of this architecture, named as in [`env::consts::ARCH`], can run a guest. The preloaded
/// library supports only kernels for x86_64.
///
/// # Errors
/// Returns an error of [`Kind::Settings`](crate::Kind::Settings) for every other architecture.
pub fn check_architecture(architecture: &str) -> Result<(), Error> {
    if architecture == "x86_64" {
        return Ok(());
    }
    Err(Error::settings(
        format!("a guest in virtual time requires x86_64, but this host is {architecture}"),
        "use the simulator: --world sim, or the emulator: --world emu",
    ))
}

pub(super) fn in_path() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    let candidates = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.filter_map(|path| path.canonicalize().ok()).find(|path| path.is_file())
}

/// Checks that `path` is a dynamically linked program for x86_64: a library can only be preloaded into a program
/// that has a dynamic linker.
fn check_executable(path: &Path) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::settings(format!("{} {what}", path.display()), INSTALL));
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4_096).read_to_end(&mut head));
    if let Err(error) = read {
        return Err(Error::settings(format!("cannot read the kernel {}: {error}", path.display()), INSTALL));
    }
    match elf(&head) {
        None => refuse("is not a program for x86_64"),
        Some(Linking::Static) => {
            refuse("is statically linked, so a preloaded library cannot give the kernel virtual time")
        }
        Some(Linking::Dynamic) => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    Static,
    Dynamic,
}

/// Reads the first bytes of a program (ELF-64, little-endian); returns `None` if it is not for x86_64.
fn elf(head: &[u8]) -> Option<Linking> {
    const X86_64: u16 = 62;
    const PT_INTERP: u32 = 3;
    let integer = |at: usize, len: usize| {
        let bytes = head.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
    };
    if head.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] || integer(18, 2)? != u64::from(X86_64) {
        return None;
    }
    let (table, size, count) = (integer(32, 8)?, integer(54, 2)?, integer(56, 2)?);
    let kind = |number: u64| integer(usize::try_from(table + number * size).ok()?, 4);
    let interpreted = (0..count).any(|number| kind(number) == Some(u64::from(PT_INTERP)));
    Some(if interpreted { Linking::Dynamic } else { Linking::Static })
}

/// Returns the release that the kernel prints.
fn release(path: &Path) -> Result<String, Error> {
    let mut command = Command::new(path);
    let run = command.arg("--version").stdin(Stdio::null()).output();
    let output = run.map_err(|error| {
        Error::settings(format!("cannot run the kernel {}: {error}", path.display()), INSTALL)
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim();
    if !output.status.success() || !line.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(Error::settings(format!("{} is not a User-Mode Linux kernel", path.display()), INSTALL));
    }
    Ok(line.into())
}

/// Returns the file that contains this code: the running program, or a library that it has loaded.
fn file_of_code() -> io::Result<PathBuf> {
    let maps = fs::read("/proc/self/maps")?;
    let file = mapped_file(&maps, file_of_code as fn() -> io::Result<PathBuf> as usize);
    file.map_or_else(env::current_exe, |file| Ok(file.to_path_buf()))
}

/// Returns the file that a line of `/proc/PID/maps` names for `address`. A line consists of a range of addresses,
/// four fields, and a path that may contain spaces.
fn mapped_file(maps: &[u8], address: usize) -> Option<&Path> {
    maps.split(|&byte| byte == b'\n').find_map(|line| {
        let range = str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        // Only the path contains slashes.
        let path = line.iter().position(|&byte| byte == b'/')?;
        (start..end).contains(&address).then(|| Path::new(OsStr::from_bytes(&line[path..])))
    })
}

/// Finds the preloaded library: the one that the environment names, or else the first one among
/// Cargo's intermediate files, beside the code, or in the library folder of the program's prefix.
fn library(code: &Path) -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        return path.canonicalize().map_err(|error| {
            let message = format!("cannot read {LIBRARY_VARIABLE}={}: {error}", path.display());
            Error::settings(message, "unset the variable to use the library beside the program")
        });
    }
    // In Cargo's folder, the file beside the program may be from an earlier build.
    first(code, &["deps", "", "../lib/fullpipe"], LIBRARY).ok_or_else(|| {
        Error::settings(
            format!("the library {LIBRARY}, which gives a kernel virtual time, is missing"),
            format!(
                "build the library (cargo build --release -p fullpipe-uml) and put it into the folder that contains \
                 {}, or set {LIBRARY_VARIABLE} to the path of the library",
                code.display()
            ),
        )
    })
}

/// Finds the program that is the guest's init instead of the running program.
fn init(code: &Path) -> Result<PathBuf, Error> {
    first(code, &["", "../lib/fullpipe"], INIT).ok_or_else(|| {
        Error::settings(
            format!("{INIT} is missing, and the running program cannot be a guest's init"),
            format!(
                "call run_if_guest at the start of main, or build the program (cargo build --release -p \
                 fullpipe-py --bin {INIT}) and put it into the folder that contains {}",
                code.display()
            ),
        )
    })
}

/// Returns the first file `name` in `folders`, which are relative to the folder of `code`.
fn first(code: &Path, folders: &[&str], name: &str) -> Option<PathBuf> {
    let folder = code.parent().unwrap_or(Path::new("."));
    folders.iter().find_map(|below| folder.join(below).join(name).canonicalize().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a program with one program header of type `kind`.
    fn program(machine: u8, kind: u8) -> Vec<u8> {
        let mut head = vec![0; 64 + 56];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (head[18], head[32], head[54], head[56], head[64]) = (machine, 64, 56, 1, kind);
        head
    }

    #[test]
    fn a_program_without_a_dynamic_linker_is_recognised() {
        assert_eq!(elf(&program(62, 3)), Some(Linking::Dynamic));
        assert_eq!(elf(&program(62, 1)), Some(Linking::Static));
        assert_eq!(elf(&program(183, 3)), None, "another architecture");
        assert_eq!(elf(b"#!/bin/sh"), None);
    }

    /// The library of an installed program is in the program's prefix, and the library of a build is beside
    /// the program. Cargo's own folder comes first, because the file beside the program may be from an
    /// earlier build.
    #[test]
    fn the_library_is_found_from_the_programs_folder() {
        if env::var_os(LIBRARY_VARIABLE).is_some() {
            eprintln!("skipped: {LIBRARY_VARIABLE} names the library");
            return;
        }
        let prefix = tempfile::tempdir().expect("a folder");
        let program = prefix.path().join("bin/fullpipe");
        let error = library(&program).expect_err("there is none");
        let missing = format!("the library {LIBRARY}, which gives a kernel virtual time, is missing");
        assert_eq!(error.message, missing);
        assert!(
            error.hint.contains("cargo build") && error.hint.contains(LIBRARY_VARIABLE),
            "{}",
            error.hint
        );
        for folder in ["lib/fullpipe", "bin", "bin/deps"] {
            let folder = prefix.path().join(folder);
            std::fs::create_dir_all(&folder).expect("a folder");
            let file = folder.join(LIBRARY);
            std::fs::write(&file, "").expect("written");
            std::fs::create_dir_all(prefix.path().join("bin")).expect("a folder");
            assert_eq!(library(&program).expect("found"), file.canonicalize().expect("a file"));
        }
    }

    #[test]
    fn the_file_of_an_address_may_have_spaces_in_its_name() {
        let maps = b"55d0c0000000-55d0c0001000 r--p 00000000 fe:00 1234   /usr/bin/python3.11\n\
                     7f0000001000-7f0000003000 r-xp 00001000 fe:00 77     /home/a b/_fullpipe.abi3.so\n\
                     7f0000003000-7f0000004000 rw-p 00000000 00:00 0\n\
                     7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0      [stack]\n";
        let library = Some(Path::new("/home/a b/_fullpipe.abi3.so"));
        assert_eq!(mapped_file(maps, 0x7f00_0000_1000), library);
        assert_eq!(mapped_file(maps, 0x7f00_0000_2fff), library);
        assert_eq!(mapped_file(maps, 0x55d0_c000_0800), Some(Path::new("/usr/bin/python3.11")));
        for without in [0x7f00_0000_3000, 0x7ffc_0000_0000, 0x1000] {
            assert_eq!(mapped_file(maps, without), None, "{without:x}");
        }
        assert_eq!(file_of_code().expect("a path"), env::current_exe().expect("a path"));
    }

    #[test]
    fn a_file_is_found_beside_the_code_or_in_its_prefix() {
        let prefix = tempfile::tempdir().expect("a folder");
        let prefix = prefix.path().canonicalize().expect("a path");
        let code = prefix.join("bin/code");
        for folder in ["bin", "lib/fullpipe"] {
            fs::create_dir_all(prefix.join(folder)).expect("a folder");
        }
        let missing = init(&code).expect_err("there is none");
        assert!(missing.message.starts_with("fullpipe-guest is missing"), "{}", missing.message);
        let in_prefix = prefix.join("lib/fullpipe/fullpipe-guest");
        fs::write(&in_prefix, "").expect("a file");
        assert_eq!(init(&code).ok(), Some(in_prefix));
        let beside = prefix.join("bin/fullpipe-guest");
        fs::write(&beside, "").expect("a file");
        assert_eq!(init(&code).ok(), Some(beside));
    }

    #[test]
    fn the_test_program_is_dynamically_linked() {
        let program = env::current_exe().expect("a path");
        if cfg!(target_arch = "x86_64") {
            assert!(check_executable(&program).is_ok());
            let error = release(Path::new("/bin/true")).expect_err("not a kernel");
            assert_eq!(error.message, "/bin/true is not a User-Mode Linux kernel");
        }
    }
}
