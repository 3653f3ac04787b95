//! Model test of the store: process and disk stop at any call, and the disk loses data that was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fullpipe_units::draw;

use super::disk::Status;
use super::*;
use crate::engine::{block_count, block_range};

const FOLDER: &str = "dir/inner";
const TARGET: &str = "dir/inner/file";
const PERMISSION: Permission = Permission { mode: 0o644, owner: None };

/// Content and attributes of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Inode {
    content: Vec<u8>,
    mtime_ns: i64,
}

/// State of the file system as the process sees it, and as a power failure would leave it.
#[derive(Clone, Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    synced_inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    folders: BTreeSet<PathBuf>,
    synced_folders: BTreeSet<PathBuf>,
    records: BTreeMap<RelativePath, Record>,
    /// Inodes that are symbolic links.
    links: BTreeSet<u64>,
    next_inode: u64,
    /// Number of calls until the simulated crash.
    left: u64,
    /// Whether the next sync fails, as after a device error.
    fails_sync: bool,
    /// Number of bytes until the disk is full; absent for a disk without a limit.
    room: Option<u64>,
}

/// Disk and journal, both in memory.
#[derive(Clone, Debug, Default)]
struct Model(Arc<Mutex<State>>);

impl Model {
    /// Performs a call, or fails if the crash has happened.
    fn call<T>(&self, effect: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = locked(&self.0);
        if state.left == 0 {
            return Err(io::Error::other("crashed"));
        }
        state.left -= 1;
        effect(&mut state)
    }

    /// Restarts after a crash of the process or of the host. After a crash of the host, each unsynced change is kept or
    /// lost at random, drawn from `seed`. A real file system changes a folder in transactions, so all names in a folder
    /// are kept or lost together.
    fn restart(&self, seed: u64) {
        let mut state = locked(&self.0);
        let state = &mut *state;
        state.left = u64::MAX;
        // Only the process has crashed: no data is lost, but no further data has become durable either.
        if draw(seed, 4, 0).is_multiple_of(3) {
            return;
        }
        let (names, synced) = (state.names.clone(), state.synced_names.clone());
        let folder_is_new = draw(seed, 0, 0).is_multiple_of(2);
        state.names = if folder_is_new { names } else { synced };
        if !folder_is_new {
            state.folders = state.synced_folders.clone();
        }
        for (number, inode) in &mut state.inodes {
            let synced = state.synced_inodes.get(number).cloned().unwrap_or_default();
            // The kernel may have written back each page of 4096 bytes independently.
            inode.content.resize(inode.content.len().max(synced.content.len()), 0);
            let pages = inode.content.chunks_mut(4096).enumerate();
            for (page, bytes) in pages {
                if draw(seed, 1, (number << 32) + page as u64).is_multiple_of(2) {
                    let old = synced.content.get(page * 4096..).unwrap_or_default();
                    for (at, byte) in bytes.iter_mut().enumerate() {
                        *byte = old.get(at).copied().unwrap_or(0);
                    }
                }
            }
            if synced.content == inode.content || draw(seed, 2, *number).is_multiple_of(2) {
                inode.mtime_ns = synced.mtime_ns;
            }
        }
        state.synced_inodes = state.inodes.clone();
        state.synced_names = state.names.clone();
        state.synced_folders = state.folders.clone();
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for Model {
    type File = u64;

    fn create(&self, path: &Path, size: u64) -> io::Result<u64> {
        self.call(|state| {
            let folder = folder_of(path);
            if folder != Path::new(".") && !state.folders.contains(folder) {
                return Err(missing());
            }
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.next_inode += 1;
            let number = state.next_inode;
            state.inodes.insert(number, Inode { content: vec![0; size as usize], mtime_ns: 0 });
            state.names.insert(path.into(), number);
            Ok(number)
        })
    }

    fn open(&self, path: &Path) -> io::Result<u64> {
        self.call(|state| state.names.get(path).copied().ok_or_else(missing))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<u64> {
        self.open(path)
    }

    fn resize(&self, file: &u64, size: u64) -> io::Result<()> {
        self.call(|state| {
            state.inodes.get_mut(file).ok_or_else(missing)?.content.resize(size as usize, 0);
            Ok(())
        })
    }

    fn drop_cache(&self, _: &u64) -> io::Result<()> {
        self.call(|_| Ok(()))
    }

    fn is_folder(&self, path: &Path) -> io::Result<bool> {
        self.call(|state| Ok(state.folders.contains(path)))
    }

    fn link(&self, to: &Path, path: &Path) -> io::Result<()> {
        let number = self.create(path, 0)?;
        let mut state = locked(&self.0);
        state.links.insert(number);
        // A link is stored in its folder, and becomes durable with it.
        let inode = Inode { content: to.as_os_str().as_encoded_bytes().to_vec(), mtime_ns: 0 };
        state.synced_inodes.insert(number, inode.clone());
        state.inodes.insert(number, inode);
        Ok(())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.call(|state| {
            let number = state.names.get(path).ok_or_else(missing)?;
            Ok(String::from_utf8_lossy(&state.inodes[number].content).into_owned().into())
        })
    }

    fn write_at(&self, file: &u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.call(|state| {
            if let Some(room) = &mut state.room {
                *room = room.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
            }
            let content = &mut state.inodes.get_mut(file).ok_or_else(missing)?.content;
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(bytes);
            Ok(())
        })
    }

    fn read_at(&self, file: &u64, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.call(|state| {
            let content = &state.inodes.get(file).ok_or_else(missing)?.content;
            let start = offset as usize;
            let bytes = content.get(start..start + buffer.len()).ok_or_else(missing)?;
            buffer.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn sync_data(&self, file: &u64) -> io::Result<()> {
        self.call(|state| {
            if std::mem::take(&mut state.fails_sync) {
                return Err(io::Error::other("the device failed"));
            }
            let inode = state.inodes.get(file).cloned().ok_or_else(missing)?;
            state.synced_inodes.insert(*file, inode);
            Ok(())
        })
    }

    fn finish(&self, file: &u64, attributes: Attributes) -> io::Result<()> {
        self.call(|state| {
            let inode = state.inodes.get_mut(file).ok_or_else(missing)?;
            inode.mtime_ns = attributes.mtime_ns;
            let inode = inode.clone();
            state.synced_inodes.insert(*file, inode);
            Ok(())
        })
    }

    fn inode(&self, file: &u64) -> io::Result<u64> {
        self.call(|_| Ok(*file))
    }

    fn status(&self, path: &Path) -> io::Result<Option<Status>> {
        self.call(|state| {
            if state.folders.contains(path) {
                return Ok(Some(Status { kind: FileKind::Other, size: 0, mtime_ns: 0, inode: 0 }));
            }
            let Some(number) = state.names.get(path) else { return Ok(None) };
            let Inode { content, mtime_ns } = &state.inodes[number];
            let size = content.len() as u64;
            let kind = if state.links.contains(number) { FileKind::Link } else { FileKind::Regular };
            Ok(Some(Status { kind, size, mtime_ns: *mtime_ns, inode: *number }))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let number = state.names.remove(from).ok_or_else(missing)?;
            state.names.insert(to.into(), number);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(|state| state.names.remove(path).map(|_| ()).ok_or_else(missing))
    }

    fn create_folder(&self, path: &Path, _: Option<Permission>) -> io::Result<()> {
        self.call(|state| {
            let created = state.folders.insert(path.into());
            if created { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
        })
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            if path != Path::new(".") && !state.folders.contains(path) {
                return Err(missing());
            }
            let inside = |name: &PathBuf| folder_of(name) == path;
            state.synced_names.retain(|name, _| !inside(name));
            let names = state.names.iter().filter(|(name, _)| inside(name));
            let names: Vec<_> = names.map(|(name, number)| (name.clone(), *number)).collect();
            state.synced_names.extend(names);
            let folders: Vec<_> = state.folders.iter().filter(|name| inside(name)).cloned().collect();
            state.synced_folders.extend(folders);
            Ok(())
        })
    }
}

impl Journal for Model {
    fn get(&self, target: &RelativePath) -> io::Result<Option<Record>> {
        self.call(|state| Ok(state.records.get(target).cloned()))
    }

    fn put(&self, target: &RelativePath, record: &Record) -> io::Result<()> {
        self.call(|state| {
            state.records.insert(target.clone(), record.clone());
            Ok(())
        })
    }

    fn remove(&self, target: &RelativePath) -> io::Result<()> {
        self.call(|state| {
            state.records.remove(target);
            Ok(())
        })
    }

    fn all(&self) -> io::Result<Vec<(RelativePath, Record)>> {
        self.call(|state| Ok(state.records.clone().into_iter().collect()))
    }
}

fn content(seed: u64, size: u64) -> Vec<u8> {
    (0..size).map(|n| (draw(seed, 9, n / 8) >> (8 * (n % 8))) as u8).collect()
}

fn target() -> RelativePath {
    RelativePath::new(Path::new(TARGET)).expect("a path")
}

/// Copies `content` to the target as a relay does: as a whole file, or with a sync after each block. Checks that all
/// blocks that the journal claims are on disk.
fn copy(model: &Model, content: &[u8], mtime_ns: i64) -> Result<(), Error> {
    let store = Store::new(model.clone(), model.clone())?;
    let failed = |error: io::Error| Error::system("copy", &error);
    let source = Source { size: content.len() as u64, mtime_ns, inode: 77 };
    if source.size <= BLOCK {
        let Whole::Announced(file) = store.announce(&target(), source, PERMISSION, (true, false))? else {
            return Ok(());
        };
        store.place_whole(&file, content, true).map_err(failed)?;
        return store.settle_renames(target().folder()).map_err(failed);
    }
    let Opened::Unfinished { mut file, .. } = store.open(&target(), source, false)? else { return Ok(()) };
    let handle = file.file();
    let mut have: BTreeSet<u64> = file.durable().iter().flat_map(|(start, end)| *start..*end).collect();
    for index in 0..block_count(source.size) {
        let (offset, length) = block_range(source.size, index).expect("a block of the file");
        let bytes = &content[offset as usize..offset as usize + length];
        if have.contains(&index) {
            let mut found = vec![0; length];
            store.read(&handle, &mut found, offset).map_err(failed)?;
            assert!(found == bytes, "the journal claims block {index}, but it is not on disk");
            continue;
        }
        store.write(&handle, bytes, offset).map_err(failed)?;
        have.insert(index);
        store.sync(&mut file, crate::engine::runs(have.iter().copied())).map_err(failed)?;
    }
    store.place(&mut file, PERMISSION).map_err(failed)
}

/// Returns the content of the target; reading it does not count as a call.
fn found(model: &Model) -> Option<Vec<u8>> {
    let state = locked(&model.0);
    let number = state.names.get(Path::new(TARGET))?;
    Some(state.inodes[number].content.clone())
}

/// The crash happens at each call in turn, and again in the next attempt. After each restart, the target has its old or
/// its new content. In the end, the target has its new content, and no other file is left.
#[test]
fn a_crash_at_any_call_leaves_the_old_or_the_new_content() {
    let old = content(1, 5_000);
    let mut crashes = 0;
    for (has_old, size) in
        [(false, 2 * BLOCK + 9_000), (true, 2 * BLOCK + 9_000), (false, 9_000), (true, 9_000)]
    {
        let new = content(2, size);
        for call in 0.. {
            let seed = 4 * call + 2 * u64::from(size > BLOCK) + u64::from(has_old);
            let model = Model::default();
            model.restart(0);
            if has_old {
                copy(&model, &old, 5).expect("nothing fails");
            }
            let before = has_old.then(|| old.clone());
            locked(&model.0).left = call;
            let mut attempts = 0;
            while copy(&model, &new, 6).is_err() {
                attempts += 1;
                crashes += 1;
                model.restart(seed * 100 + attempts);
                let now = found(&model);
                assert!(now == before || now.as_ref() == Some(&new), "call {call}, attempt {attempts}");
                // The second attempt crashes as well, at another call.
                if attempts == 1 {
                    locked(&model.0).left = draw(seed, 3, 0) % 30;
                }
            }
            assert!(found(&model).as_ref() == Some(&new), "call {call}");
            let state = locked(&model.0);
            assert_eq!(state.names.keys().collect::<Vec<_>>(), [Path::new(TARGET)], "call {call}");
            assert!(state.records.is_empty(), "call {call}");
            assert!(state.synced_names.contains_key(Path::new(TARGET)), "the new name is durable");
            assert!(state.folders.contains(Path::new(FOLDER)));
            if attempts == 0 {
                break;
            }
        }
    }
    assert!(crashes > 60, "{crashes}");
}

/// The disk becomes full at each block in turn. The target keeps its old content; once the disk has room again, the
/// copy continues without writing durable blocks again.
#[test]
fn a_full_disk_leaves_the_old_content() {
    let old = content(1, 5_000);
    for size in [9_000, 3 * BLOCK + 9_000] {
        let new = content(2, size);
        for blocks in 0..block_count(size) {
            let model = Model::default();
            model.restart(0);
            copy(&model, &old, 5).expect("nothing fails");
            locked(&model.0).room = Some(blocks * BLOCK);
            let error = copy(&model, &new, 6).expect_err("full");
            assert_eq!(
                error.hint, "free some disk space; the same command then continues the copy",
                "{error}"
            );
            assert!(found(&model).as_ref() == Some(&old), "{blocks} of {size}");
            locked(&model.0).room = Some(size - blocks * BLOCK);
            copy(&model, &new, 6).expect("there is room");
            assert!(found(&model).as_ref() == Some(&new), "{blocks} of {size}");
            let state = locked(&model.0);
            assert_eq!(state.names.keys().collect::<Vec<_>>(), [Path::new(TARGET)]);
            assert_eq!((state.records.len(), state.room), (0, Some(0)));
        }
    }
}

/// After an error of `fdatasync`, the kernel regards the pages as written. The journal claims no block that the failed
/// call covered, and the next copy writes these blocks to a new file.
#[test]
fn after_a_failed_sync_the_content_is_written_anew() {
    let content = content(3, BLOCK + 5);
    let model = Model::default();
    model.restart(0);
    let store = Store::new(model.clone(), model.clone()).expect("empty");
    let source = Source { size: content.len() as u64, mtime_ns: 8, inode: 1 };
    let Ok(Opened::Unfinished { mut file, .. }) = store.open(&target(), source, false) else {
        panic!("not opened")
    };
    let handle = file.file();
    store.write(&handle, &content[..BLOCK as usize], 0).expect("written");
    locked(&model.0).fails_sync = true;
    assert!(store.sync(&mut file, vec![(0, 1)]).is_err());
    store.abandon(&file).expect("removed");
    assert!(locked(&model.0).names.is_empty() && locked(&model.0).records.is_empty());
    drop(file);
    let Ok(Opened::Unfinished { file, restarted }) = store.open(&target(), source, false) else {
        panic!("not opened")
    };
    assert!(file.durable().is_empty() && !restarted);
    assert_ne!(*file.file(), *handle, "a new file");
}

#[test]
fn a_copy_continues_only_from_the_same_source() {
    let content = content(4, 2 * BLOCK);
    let model = Model::default();
    model.restart(0);
    let store = Store::new(model.clone(), model.clone()).expect("empty");
    let source = Source { size: 2 * BLOCK, mtime_ns: 8, inode: 1 };
    let open = |source: Source| match store.open(&target(), source, false) {
        Ok(Opened::Unfinished { file, restarted }) => (file, restarted),
        other => panic!("{other:?}"),
    };
    let (mut file, _) = open(source);
    store.write(&file.file(), &content[..BLOCK as usize], 0).expect("written");
    store.sync(&mut file, vec![(0, 1)]).expect("synced");
    let busy = store.open(&target(), source, false).expect_err("a transfer has the target");
    assert!(busy.message.starts_with("another transfer is writing "), "{busy}");
    drop(file);
    let (file, restarted) = open(source);
    assert_eq!((file.durable(), restarted), (&[(0, 1)][..], false));
    drop(file);
    for changed in [Source { mtime_ns: 9, ..source }, Source { inode: 2, ..source }] {
        let (file, restarted) = open(changed);
        assert_eq!((file.durable(), restarted), (&[][..], true), "{changed:?}");
    }
}

/// If a symbolic link gives a folder two names, each of its files has two names. Simultaneous copies to both names of a
/// file do not mix their content.
#[test]
fn copies_to_two_names_of_a_file_do_not_mix() {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("dir")).expect("a folder");
    std::os::unix::fs::symlink("dir", root.path().join("link")).expect("a link");
    let store = FileStore::open_root(root.path()).expect("empty");
    let size = BLOCK + 5;
    let open = |name: &str| {
        let target = RelativePath::new(Path::new(name)).expect("a path");
        match store.open(&target, Source { size, mtime_ns: 8, inode: 1 }, false) {
            Ok(Opened::Unfinished { file, .. }) => file,
            other => panic!("{other:?}"),
        }
    };
    let (mut first, mut second) = (open("dir/a"), open("link/a"));
    for (file, byte) in [(&first, 1), (&second, 2)] {
        store.write(&file.file(), &vec![byte; size as usize], 0).expect("written");
    }
    let found = || std::fs::read(root.path().join("dir/a")).expect("placed");
    store.place(&mut first, PERMISSION).expect("placed");
    assert!(found() == vec![1; size as usize]);
    store.place(&mut second, PERMISSION).expect("placed");
    assert!(found() == vec![2; size as usize]);
}

/// A temporary file that another process has replaced is not placed.
#[test]
fn only_the_own_temporary_file_is_placed() {
    let root = tempfile::tempdir().expect("a folder");
    let store = FileStore::open_root(root.path()).expect("empty");
    let target = RelativePath::new(Path::new("a")).expect("a path");
    let source = Source { size: BLOCK + 5, mtime_ns: 8, inode: 1 };
    let Ok(Opened::Unfinished { mut file, .. }) = store.open(&target, source, false) else {
        panic!("not opened")
    };
    let path = root.path().join(temporary(&target));
    std::fs::rename(&path, root.path().join("kept")).expect("renamed");
    std::fs::write(&path, "another").expect("written");
    let error = store.place(&mut file, PERMISSION).expect_err("the temporary file is another one");
    assert!(error.to_string().contains("has replaced"), "{error}");
    assert!(!root.path().join("a").exists());
}

/// A small file replaces the unfinished copy of a larger file with the same target.
#[test]
fn a_small_file_takes_the_place_of_an_unfinished_large_one() {
    let root = tempfile::tempdir().expect("a folder");
    let store = FileStore::open_root(root.path()).expect("empty");
    let target = RelativePath::new(Path::new("new/a")).expect("a path");
    let large = Source { size: 2 * BLOCK, mtime_ns: 8, inode: 1 };
    let Ok(Opened::Unfinished { file, .. }) = store.open(&target, large, false) else { panic!("not opened") };
    drop(file);
    let small = Source { size: 5, mtime_ns: 9, inode: 1 };
    let announce = |replace| store.announce(&target, small, PERMISSION, (false, replace));
    let Ok(Whole::Announced(file)) = announce(false) else { panic!("another file") };
    assert!(announce(false).is_err(), "the target is taken");
    store.place_whole(&file, b"small", false).expect("placed");
    store.settle_renames(target.folder()).expect("synced");
    drop(file);
    assert!(matches!(announce(false), Ok(Whole::Same)), "the same size and time");
    assert!(matches!(announce(true), Ok(Whole::Announced(_))), "they do not matter");
    assert_eq!(std::fs::read_dir(root.path().join("new")).expect("a folder").count(), 1);
    assert!(store.journal.all().expect("readable").is_empty());
}

/// A crash at any call leaves either the old file or the link, and a second attempt leaves no other file.
#[test]
fn a_link_replaces_a_file_at_once() {
    for call in 0..40 {
        let model = Model::default();
        model.restart(0);
        copy(&model, b"old", 5).expect("nothing fails");
        locked(&model.0).left = call;
        let link = || -> Result<(), Error> {
            let store = Store::new(model.clone(), model.clone())?;
            let linked = store.link(&target(), Path::new("../to"))?;
            store.settle_renames(target().folder()).map_err(|error| Error::system("sync", &error))?;
            drop(linked);
            Ok(())
        };
        let is_linked = link().is_ok();
        model.restart(call);
        let now = found(&model);
        assert!(now.as_deref() == Some(b"../to") || (!is_linked && now.as_deref() == Some(b"old")), "{call}");
        link().expect("nothing fails");
        assert_eq!(found(&model).as_deref(), Some(&b"../to"[..]));
        assert_eq!(locked(&model.0).names.len(), 1, "call {call}");
    }
}

/// A folder that was reported as placed survives a crash, even if an earlier folder of its name has been removed.
#[test]
fn a_folder_survives_a_crash_once_it_is_settled() {
    let folder = RelativePath::new(Path::new("new/inner")).expect("a path");
    for seed in 0..20 {
        let model = Model::default();
        model.restart(0);
        let store = Store::new(model.clone(), model.clone()).expect("nothing fails");
        for _ in 0..2 {
            {
                let mut state = locked(&model.0);
                state.folders.remove(folder.as_path());
                state.synced_folders.remove(folder.as_path());
            }
            store.create(&folder, None).expect("nothing fails");
            store.create(&folder, None).expect("it exists");
            store.settle_folder(&folder).expect("nothing fails");
            model.restart(seed);
            assert!(model.is_folder(folder.as_path()).expect("nothing fails"), "seed {seed}");
        }
    }
}

#[test]
fn pages_of_zeros_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    let root = tempfile::tempdir().expect("a folder");
    let store = FileStore::open_root(root.path()).expect("empty");
    let mut content = vec![0; 40 * PAGE + 100];
    for byte in [0, 3 * PAGE, 4 * PAGE, 40 * PAGE + 99] {
        content[byte] = 1;
    }
    let source = Source { size: content.len() as u64, mtime_ns: 8, inode: 1 };
    let name = RelativePath::new(Path::new("a")).expect("a path");
    for (sparse, most) in [(true, 5 * PAGE as u64), (false, u64::MAX)] {
        let announced = store.announce(&name, source, PERMISSION, (true, true));
        let Ok(Whole::Announced(file)) = announced else { panic!("not announced") };
        store.place_whole(&file, &content, sparse).expect("placed");
        let path = root.path().join("a");
        assert!(std::fs::read(&path).expect("placed") == content);
        let stored = std::fs::metadata(&path).expect("placed").blocks() * 512;
        assert!(stored <= most, "{stored} bytes are stored");
    }
}
