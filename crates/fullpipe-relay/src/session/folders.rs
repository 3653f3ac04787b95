//! Folders of a transfer. A folder is created in the order of the messages, so that it has its rights before files
//! arrive for it. Its name is made durable like that of a small file, by up to 16 tasks.

use std::io;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Session, flat, not_a_file};
use crate::error::Error;
use crate::frame::Reply;
use crate::name::RelativePath;
use crate::store::Permission;

impl Session {
    /// Creates a folder, and replies when its name survives a crash.
    pub(super) async fn folder(
        self: &Arc<Self>,
        stream: u64,
        target: RelativePath,
        permission: Option<Permission>,
    ) -> io::Result<()> {
        let checked = match self.outlet {
            Some(_) => Err(not_a_file()),
            None => self.check_target(&target),
        };
        if let Err(error) = checked {
            self.fail(error);
            return Ok(());
        }
        let (store, name) = (Arc::clone(&self.store), target.clone());
        match spawn_blocking(move || store.create(&name, permission)).await? {
            Ok(()) => drop(tokio::spawn(Arc::clone(self).settle_folder(stream, target))),
            Err(error) => self.fail(error),
        }
        Ok(())
    }

    async fn settle_folder(self: Arc<Self>, stream: u64, target: RelativePath) {
        // The semaphore is never closed.
        let _permit = self.placing.acquire().await;
        let (store, name) = (Arc::clone(&self.store), target.clone());
        match flat(spawn_blocking(move || store.settle_folder(&name)).await) {
            Ok(()) => self.reply(Reply::Placed { stream, pipe: None }),
            Err(error) => self.fail(Error::system(format_args!("create the folder {target}"), &error)),
        }
    }
}
