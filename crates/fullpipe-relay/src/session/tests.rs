//! Tests of the limits of a transfer, and of files that are not placed.

use std::path::Path;

use super::*;
use crate::frame::Storage;
use crate::hash::{BlockValues, OPEN_END, block_value};
use crate::incoming::DIFFERS;

/// Returns a session that writes to a new folder and has room for `replies` replies.
fn session(replies: usize) -> (tempfile::TempDir, Arc<Session>, mpsc::Receiver<Reply>) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = FileStore::open_root(folder.path()).expect("empty");
    let (sender, receiver) = mpsc::channel(replies);
    (folder, Arc::new(Session::new(Arc::new(store), sender)), receiver)
}

#[test]
fn a_client_that_does_not_read_its_replies_ends_its_transfer() {
    let (_folder, session, mut receiver) = session(2);
    for stream in 1..=2 {
        session.reply(Reply::Placed { stream, pipe: None });
    }
    assert!(!*session.closed.borrow(), "there was room");
    session.reply(Reply::Placed { stream: 3, pipe: None });
    assert!(*session.closed.borrow());
    assert_eq!(receiver.try_recv(), Ok(Reply::Placed { stream: 1, pipe: None }));
}

#[test]
fn a_transfer_has_one_connection_of_each_number() {
    let (_folder, session, _receiver) = session(1);
    let earlier = session.enter(1);
    let other = session.enter(2);
    crate::runtime().expect("a runtime").block_on(async {
        let (_sender, mut silent) = tokio::io::duplex(64);
        let newer = session.enter(1);
        session.serve(earlier, &mut silent).await.expect("it ends because a newer connection replaces it");
        let open = || locked(&session.connections).keys().copied().collect::<Vec<_>>();
        assert_eq!(open(), [1, 2], "the newer one is open");
        session.leave(newer);
        assert_eq!(open(), [2]);
        session.leave(other);
    });
}

fn announced(stream: u64, target: RelativePath, size: u64) -> OpenedFile {
    let source = Source { size, mtime_ns: 0, inode: stream };
    let permission = Permission { mode: 0o600, owner: None };
    OpenedFile { stream, target, source, permission, verify: false, replace: false, pipe: None }
}

#[test]
fn a_client_cannot_open_more_than_the_limits() {
    let (folder, session, mut receiver) = session(MOST_REPLIES);
    let file = |stream: u64, size: u64| {
        let target = RelativePath::new(Path::new(&stream.to_string())).expect("a path");
        announced(stream, target, size)
    };
    crate::runtime().expect("a runtime").block_on(async {
        let open = async |stream: u64, size: u64| session.open(vec![file(stream, size)]).await;
        open(1, 2 * BLOCK).await.expect("opened");
        assert!(open(1, 5).await.is_err(), "the same stream");
        assert!(open(2, MOST_SIZE).await.is_err(), "too large together with the first");
        assert!(open(2, u64::MAX).await.is_err(), "the sum overflows");
        let count = MOST_OPEN as u64;
        for stream in 2..=count {
            open(stream, 2 * BLOCK).await.expect("opened");
        }
        assert!(open(1000, 2 * BLOCK).await.is_err(), "too many streams");
        open(1000, 5).await.expect("a small file needs less");
        let many = (2000..).take(MOST_ANNOUNCED).map(|stream| file(stream, 5)).collect();
        assert!(session.open(many).await.is_err(), "too many small files");
        session.whole(1000, vec![0; HASH + 4], false).await.expect_err("differs from the announced size");
        session.end().await;
    });
    let opened = Reply::Opened { stream: 1, durable: Vec::new(), restarted: false };
    assert_eq!(receiver.try_recv(), Ok(opened));
    assert!(!folder.path().join("1000").exists());
}

/// If a pipe could have a short block before its end, its file would contain a gap, even with a correct hash.
#[test]
fn only_the_last_block_of_a_pipe_is_short() {
    let (folder, session, _receiver) = session(MOST_REPLIES);
    let long = BLOCK as usize;
    crate::runtime().expect("a runtime").block_on(async {
        for (stream, lengths) in [(1, [long, 5]), (2, [5, long])] {
            let target = RelativePath::new(Path::new(&stream.to_string())).expect("a path");
            let name = StreamName::try_from(format!("{stream}")).expect("a name");
            let pipe = PipeSource { name, group: BLOCK, holds: false, remember: false };
            let pipe = OpenedFile { pipe: Some(pipe), ..announced(stream, target, 0) };
            session.open(vec![pipe]).await.expect("opened");
            let block =
                |index, length, storage| DataHeader { stream, offset: index * BLOCK, length, storage };
            assert!(session.block(block(0, 5, Storage::Hole), &mut Vec::new()).await.is_err(), "a hole");
            let mut values = BlockValues::new(OPEN_END);
            for (index, length) in (0..).zip(lengths) {
                let mut bytes = vec![7; length];
                values.set(index, block_value(OPEN_END, index * BLOCK, &bytes));
                session.block(block(index, length, Storage::Full), &mut bytes).await.expect("written");
            }
            assert!(values.end(BLOCK + 5));
            let blake3 = values.root().expect("complete");
            let finish = Request::Finish { stream, blake3, size: Some(BLOCK + 5), from: 0 };
            session.requests(vec![finish]).await.expect("read");
            while locked(&session.streams).contains_key(&stream) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        session.end().await;
    });
    let placed = |name: &str| std::fs::read(folder.path().join(name)).ok().map(|content| content.len());
    assert_eq!((placed("1"), placed("2")), (Some(long + 5), None));
}

#[test]
fn a_small_file_with_a_wrong_hash_is_not_placed() {
    let (folder, session, mut receiver) = session(MOST_REPLIES);
    crate::runtime().expect("a runtime").block_on(async {
        for (stream, hash) in [(1, *blake3::hash(b"12345").as_bytes()), (2, [7; HASH])] {
            let target = RelativePath::new(Path::new(&stream.to_string())).expect("a path");
            session.open(vec![announced(stream, target, 5)]).await.expect("opened");
            session.whole(stream, [&hash[..], b"12345"].concat(), false).await.expect("read");
            session.whole(stream, vec![0; HASH + 5], false).await.expect("a second copy is dropped");
        }
        session.end().await;
    });
    let mut replies = std::iter::from_fn(|| receiver.try_recv().ok());
    assert!(replies.any(|reply| matches!(reply, Reply::Failed { message, .. }
        if message.contains("place 2") && message.contains(DIFFERS))));
    assert_eq!(std::fs::read(folder.path().join("1")).expect("placed"), b"12345");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 2, "the file, and the folder of the journal");
}
